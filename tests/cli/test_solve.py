"""polopt solve, and what the other commands say of solvers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import flat, polopt

import polopt as po
from polopt import index


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_game_is_solved_in_a_run() -> None:
    result = polopt("solve", "cfr-plus", "kuhn-poker", "--steps", "40", "--run", "runs/kuhn")
    assert result.exit_code == 0, result.output
    assert "cfr-plus on kuhn-poker after 40 iterations: exploitability" in result.output
    last = json.loads(Path("runs/kuhn/metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 40
    assert last["unit"] == "chips"
    assert 0 < last["exploitability"] < 0.05
    table = json.loads(Path("runs/kuhn/solution.json").read_text())
    assert len(table) == 12
    assert all(sum(actions.values()) == pytest.approx(1) for actions in table.values())
    assert table["1: 2 bet"]["bet"] > 0.9  # a king calls
    again = polopt("solve", "cfr-plus", "kuhn-poker", "--steps", "40", "--run", "runs/kuhn")
    assert "has finished already: nothing was solved" in again.output
    page = Path("runs/kuhn/report.html").read_text()
    assert "exploitability, chips" in page
    assert "held-out evaluation" not in page
    longer = polopt("solve", "cfr-plus", "kuhn-poker", "--steps", "50", "--run", "runs/kuhn")
    assert "Continued after 40 of 50 iterations" in longer.output


def test_a_folder_is_found_where_none_is_named() -> None:
    for _ in range(2):
        polopt("solve", "{name: cfr, alternating: true}", "{name: kuhn-poker, ranks: 4}", "--steps", "2")
    assert sorted(p.name for p in Path("runs").iterdir()) == ["cfr-kuhn-poker-1", "cfr-kuhn-poker-2"]
    assert "alternating: true" in Path("runs/cfr-kuhn-poker-1/recipe.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cfr", "kuhn"], "there is no problem 'kuhn'"),
        (["grpo", "kuhn-poker"], "'grpo' is an algorithm, expected a solver; run it as polopt train --method grpo"),
        (["cfr", "kuhn-poker", "--steps", "0"], "--steps 0: give a number of iterations of at least 1"),
        (["cfr", "{ranks: 3}"], "PROBLEM '{ranks: 3}': give a name"),
        (["cfr", "kuhn-poker", "--set", "method.delay=3"], "method 'cfr' has no setting 'delay'"),
    ],
)
def test_mistakes_get_one_sentence(arguments: list[str], sentence: str) -> None:
    result = polopt("solve", *arguments)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
    assert not Path("runs").exists()


def test_other_commands_say_what_a_solver_is() -> None:
    assert "polopt solve cfr PROBLEM" in flat(polopt("train", "--method", "cfr").stderr)
    assert "'cfr' is a solver, expected an algorithm" in flat(polopt("bridges", "cfr").stderr)
    shown = flat(polopt("show", "cfr-plus").output)
    assert "It is a solver; run it as polopt solve cfr-plus PROBLEM" in shown
    assert "PositiveRegretSum" in shown
    assert po.from_yaml(polopt("show", "cfr", "--yaml").stdout).method_kind == "solver"
    assert "accumulate" in polopt("diff", "cfr", "cfr-plus").output
    assert "all of it" in polopt("diff", "cfr", "grpo").output
    assert "Tammelin" in polopt("cite", "cfr-plus").output
    rows = json.loads(polopt("methods", "--kind", "solver", "--json").stdout)
    assert [row["slug"] for row in rows] == po.slugs("solver")
    assert "give one of algorithm, metric" in flat(polopt("methods", "--kind", "solvers").stderr)
    assert polopt("check", "cfr").exit_code == 0


def test_a_solvers_run_holds_no_policy() -> None:
    polopt("solve", "cfr", "kuhn-poker", "--steps", "2", "--run", "run")
    assert "and no policy" in flat(polopt("evaluate", "run").stderr)
    assert "which `polopt solve` runs, and holds no policy" in flat(polopt("train", "--resume", "run").stderr)


def test_kinds_are_what_methods_build() -> None:
    assert {"cfr", "cfr-plus"} <= set(po.slugs("solver"))
    assert sorted(s for kind in ("algorithm", "solver", "metric", "guard") for s in po.slugs(kind)) == (po.slugs())
    assert index.entry("grpo").kind == "algorithm"
    with pytest.raises(ValueError, match="kind must be one of algorithm, metric"):
        po.slugs("judge")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="'cfr' is a solver, expected an algorithm; run it as polopt solve cfr PROBLEM"
    ):
        po.method("cfr")
    with pytest.raises(ValueError, match="'grpo' is an algorithm, expected a solver"):
        po.solver("grpo")


def test_a_builder_must_say_what_it_builds() -> None:
    from polopt.method import Paper, method

    paper = Paper("A", "B", 2026)

    @method(paper=paper, changes="", room="solvers", tier="reading")
    def silent():  # type: ignore[no-untyped-def]
        return po.Algorithm()

    @method(paper=paper, changes="", room="solvers", tier="reading")
    def part() -> po.credit.Credit:
        return po.credit.RelativeAdvantage()

    for wrong in (silent, part):
        with pytest.raises(
            TypeError, match="must be declared to return a part with a method_kind of algorithm, metric"
        ):
            _ = wrong.kind


def test_own_functions_may_build_solvers() -> None:
    from polopt import catalogue
    from polopt.solvers import Solver

    Path("own.py").write_text(
        "from polopt.solvers import RegretMinimizer\ndef build(alternating: bool = True):\n"
        "    return RegretMinimizer(alternating=alternating)\ndef other():\n    return 3\n"
    )
    assert catalogue.specified(Solver, {"name": "own.py:build", "alternating": False}).method_kind == "solver"
    with pytest.raises(ValueError, match=r"'own\.py:build' is a solver, expected an algorithm"):
        catalogue.sentence("own.py:build")
    with pytest.raises(ValueError, match="returned 3, expected an Algorithm"):
        catalogue.sentence("own.py:other")
    assert polopt("solve", "own.py:build", "kuhn-poker", "--steps", "3", "--run", "run").exit_code == 0
    assert (Path("run") / "code" / "own.py").is_file()
