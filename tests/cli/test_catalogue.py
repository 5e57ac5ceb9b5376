"""polopt methods, show, diff, cite, claims, recipes: right, and without torch where none is needed."""

import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import flat, polopt
from rich.console import Console

import polopt as po
from polopt import catalogue, evidence, index, recipes
from polopt.claim import Claim, Finding, Mutation
from polopt.cli import wording
from polopt.cli.catalogue import show_methods
from polopt.cli.recipes import rows as recipe_rows
from polopt.method import TIERS
from polopt.part import from_yaml
from polopt.training.recipe import load, name_of_method


def test_methods_are_all_there_with_their_data() -> None:
    rows = json.loads(polopt("methods", "--json").stdout)
    assert [row["slug"] for row in rows] == po.slugs()
    grpo = next(row for row in rows if row["slug"] == "grpo")
    assert grpo["changes"] == po.find("grpo").changes
    assert grpo["paper"]["arxiv"] == "2402.03300"
    assert grpo["tier"] in ("proven", "faithful", "reading")
    assert grpo["claim"] == [claim.statement for claim in catalogue.claims_of("grpo")]
    table = polopt("methods").output.splitlines()
    assert [line.split()[0] for line in table] == po.slugs()  # one line each, whatever its length
    assert all(line.endswith(po.find(slug).changes) for line, slug in zip(table, po.slugs(), strict=True))


def test_methods_are_filtered() -> None:
    found = polopt("methods", "--filter", "clip WHOLE").output.splitlines()
    assert "gspo" in [line.split()[0] for line in found]
    for line in found:
        m = po.find(line.split()[0])
        assert all(word in f"{m.slug} {m.paper.title} {m.changes} {m.tier}".lower() for word in ("clip", "whole"))
    rows = json.loads(polopt("methods", "--room", "rewards", "--tier", "reading", "--json").stdout)
    assert [row["slug"] for row in rows] == [
        m.slug for m in map(po.find, po.slugs()) if (m.room, m.tier) == ("rewards", "reading")
    ]
    assert {row["room"] for row in rows} == {"rewards"}
    assert polopt("methods", "--filter", "nosuchword").output == ""
    assert "give one of proven, faithful, reading" in flat(polopt("methods", "--tier", "sure").stderr)
    assert "give one of sampling, rewards, credit, objectives" in flat(polopt("methods", "--room", "policies").stderr)


@pytest.mark.parametrize("width", [70, 200])
def test_on_a_terminal_methods_fill_the_width_and_tiers_are_explained(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show_methods(console, index.entries())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    if width == 200:
        assert sum(line.split()[0] in po.slugs() for line in lines if line and not line.startswith(" ")) == len(
            po.slugs()
        )
    for tier, meaning in TIERS.items():
        assert f"{tier}: {meaning}" in flat(" ".join(lines))


def test_columns_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "47")
    assert wording.screen().width == 47
    monkeypatch.delenv("COLUMNS")
    assert wording.screen().width == wording.WIDE


def test_show_tells_formula_settings_and_paper() -> None:
    output = polopt("show", "grpo").output
    m = po.find("grpo")
    for line in m.doc.splitlines():
        assert line.strip() in flat(output) or flat(line) in flat(output)
    for name, default in m.settings().items():
        assert f"{name} {default!r}" in flat(output)
    assert m.paper.title in flat(output)
    assert all(claim.name in output for claim in catalogue.claims_of("grpo"))


def test_show_has_every_setting_of_the_sentence() -> None:
    output = flat(polopt("show", "grpo").output)
    assert "ratio objectives.TokenRatio()" in output
    assert "trust objectives.Clip(low=0.2, high=0.2, dual=None)" in output
    assert "regularise.0 objectives.ReferenceKL(coefficient=0.04," in output


def test_show_as_yaml_builds_the_method() -> None:
    assert po.diff(from_yaml(polopt("show", "gspo", "--yaml").stdout), po.method("gspo")) == []


def test_diff_names_what_differs_and_nothing_else() -> None:
    output = polopt("diff", "grpo", "dr-grpo").output
    paths = [path for path, _, _ in po.diff(po.method("grpo"), po.method("dr-grpo"))]
    shown = [line.split()[0] for line in output.splitlines()[1:] if line and not line.startswith(" ")]
    assert shown == paths
    assert "are the same" in polopt("diff", "grpo", "GRPO").output


