"""OTC's efficiency of tool calls: what it remembers, what it refuses, and where its calls come from."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import recipe

from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.methods.otc import CallCosine, CallPricedReward, FewestCalls, otc
from polopt.rewards import KLPenalty
from polopt.training.launch import train


def rows(calls: list[float], right: list[float], index: list[int]) -> Experience:
    return Experience(
        mask=torch.ones(len(calls), 1, dtype=torch.bool),
        outcome=torch.tensor(right, dtype=torch.float64),
        group=torch.tensor(index),
        extras={"signal_calls": torch.tensor(calls, dtype=torch.float64), "index": torch.tensor(index)},
    )


def test_the_fewest_calls_are_kept_in_training_alone() -> None:
    part = FewestCalls()
    part.eval()
    part(rows([1, 2], [1, 1], [5, 5]))
    assert len(part.table.column("fewest")) == 0 or part.table.column("fewest").isinf().all()
    part.train()
    part(rows([3, 1, 2, 9], [1, 0, 1, 0], [5, 5, 5, 2]))
    assert part.table.column("fewest").tolist() == [math.inf] * 5 + [2.0]  # the wrong answer's one call does not count
    (later,) = part(rows([4], [1], [5])).tolist()
    assert later == pytest.approx(math.sin(math.pi * 4 / 6))
    (alone,) = part.but(among="group")(rows([4], [1], [5])).tolist()
    assert alone == pytest.approx(1.0)


def test_what_is_remembered_is_in_a_checkpoint() -> None:
    part, other = FewestCalls(), FewestCalls()
    part.train()
    part(rows([3, 1], [1, 1], [4, 1]))
    other.load_state_dict(copy.deepcopy(part.state_dict()))
    assert other.table.column("fewest").tolist() == [math.inf, 1, math.inf, math.inf, 3]
    other.train()
    other(rows([2], [1], [6]))
    assert other.table.column("fewest").tolist() == [math.inf, 1, math.inf, math.inf, 3, math.inf, 2]


def test_a_prompt_without_a_right_answer_has_no_reward() -> None:
    batch = rows([0, 2, 3], [0, 0, 0], [0, 0, 0])
    assert otc().reward(batch).tolist() == [0, 0, 0]
    assert FewestCalls()(batch).tolist() == [1, 1, 1]


def test_the_form_without_a_group() -> None:
    found = CallPricedReward(efficiency=CallCosine(c=2.0), weight=3.0)(rows([0, 1, 5], [1, 1, 0], [0, 1, 2]))
    assert found.tolist() == pytest.approx([3.0, 3 * math.cos(math.pi / 4), 0.0])


def test_rewards_of_decisions_have_the_factor_of_their_row() -> None:
    batch = rows([1, 2], [1, 1], [0, 0]).replace(extras={"row_reward": torch.zeros(2, dtype=torch.float64)})
    found = CallPricedReward(reward=KLPenalty(), efficiency=FewestCalls())(
        batch.replace(
            rollout_logp=torch.tensor([[-1.0], [-1.0]]).double(), ref_logp=torch.tensor([[-2.0], [-2.0]]).double()
        )
    )
    assert found[:, 0].tolist() == pytest.approx([found[0, 0].item(), found[0, 0].item() * math.sqrt(3) / 2])
    assert found[0, 0] != 0


@pytest.mark.parametrize("part", [CallCosine, FewestCalls])
def test_settings_without_meaning_are_refused(part: Any) -> None:
    with pytest.raises(ValueError, match=rf"methods.otc.{part.__name__}: c must be > 0, found 0"):
        part(c=0.0)


def test_tasks_without_tools_are_refused_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"signal_calls"):
        train(recipe(stages={"rl": {"method": "otc", "steps": 1, "rows": 8, "group": 4}}), tmp_path / "run")
