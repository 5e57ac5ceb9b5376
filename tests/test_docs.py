"""Every Python snippet of the README and the docs runs, in order, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import catalogue

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if SNIPPET.search(p.read_text())], ids=lambda p: p.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, code in enumerate(SNIPPET.findall(page.read_text())):
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_catalogue_page_is_what_the_method_files_say() -> None:
    assert catalogue.PAGE.read_text() == catalogue.page(), "run: python -m benchmarks.catalogue"