def test_diff_reads_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(po.method("grpo", clip=0.1).to_yaml())
    (tmp_path / "own.py").write_text('import polopt\n\ndef build():\n    return polopt.method("grpo", clip=0.1)\n')
    own = f"{tmp_path / 'own.py'}:build"
    assert "are the same" in flat(polopt("diff", tmp_path / "a.yaml", own).output)
    output = polopt("diff", "grpo", own).output
    assert "objective.trust.low" in output
    assert "objective.trust.high" in output


def test_diff_of_recipes(tmp_path: Path, recipe: Path) -> None:
    (tmp_path / "b.yaml").write_text(recipe.read_text().replace("limit: 4", "limit: 5").replace("steps: 3", "steps: 9"))
    output = polopt("diff", recipe, tmp_path / "b.yaml").output
    body = output[output.index("limit") :].splitlines()  # below the names, which may take several lines
    assert [line.split() for line in body] == [["limit", "4", "5"], ["stages.warmup.steps", "3", "9"]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "gropo"], "there is no method 'gropo'; did you mean 'grpo'?"),
        (["cite", "rlooo"], "did you mean 'rloo'?"),
        (["claims", "gsop"], "did you mean 'gspo'?"),
        (["show", "cpo"], "there is no method 'cpo': it is not here yet; `dpo`, `ipo` and `simpo` learn from pairs"),
        (["show", "reinforce++"], "there is no method 'reinforce++': it is not here by name; `grpo` has its advantage"),
        (["show", "xyzzy"], "there is no method 'xyzzy'; `polopt methods` lists all"),
        (["recipes", "labtop"], "there is no recipe 'labtop'; did you mean 'laptop'?"),
        (["diff", "grpo", "nowhere.yaml"], "nowhere.yaml does not exist"),
        (["diff", "grpo", "nowhere.py:build"], "nowhere.py does not exist"),
    ],
)
def test_wrong_names_get_one_sentence(arguments: list[str], sentence: str) -> None:
    result = polopt(*arguments)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
    assert len(result.stderr.splitlines()) == 1


def test_cite_gives_every_paper_once_asked() -> None:
    output = polopt("cite", "grpo", "dr_grpo").output
    assert output.count("@misc{") == 2
    assert "@misc{dr-grpo," in output
    assert "2402.03300" in output


def with_claims(monkeypatch: pytest.MonkeyPatch, *holds: bool) -> None:
    """Give rloo claims that hold or fail, in this process; every other one is slow."""
    claims = [
        Claim(f"c{i}", f"Statement {i}.", kind, "the mean", lambda h=h: Finding({"bias": 0.125}, "bias < 1", h), cost)
        for i, (h, cost, kind) in enumerate(zip(holds, ("fast", "slow"), ("headline", "identity"), strict=False))
    ]
    monkeypatch.setattr(evidence, "claims_of", {"rloo": claims}.__getitem__)
    monkeypatch.setattr(evidence, "run_alone", lambda run: evidence.run_claim((run.slug, run.claim)))


def test_claims_that_hold_end_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, True)
    result = polopt("claims", "rloo")
    assert result.exit_code == 0
    for shown in ("Statement 0.", "bias 0.125", "bias < 1", "the mean", "holds", "headline"):
        assert shown in result.output
    assert "1 of 1 headline effects and 1 of 1 other claims hold" in flat(result.output)


def test_a_failing_claim_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, False)
    result = polopt("claims", "rloo")
    assert result.exit_code == 1
    assert "1 of 1 headline effects and 0 of 1 other claims hold" in flat(result.output)
    assert "Failing: rloo c1" in flat(result.output)
    assert polopt("claims", "rloo", "--fast").exit_code == 0  # the failing one is slow


