"""Rules beside a control policy: in evaluations, comparisons, reports and `polopt evaluate`; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cli.command import flat, polopt

from polopt.config import ConfigError
from polopt.report import write_report
from polopt.training import compare as comparing
from polopt.training import recipe as recipes
from polopt.training.control.domain import ControlDomain
from polopt.training.launch import train
from polopt.worlds.control import ConstantMortality, Fishery, FisheryOptimum, episode_returns

RULES: dict[str, Any] = {
    "mortality": {"part": "polopt.worlds.control:ConstantMortality", "fraction": 0.25},
    "optimum": {"part": "polopt.worlds.control:FisheryOptimum"},
}
RECIPE: dict[str, Any] = {
    "kind": "control",
    "environment": {"id": "polopt/Fishery-v0", "settings": {"species": 1, "horizon": 20}},
    "policy": {"hidden": [8], "head": "beta"},
    "stages": {"rl": {"method": {"name": "pretty-darn-good-control", "steps": 10}, "steps": 1, "rows": 8}},
    "evaluation": {"problems": 16, "rules": RULES},
}


def program(gains: list[list[float]]) -> dict[str, Any]:
    return {
        "part": "polopt.worlds.control:ProgramRule",
        "program": {"part": "networks.LinearProgram", "gains": gains},
    }


def recipe(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(RECIPE | changes))
    return path.rename(tmp_path / "recipe.yaml")  # JSON is YAML


def test_a_run_plays_its_rules(tmp_path: Path) -> None:
    """The score is that of the rule played by itself, with the evaluation's seed; the page and the command have it."""
    run = train(recipe(tmp_path), tmp_path / "run")
    for record in run.read("evaluations"):
        assert set(record["rules"]) == {"mortality", "optimum"}
    world = Fishery(16, species=1, horizon=20)
    seed = recipes.load(run.recipe).seed_of("evaluation", record["step"]) % 2**31
    alone = episode_returns(world, ConstantMortality(fraction=0.25), seed)
    assert record["rules"]["mortality"]["returns"] == pytest.approx(alone.tolist(), rel=1e-5)
    assert record["rules"]["optimum"]["return"]["estimate"] > record["return"]["estimate"]
    assert "Is it better than rules?" in write_report(run.folder).read_text()
    found = json.loads(polopt("evaluate", str(run.folder), "--problems", "32", "--json").stdout)
    assert found["problems"] == found["rules"]["optimum"]["problems"] == 32
    printed = polopt("evaluate", str(run.folder)).output
    assert "optimum" in printed
    assert "against the policy" in printed
    assert "leave it out" in flat(polopt("evaluate", str(run.folder), "--samples", "2").output)


def test_a_comparison_has_the_rules() -> None:
    """By seed, those beside the first method, of full evaluations of the last stage alone."""

    def trial(name: str, seed: int) -> Any:
        def record(step: int, value: float, stage: str = "rl") -> dict[str, Any]:
            score = {"return": {"estimate": value, "unit": "return"}}
            return {"stage": stage, "step": step, "return": score["return"], "rules": {"optimum": score, "b": score}}

        log = [record(0, -1.0, "first"), record(0, seed), {"stage": "rl", "step": 1}, record(2, 10.0 + seed)]
        read = SimpleNamespace(read=lambda name: log)
        return SimpleNamespace(name=name, seed=seed, recipe=SimpleNamespace(main_stage="rl"), run=read)

    found = comparing._rules([trial("a", 0), trial("b", 0), trial("a", 1), trial("b", 1)], ["a", "b"])
    assert [m.name for m in found] == ["optimum", "rule b"]
    assert found[0].seeds == [0, 1]
    assert found[0].final == [10.0, 11.0]
    assert found[0].curves[1] == [(0, 1.0), (2, 11.0)]


def test_a_quick_evaluation_leaves_rules_out(tmp_path: Path) -> None:
    domain = ControlDomain(recipes.load(recipe(tmp_path)))  # type: ignore[arg-type]
    assert domain.score("rl", 4, 0).rules == {}
    assert set(domain.score("rl", 16, 0).rules) == {"mortality", "optimum"}
    domain.close()


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"part": "polopt.worlds.control:MirrorLaw"}, "MirrorLaw is for Juggling, and the environment is a Fishery"),
        ({"part": "polopt.worlds.control:ConstantMortalty"}, "has no 'ConstantMortalty'; did you mean"),
        ({"part": "credit.GAE"}, "give a part that is a rule"),
        ({"part": "polopt.worlds.control:ConstantMortality", "fractions": 1}, "no setting 'fractions'"),
        (program([[1.0, 2.0]]), "gains has rows of 2 numbers, and an observation has 1"),
        (program([[1.0], [2.0]]), "LinearProgram must return vectors of the environment's actions"),
    ],
)
def test_other_rules_are_refused_at_the_door(rule: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.rules\.r: ") as caught:
        ControlDomain(recipes.load(recipe(tmp_path, evaluation={"rules": {"r": rule}})))  # type: ignore[arg-type]
    assert sentence.partition(";")[0] in str(caught.value)


def test_a_recipe_without_rules_is_written_as_before(tmp_path: Path) -> None:
    assert "rules" not in recipes.load(recipe(tmp_path, evaluation={"problems": 4})).to_yaml()
    text = recipes.load(recipe(tmp_path)).to_yaml()
    (tmp_path / "again.yaml").write_text(text)
    assert recipes.load(tmp_path / "again.yaml").to_yaml() == text


class Unprepared(ConstantMortality):
    """A rule that cannot be prepared."""

    def prepare(self, world: Any) -> Any:
        raise ValueError("no such fish")


def test_a_rule_that_cannot_be_prepared_is_named(tmp_path: Path) -> None:
    rule = {"part": "test_rules:Unprepared", "fraction": 0.1}
    domain = ControlDomain(recipes.load(recipe(tmp_path, evaluation={"problems": 2, "rules": {"r": rule}})))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"evaluation\.rules\.r: no such fish"):
        domain.score("rl", 2, 0)
    domain.close()


def test_an_optimum_must_be_prepared() -> None:
    with pytest.raises(ValueError, match="prepare it"):
        FisheryOptimum()(torch.zeros(1, 1), torch.Generator())
