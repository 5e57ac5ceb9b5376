"""Every snippet of the README runs alone, those of a page of the docs in order; pages that are made are current."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import catalogue, environments_page, fields_page, recipe_page
from polopt.problems import PROBLEMS
from polopt.worlds.recipe import KINDS, parse_world

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


def run_snippets(page: Path, snippets: list[tuple[int, str]]) -> None:
    """Run code as a file of its own would, one snippet after the other in one namespace."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, code in snippets:
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), namespace)


@pytest.mark.parametrize("page", [p for p in PAGES[1:] if SNIPPET.search(p.read_text())], ids=lambda p: p.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of the docs is read from the top: its snippets build on each other."""
    monkeypatch.chdir(tmp_path)
    run_snippets(page, list(enumerate(SNIPPET.findall(page.read_text()))))


@pytest.mark.parametrize("number", range(len(SNIPPET.findall(PAGES[0].read_text()))))
def test_each_snippet_of_the_readme_runs_alone(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what people copy, one at a time."""
    monkeypatch.chdir(tmp_path)
    run_snippets(PAGES[0], [(number, SNIPPET.findall(PAGES[0].read_text())[number])])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_catalogue_page_is_what_the_method_files_say() -> None:
    assert catalogue.PAGE.read_text() == catalogue.page(), "run: python -m benchmarks.catalogue"


def test_the_fields_page_is_what_the_registries_hold() -> None:
    assert fields_page.PAGE.read_text() == fields_page.page(), "run: python -m benchmarks.fields_page"


def test_the_environments_page_has_every_world_and_problem() -> None:
    text = environments_page.PAGE.read_text()
    assert text == environments_page.page(), "run: python -m benchmarks.environments_page"
    assert all(f"| `{{kind: {kind}}}` |" in text for kind in KINDS)
    assert all(f"| `{name}` |" in text for name in PROBLEMS)


def test_the_turns_on_the_environments_page_are_those_of_the_worlds() -> None:
    few: dict[str, Any] = {"kind": "chains", "train": 20, "heldout": 5}
    kinds = ("guess-number", "chains", "critic", "unit-tests")
    specs = [{"kind": kind, "train": 20, "heldout": 5} for kind in kinds]
    specs += [{"kind": kind, "of": few} for kind in ("noisy", "second-chance")]
    for spec in specs:
        world = parse_world(spec)
        said = environments_page.TURNS[spec["kind"]]
        turns = {"up to `turns`": getattr(world, "turns", 0), "as `of`": 1, "one more than `of`": 2, "1": 1}[said]
        assert world.build(0).train.turns == turns, spec["kind"]


def test_the_recipe_page_is_what_the_settings_say() -> None:
    assert recipe_page.PAGE.read_text() == recipe_page.page(), "run: python -m benchmarks.recipe_page"


@pytest.mark.parametrize(("place", "model"), recipe_page.SECTIONS)
def test_every_field_of_a_recipe_has_a_meaning(place: str, model: type) -> None:
    _, meanings = recipe_page.described(model)
    assert set(meanings) == set(recipe_page.fields(model))
    assert all(meanings.values())


def test_groups_of_settings_are_found_wherever_they_stand() -> None:
    places = {model.__name__: place for place, model in recipe_page.SECTIONS}
    assert places["LanguageRecipe"] == ""
    assert places["OptimiserSpec"] == "stages.NAME.optimiser"
    assert places["ThreadExecutorSpec"] == "episodes, where: threads"
    assert places["ByEntropy"] == "evaluation.support.by_entropy"
