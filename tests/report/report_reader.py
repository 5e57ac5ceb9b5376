"""Runs with records of a test's own, and the page of a run as its reader sees it."""

import html.parser
import json


class Reader(html.parser.HTMLParser):
    """Elements, attributes and the text a reader sees (outside script and style)."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.attributes, self.text, self.hidden, self.json = [], [], [], None, ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs
        if tag in ("script", "style"):
            self.hidden = (tag, dict(attrs))

    def handle_endtag(self, tag):
        if self.hidden and tag == self.hidden[0]:
            self.hidden = None

    def handle_data(self, data):
        if self.hidden is None:
            self.text.append(data)
        elif self.hidden[1].get("id") == "figures":
            self.json += data

    @property
    def words(self):
        return " ".join("".join(self.text).replace("\u00a0", " ").split())

    @property
    def figures(self):
        return json.loads(self.json)


def written(folder, evaluations=(), metrics=(), samples=()):
    """The folder of a run with these records."""
    for name, records in (("evaluations", evaluations), ("metrics", metrics), ("samples", samples)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def evaluated(step, when, solved):
    rate = {"estimate": sum(solved) / len(solved), "low": 0.0, "high": 1.0}
    kinds = {"digit": {**rate, "problems": len(solved), "solved": solved}}
    return {"step": step, "stage": "rl", "when": when, "samples": 1, "pass@1": rate, "kinds": kinds}
