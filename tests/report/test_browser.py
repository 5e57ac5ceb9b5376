"""The pages in a real browser, untouched: a page around them looks in, clicks and writes down what it saw."""

import json
import re
import shutil
import subprocess

import fake_run
import pytest

from polopt.metrics import Comparison
from polopt.report import compare_report, write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
    "--enable-logging=stderr",
    "--window-size=1400,900",
    "--dump-dom",
]

AROUND = """<!doctype html><title>probe</title>
<iframe src="ADDRESS" width="1280" height="900"></iframe>
<iframe src="ADDRESS" width="360" height="800"></iframe>
<script>
const shown = (d) => [...d.querySelectorAll(".samples details")].filter((s) => s.checkVisibility());
function look(frame) {
  const d = frame.contentDocument, root = d.documentElement, plots = [...d.querySelectorAll(".plot")];
  const seen = {
    title: d.title, width: root.clientWidth, content: root.scrollWidth, plots: plots.length,
    drawn: plots.filter((p) => p.querySelector("svg .trace, svg .hm")).length,
    spilling: plots.filter((p) => p.scrollWidth > p.clientWidth + 1).length,
    background: getComputedStyle(d.body).backgroundColor,
    paper: [...new Set(plots.map((p) => p._fullLayout.paper_bgcolor))],
    cut: plots.flatMap((p) => [...p.querySelectorAll(".ytick text, .y2tick text, .y3tick text")]
      .filter((t) => t.getBoundingClientRect().left < p.getBoundingClientRect().left - 0.5).map((t) => t.textContent)),
    requests: frame.contentWindow.performance.getEntriesByType("resource").length,
  };
  if (!d.getElementById("samples")) return seen;
  seen.all = shown(d).length;
  const choose = (name, value) => {
    const select = d.getElementById("filter-" + name);
    select.value = value;
    select.dispatchEvent(new Event("change"));
  };
  choose("solved", "unsolved");
  choose("kind", "gcd");
  seen.filtered = shown(d).map((s) => [s.dataset.solved, s.dataset.kind]);
  seen.count = d.getElementById("filter-count").textContent;
  choose("kind", ""), choose("solved", "");
  const token = d.querySelector("[data-l]");
  token.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  seen.tip = d.getElementById("tip").textContent;
  return seen;
}
onload = () => {
  document.body.dataset.seen = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
};
</script>"""


def browse(page, folder, dark=False):
    (folder / "around.html").write_text(AROUND.replace("ADDRESS", page.as_uri()))
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [
        CHROMIUM,
        *QUIET,
        scheme,
        f"--user-data-dir={folder / 'profile'}",
        (folder / "around.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    seen = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert seen, done.stderr[-2000:]
    return json.loads(seen[1].replace("&quot;", '"').replace("&amp;", "&")), said


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on this machine")
def test_report_in_a_browser(tmp_path):
    run = fake_run.write_run(tmp_path / "grpo-seed7")
    seen, said = browse(write_report(run), tmp_path)
    assert said == []
    for view in seen:
        assert view["title"] == "grpo-seed7 · polopt", "no completion ran as a script"
        assert view["plots"] == view["drawn"] == 13
        assert view["content"] <= view["width"], "nothing wider than the screen"
        assert view["spilling"] == 0
        assert view["cut"] == [], "labels of axes are whole"
        assert view["requests"] == 0
        assert view["paper"] == ["#ffffff"]
        assert view["all"] == 24
        records = [json.loads(r) for r in (run / "samples.jsonl").read_text().splitlines()]
        expected = sum(not r["solved"] and r["kind"] == "gcd" for r in records)
        assert view["filtered"] == [["unsolved", "gcd"]] * expected
        assert view["count"] == f"{expected} shown"
        assert view["tip"] == "log-prob -0.500, probability 60.7 %"
    assert seen[0]["width"] > 1000
    assert seen[1]["width"] <= 360


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on this machine")
def test_comparison_in_a_dark_browser(tmp_path):
    comparison = Comparison.from_dict(fake_run.comparison())
    page = compare_report(comparison, tmp_path / "compare.html", fake_run.about())
    seen, said = browse(page, tmp_path, dark=True)
    assert said == []
    for view in seen:
        assert view["plots"] == view["drawn"] == 2
        assert view["content"] <= view["width"]
        assert view["paper"] == ["#1c1f25"]
        assert view["background"] == "rgb(21, 23, 27)"
