"""Every method of the catalogue trains a tiny policy, by its own defaults, or is refused at the door for what it reads;
a new one joins by being there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import DIGITS, lines, recipe, training_of

from polopt import catalogue, index
from polopt.config import ConfigError
from polopt.training.provided import LANGUAGE, SIGNAL
from polopt.training.run import Run

# What the tiny policy, of one layer and 64 positions, has no room for.
SMALL: dict[str, dict[str, Any]] = {
    # Tasks without tools, where an answer's tokens stand for the place of its call.
    "aspo-tir": {"but": {"credit.plus.position": {"part": "features.DecisionCount"}}, "tasks": DIGITS, "limit": 3},
    "bupo": {"layer": 1, "batches": 1},
    # Tasks without forms, where the length stands for them, which differs in every group; of two kinds in turn.
    "craft-gui": {
        "but": {
            "reward.terms": [{"part": "rewards.OutcomeReward"}, {"part": "rewards.LinearLength", "rows": "all"}],
            "sampling.choice.batches": 1,
        },
        "tasks": {"kind": "chains", "steps": [1, 2], "letters": 2, "train": 500, "heldout": 20},
        "limit": 4,
    },
    "gui-r1": {"but": {"reward.terms": [{"part": "rewards.OutcomeReward"}] * 2}, "tasks": DIGITS, "limit": 3},
    # What reads four blocks of the answer pays nothing to a policy that writes none.
    "gtalign": {"blocks": False},
    # Answers name the subgoal of their action.
    "hiper": {"tasks": {"kind": "with-subgoals", "of": DIGITS, "ask": "="}, "limit": 3},
    # Tasks without forms, for which the length stands.
    "mobile-r1": {
        "but": {"reward.terms": [{"part": "rewards.OutcomeReward"}, {"part": "rewards.LinearLength", "rows": "all"}]},
        "tasks": DIGITS,
        "limit": 3,
    },
    # Of 90 possible tokens none is as likely as its default asks of a branch.
    "latr": {"least": 0.02},
    # Tasks without tools, where an answer's tokens stand for its calls.
    "otc": {"but": {"reward.efficiency.calls": {"part": "features.DecisionCount"}}, "tasks": DIGITS, "limit": 3},
    "policyrollout": {"rules": " 2 4 6 8"},
    # Its tasks tell what a second policy makes of an answer.
    "refcritic": {"tasks": {"kind": "critic", "steps": 1, "train": 500, "heldout": 20}, "limit": 10},
    "reseek": {"but": {"reward.terms": [{"part": "rewards.OutcomeReward"}] * 4}, "tasks": DIGITS, "limit": 3},
    "rex-rag": {"texts": ["2", "4"]},
    # Its tasks name the function that a unit test is for, and its answers are longer.
    "tapo-tool": {"but": {"reward.terms": [{"part": "rewards.OutcomeReward"}]}, "tasks": DIGITS, "limit": 3},
    "rlsqm": {"tasks": {"kind": "unit-tests", "train": 500, "heldout": 20}, "limit": 40},
    "sdpo": {"but": {"teacher.hint.wording": " as {answer}"}},
    "srpo-routing": {"but": {"teacher.hint.wording": " as {answer}"}},
}

# Frozen policies that the stage names, for methods that compare with them.
NAMED = {"aligndistil": ("dpo", "reverse"), "rto": ("dpo",), "salsa": ("soup",), "tgdpo": ("guide",)}

# Tasks that tell signals beside the reward, for methods that read some.
TOLD = {
    "kind": "noisy",
    "of": {"kind": "chains", "steps": [1, 2], "letters": 2, "train": 500, "heldout": 20},
    "missed": 0.2,
}


def pairs_in(folder: Path) -> dict[str, Any]:
    """A world of pairs, for methods that compare a preferred answer with a rejected one."""
    rows = [{"prompt": f"even {i} ", "chosen": str(2 * (i % 5)), "rejected": str(2 * (i % 5) + 1)} for i in range(60)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "pairs", "path": str(folder / "pairs.jsonl"), "heldout": 0.2}


Warmed = Callable[[dict[str, Any], str], Path]


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Warmed:
    """The folder of the policy that demonstrations of a world make, trained once: its answers end, reach the world and
    differ in reward."""
    stages = {"warmup": {"method": "sft", "steps": 15, "rows": 16, "optimiser": {"lr": 0.03}}}
    made: dict[str, Path] = {}

    def policy(world: dict[str, Any], dtype: str) -> Path:
        if (key := json.dumps([world, dtype])) not in made:
            folder = tmp_path_factory.mktemp("warmed")
            settings = recipe(stages=stages, evaluation={"problems": 4}, checkpoint=100, **world)
            settings = settings.model_copy(update={"policy": settings.policy.model_copy(update={"dtype": dtype})})
            training_of(settings, Run.create(folder, settings.to_yaml(), {})).run()
            made[key] = folder / "policy"
        return made[key]

    return policy


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return pairs_in(tmp_path_factory.mktemp("pairs"))


SLUGS = index.slugs("algorithm")


# Of float64 one method in six: the battery shows for every part that it keeps the dtype.
@pytest.mark.parametrize(("slug", "dtype"), [*((s, "float32") for s in SLUGS), *((s, "float64") for s in SLUGS[::6])])
def test_two_steps(slug: str, dtype: str, warmed: Warmed, pairs: dict[str, Any], tmp_path: Path) -> None:
    own: dict[str, Any] = dict(SMALL.get(slug, {}))
    world = {key: own.pop(key) for key in ("tasks", "limit") if key in own}
    if any(name.startswith(SIGNAL) for name in catalogue.method(slug).required_fields):
        world = {"tasks": TOLD, "limit": 4} | world
    if any({"pairs", "rated"} & part.source_capabilities for part in catalogue.method(slug).parts()):
        world = {"tasks": pairs} | world
    method = {"but": own.pop("but", {}), "method": {"name": slug, **own}}
    minibatches = 2 if catalogue.method(slug).minibatch is None else 1
    stages = {"method": {**method, "steps": 2, "rows": 16, "group": 8, "minibatches": minibatches, "micro_rows": 5}}
    policy = {"model": str(warmed(world, dtype)), "dtype": dtype}
    if slug in NAMED:
        stages["method"]["policies"] = {name: {"model": policy["model"]} for name in NAMED[slug]}
    settings = recipe(stages=stages, policy=policy, evaluation={"problems": 4}, checkpoint=100, **world)
    # What is for other policies is refused before anything runs.
    if slug not in NAMED and LANGUAGE.lacking(catalogue.method(slug)):
        with pytest.raises(ConfigError, match=r"stages\.method: .* cannot provide"):
            training_of(settings, Run.create(tmp_path, settings.to_yaml(), {}))
        return
    training = training_of(settings, Run.create(tmp_path, settings.to_yaml(), {}))
    weights = dict(training.domain.policy.named_parameters())
    before = {name: p.detach().clone() for name, p in weights.items()}
    training.run()
    steps = lines(tmp_path, "metrics")
    assert len(steps) == 2
    for record in steps:
        numbers = [v for v in record.values() if isinstance(v, float)]
        assert all(math.isfinite(v) for v in numbers), record
    assert weights.keys() == dict(training.domain.policy.named_parameters()).keys()
    assert all(p.isfinite().all() and p.dtype == getattr(torch, dtype) for p in weights.values())
    # It moved: the policy is no longer what the warm-up left.
    assert any(not torch.equal(p, before[name]) for name, p in weights.items())
