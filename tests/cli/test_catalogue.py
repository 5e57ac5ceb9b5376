"""polopt methods, show, diff, cite, claims."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import flat, polopt

import polopt as po
from polopt import catalogue
from polopt.method import Claim, Finding
from polopt.part import from_yaml


def test_methods_are_all_there_with_their_data() -> None:
    rows = json.loads(polopt("methods", "--json").stdout)
    assert [row["slug"] for row in rows] == po.slugs()
    grpo = next(row for row in rows if row["slug"] == "grpo")
    assert grpo["changes"] == po.find("grpo").changes
    assert grpo["paper"]["arxiv"] == "2402.03300"
    assert grpo["tier"] in ("proven", "faithful", "reading")
    assert grpo["claim"] == [claim.statement for claim in po.find("grpo").claims]
    table = polopt("methods").output
    assert all(any(line.startswith(slug) for line in table.splitlines()) for slug in po.slugs())


def test_show_tells_formula_settings_and_paper() -> None:
    output = polopt("show", "grpo").output
    m = po.find("grpo")
    for line in m.doc.splitlines():
        assert line.strip() in flat(output) or flat(line) in flat(output)
    for name, default in m.settings().items():
        assert f"{name} {default!r}" in flat(output)
    assert m.paper.title in flat(output)
    assert all(claim.name in output for claim in m.claims)


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
    """Give rloo claims that hold or fail as told; every other one is slow."""
    claims = [
        Claim(f"c{i}", f"Statement {i}.", "the mean", lambda h=h: Finding({"bias": 0.125}, "bias < 1", h), cost)
        for i, (h, cost) in enumerate(zip(holds, ("fast", "slow"), strict=False))
    ]
    changed = dataclasses.replace(po.find("rloo"), claims=claims)
    find = catalogue.find
    monkeypatch.setattr(catalogue, "find", lambda slug: changed if slug == "rloo" else find(slug))


def test_claims_that_hold_end_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, True)
    result = polopt("claims", "rloo")
    assert result.exit_code == 0
    for shown in ("Statement 0.", "bias 0.125", "bias < 1", "the mean", "holds", "2 of 2 claims hold"):
        assert shown in result.output


def test_a_failing_claim_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, False)
    result = polopt("claims", "rloo")
    assert result.exit_code == 1
    assert "1 of 2 claims hold" in result.output
    assert "Failing: rloo c1" in flat(result.output)
    assert polopt("claims", "rloo", "--fast").exit_code == 0  # the failing one is slow


def test_claims_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    with_claims(monkeypatch, True, False)
    rows = json.loads(polopt("claims", "rloo", "--json").stdout)
    assert [(row["name"], row["holds"], row["measured"]) for row in rows] == [
        ("c0", True, {"bias": 0.125}),
        ("c1", False, {"bias": 0.125}),
    ]
    assert {"slug", "statement", "criterion", "baseline", "seconds", "note"} <= rows[0].keys()


def test_version() -> None:
    assert polopt("--version").output == f"polopt {po.__version__}\n"


def test_without_typer_one_sentence_says_what_to_install() -> None:
    program = "import sys; sys.modules['typer'] = None; from polopt.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["The polopt command needs typer: pip install 'polopt[language]'"]
