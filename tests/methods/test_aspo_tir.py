"""ASPO's shift of early tool calls: where positions come from, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import recipe

from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.features.masks import LongerThan
from polopt.features.rows import DecisionCount
from polopt.methods.aspo_tir import EarlyCall, FirstCall
from polopt.training.launch import train
from polopt.worlds.protocol import Task
from polopt.worlds.tools import ToolEpisode, ToolSession


def rows(turns: list[list[int]], first: list[float], **others: Any) -> Experience:
    turn = torch.tensor(turns)
    return Experience(
        mask=turn >= 0,
        turn=turn,
        group=torch.zeros(len(turns), dtype=torch.long),
        outcome=torch.ones(len(turns)).double(),
        extras={"signal_first_call": torch.tensor(first)},
        **others,
    )


def test_a_position_is_the_end_of_the_turn_that_calls() -> None:
    found = FirstCall()(rows([[-1, 0, 0, 1, -1], [0, 1, 1, 2, 2], [0, 0, -1, -1, -1]], [0.0, 1.0, -1.0])).tolist()
    assert found[:2] == [2.0, 3.0]
    assert math.isnan(found[2])


def test_padding_and_other_groups_change_nothing() -> None:
    part = EarlyCall(delta=-1.0)
    (one, two), _ = part(rows([[0, 1, 1], [0, 1, -1]], [0.0, 1.0])).unbind(1)[:2]
    assert (float(one), float(two)) == pytest.approx((0.2, -0.2))  # 1 and 2 of lengths 3 and 2, around 1.5 and 2.5
    wider = rows([[-1, 0, 1, 1, -1], [-1, 0, 1, -1, -1], [0, 0, 0, 0, 0]], [0.0, 1.0, 0.0])
    wider = wider.replace(group=torch.tensor([0, 0, 1]))
    assert part(wider)[:, 1].tolist() == pytest.approx([0.2, -0.2, 0.0])


def test_its_slots_take_other_measures() -> None:
    part = EarlyCall(delta=-1.0, position=DecisionCount(), eligible=LongerThan(than=1))
    found = part(rows([[0, 0, 0], [0, -1, -1], [0, 0, -1]], [-1.0] * 3))
    assert found[:, 0].tolist() == pytest.approx([-0.2, 0.0, 0.2])


class Adds(ToolSession):
    """One tool, which adds."""

    def tools(self) -> dict[str, Any]:
        return {"add": lambda a, b: a + b}

    def score(self, answer: str) -> float:
        return 1.0


def test_worlds_with_tools_tell_the_first_call() -> None:
    """The number of the answer that calls first, -1 before; an answer that cannot be read is no call."""
    episode = ToolEpisode(Adds(), Task("1", "add", "1 + 2", "3", {}))
    call = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    for _ in range(2):  # a reset forgets it
        episode.reset()
        told = [episode.step(text).info["signals"]["first_call"] for text in ("<tool_call>", call, call, "3")]
        assert told == [-1.0, 1.0, 1.0, 1.0]


def test_tasks_without_tools_are_refused_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"signal_first_call"):
        train(recipe(stages={"rl": {"method": "aspo_tir", "steps": 1, "rows": 8, "group": 4}}), tmp_path / "run")
