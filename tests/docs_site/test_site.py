"""The documentation site: it builds without a warning, has what it should, and fetches nothing from anywhere."""

from __future__ import annotations

import functools
import html.parser
import os
import posixpath
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import filelock
import pytest

from benchmarks import method_facts
from docs_site import docstrings, links, method_page
from polopt import catalogue

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ("compare", "cartpole", "teach-preferences")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_MKDOCS_2_WARNING": "1"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all processes of a test run; in strict mode a link that leads nowhere ends the build."""
    pytest.importorskip("mkdocs")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "documentation-site"
    with filelock.FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            build(folder)
    return folder


def build(folder: Path) -> None:
    making = folder.with_suffix(".making")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(making)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=560, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    making.rename(folder)


class Page(html.parser.HTMLParser):
    """What a page links to, which anchors it has, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if "src" in found:
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "preconnect", "icon", "preload"):
            self.loads.append(found["href"])


@functools.cache
def pages(site: Path) -> dict[str, Page]:
    files = sorted(site.rglob("*.html"))
    return {file.relative_to(site).as_posix(): Page(file.read_text(encoding="utf-8")) for file in files}


def test_every_method_has_a_page_with_its_claims_and_its_formula(site: Path) -> None:
    for slug in catalogue.slugs():
        text = (site / "methods" / f"{slug}.html").read_text(encoding="utf-8")
        claims = method_facts.claims_of(slug)
        assert text.count('<div class="claim ') == len(claims), slug
        assert all(f"<code>{claim.name}</code>" in text for claim in claims), slug
        shown = text.partition('<h2 id="formula">')[2].partition("<details")[0]
        m = catalogue.find(slug)
        assert ("<math" in shown) == ("<math" in docstrings.as_html(m.doc, frozenset(m.settings()))), slug
        assert '<h2 id="cite">' in text, slug


def test_the_index_lists_every_method(site: Path) -> None:
    found = pages(site)["methods.html"].links
    assert {f"methods/{slug}.html" for slug in catalogue.slugs()} <= set(found)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for name, page in pages(site).items():
        assert [one for one in page.loads if one.startswith(("http:", "https:", "//"))] == [], name
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8").replace('"', "").replace("'", ""), style.name


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    """Those of raw HTML as well, which mkdocs does not check."""
    found = pages(site)
    assert len(found) > 150
    for name, page in found.items():
        if name == "404.html":
            continue
        for link in [*page.links, *page.loads]:
            if link.startswith(("http:", "https:", "mailto:", "data:", "javascript:")):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            assert (site / target).exists(), f"{name} links to {link}"
            if anchor and target in found and not anchor.startswith("__"):
                assert anchor in found[target].anchors, f"{name} links to {link}"


def test_links_mean_the_same_in_the_repository_and_on_the_site() -> None:
    wanted: list[str] = []
    text = "[a](../polopt/methods/dr_grpo.py) [b](../benchmarks/results/plan.md#x) [c](../polopt/part.py) [d](trl.md)"
    found = links.rewritten(f"{text}\n```\n{text}\n```\n", "docs/fields.md", "fields.md", wanted.append)
    expected = "[a](methods/dr-grpo.md) [b](results/plan.md#x) [c](files/polopt/part.py.txt) [d](trl.md)"
    assert found == f"{expected}\n```\n{text}\n```\n"
    assert wanted == ["polopt/part.py"]
    assert links.rewritten("[a](methods.md)", "benchmarks/results/plan.md", "results/plan.md", wanted.append) == (
        "[a](methods.md)"
    )
    with pytest.raises(FileNotFoundError):
        links.rewritten("[a](nowhere.md)", "docs/fields.md", "fields.md", wanted.append)


def test_a_stored_claim_is_read_with_and_without_its_seeds() -> None:
    (claim, *_) = catalogue.claims_of("gspo")
    row = {"measured": {"a": 2.0, "b": 1.0}, "holds": False, "criterion": "a < 1", "note": "n"}
    nothing = method_facts.claim_facts(claim, None)
    assert (nothing.verdict, dict(nothing.measured), nothing.runs) == ("not run yet", {}, 0)
    single = method_facts.claim_facts(claim, row)
    assert (single.verdict, single.measured["a"], single.criterion) == ("fails", (2.0, None), "a < 1")
    several = method_facts.claim_facts(claim, {**row, "held": 1, "runs": 3, "intervals": {"a": [0.5, 3.0]}})
    assert (several.verdict, several.held, several.runs) == ("on some seeds", 1, 3)
    assert dict(several.measured) == {"a": (2.0, (0.5, 3.0)), "b": (1.0, None)}
    page = method_page.claim_html(several)
    assert "holds on 1 of 3 fresh seeds" in page
    assert "<td>0.5 to 3</td>" in page
    compared = {**row, "holds": True, "held": 1, "runs": 1, "won": [9, 10], "step_sizes": {"method": 4.0, "grpo": 2.0}}
    page = method_page.claim_html(method_facts.claim_facts(claim, compared))
    assert "criterion met on 9 of 10 seeds" in page
    assert "method 4, grpo 2" in page


def test_planted_bugs_stand_on_the_page(site: Path) -> None:
    bugs = method_facts.bugs_of("dapo")
    text = (site / "methods" / "dapo.html").read_text(encoding="utf-8")
    assert bugs
    assert all(statement in text for statement, _, _ in bugs)


def test_the_parent_of_a_method() -> None:
    """What the builder calls, with the settings of both; of several the nearest one; GRPO where it calls none."""
    for slug, parent, called in (("vas", "grpo", True), ("luspo", "gspo", True), ("gspo", "grpo", False)):
        found = method_facts.parent_of(catalogue.find(slug))
        assert found is not None
        assert (found.slug, found.called) == (parent, called)
    vas = method_facts.parent_of(catalogue.find("vas"))
    assert vas is not None
    assert vas.settings == {"group": 8, "clip": 0.2, "kl": 0.01}
    assert [path for path, _, _ in vas.differences] == ["sampling.choice"]
    assert method_facts.parent_of(catalogue.find("grpo")) is None


def test_what_methods_need() -> None:
    for slug, needs in (
        ("ppo", {"critic", "reference policy"}),
        ("dpo", {"preference pairs", "reference policy", "groups"}),
        ("sft", {"demonstrations"}),
        ("reinforce", set()),
    ):
        assert set(method_facts.needs_of(catalogue.find(slug))) == needs


DRIVER = """
import sys
from pathlib import Path
from docs_site import notebooks
for name in sys.argv[1:]:
    print("notebook", name)
    exec("\\n".join(notebooks.code(Path(name))), {"__name__": "__main__"})
"""


def test_notebooks_run(tmp_path: Path) -> None:
    """Their cells, in order, in a process of their own; teach.ipynb needs a model and runs with its recipe's test."""
    files = [str(ROOT / "docs" / f"{name}.ipynb") for name in NOTEBOOKS]
    command = [sys.executable, "-c", DRIVER, *files]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=560, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(len(part.splitlines()) > 5 for part in done.stdout.split("notebook ")[1:])
    assert {file.stem for file in (ROOT / "docs").glob("*.ipynb")} == {"teach", *NOTEBOOKS}