def test_claims_on_several_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, True)

    def on_one_seed(run: evidence.ClaimRun) -> evidence.ClaimResult:
        found = dataclasses.replace(evidence.run_claim((run.slug, run.claim)), seed=run.seed)
        return dataclasses.replace(found, holds=run.claim == "c0" or run.seed == 7, measured={"bias": run.seed / 8})

    monkeypatch.setattr(evidence, "run_alone", on_one_seed)
    result = polopt("claims", "rloo", "--seeds", 5, "--first-seed", 4)
    assert result.exit_code == 1
    assert "holds on 5 of 5 seeds" in result.output
    assert "holds on 1 of 5 seeds" in result.output
    # The mean of 4/8 to 8/8, and Student's interval: 2.776 sqrt(2.5 / 5) / 8 on both sides.
    assert "bias 0.75 (0.5046 to 0.9954)" in flat(result.output)
    assert "1 of 1 headline effects and 0 of 1 other claims hold on 5 seeds of 5" in flat(result.output)
    rows = json.loads(polopt("claims", "rloo", "--seeds", 5, "--first-seed", 4, "--json").stdout)
    assert [(r["held"], r["runs"], r["holds"]) for r in rows] == [(5, 5, True), (1, 5, False)]
    assert [r["measured"] for r in rows] == [{"bias": 0.75}] * 2


def test_planted_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, True)
    claim = evidence.claims_of("rloo")[0]
    bugs = [Mutation(name, "A bug.", claim, lambda replace: None) for name in ("seen", "unseen")]
    monkeypatch.setattr(evidence, "mutations_of", {"rloo": bugs}.__getitem__)

    def planted(run: evidence.ClaimRun) -> evidence.ClaimResult:
        found = evidence.run_claim((run.slug, run.claim))
        return dataclasses.replace(found, mutation=run.mutation, holds=run.mutation == "unseen")

    monkeypatch.setattr(evidence, "run_alone", planted)
    result = polopt("claims", "rloo", "--mutations")
    assert result.exit_code == 1
    assert "rloo seen noticed by c0" in flat(result.output)
    assert "rloo unseen not noticed by c0" in flat(result.output)
    assert "1 of 2 planted bugs are noticed" in flat(result.output)
    assert "Failing: rloo unseen" in flat(result.output)


def test_claims_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, False)
    rows = json.loads(polopt("claims", "rloo", "--json").stdout)
    assert [(row["name"], row["holds"], row["measured"]) for row in rows] == [
        ("c0", True, {"bias": 0.125}),
        ("c1", False, {"bias": 0.125}),
    ]
    assert [row["kind"] for row in rows] == ["headline", "identity"]
    assert {"slug", "statement", "criterion", "baseline", "seconds", "note"} <= rows[0].keys()


def test_recipes_lists_what_they_hold_and_prints_one() -> None:
    output = flat(polopt("recipes").output)
    for name, (_, stages, tasks) in zip(recipes.names(), recipe_rows(), strict=True):
        found = load(name)
        held = ", ".join(f"{k} ({name_of_method(s.method)}, {s.steps} steps)" for k, s in found.stages.items())
        assert stages == held
        where = {"language": "tasks", "control": "environment", "generative": "points"}[found.kind]
        known = getattr(found, where)
        learned_from = known if isinstance(known, dict) else known.model_dump()
        assert tasks.startswith(next(learned_from[name] for name in ("kind", "id", "name") if name in learned_from))
        assert name in output
    assert polopt("recipes", "laptop").stdout == recipes.path("laptop").read_text()


def test_no_torch_before_a_command_needs_it() -> None:
    """Help, version, lists and completions; in one process, as each of them alone starts in a moment."""
    program = """
import sys
from typer.testing import CliRunner
from polopt.cli.app import app
from polopt.cli import wording
for line in ("--version", "--help", "methods", "methods --json", "show gspo", "cite gspo", "recipes", "recipes smoke",
             "show bco", "train --help", "plan --help", "check --help", "compare --help"):
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == (2 if "bco" in line else 0), (line, result.output)
    assert not {"torch", "numpy", "transformers"} & set(sys.modules), line
assert wording.complete_method("gsp") == ["gspo"] and "smoke" in wording.complete_recipe("sm")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_completion_can_be_installed() -> None:
    assert "--install-completion" in polopt("--help").output


def test_version() -> None:
    assert polopt("--version").output == f"polopt {po.__version__}\n"


def test_without_typer_one_sentence_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; from polopt.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["The polopt command needs typer: pip install 'polopt[language]'"]
