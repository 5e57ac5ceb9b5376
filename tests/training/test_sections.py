"""Sections of answers in a language policy's batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_extend import source_of
from tiny_runs import DIGITS, recipe, training_of

from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.methods.hiper import SubgoalPenalty
from polopt.sampling.parts import RolloutRequest
from polopt.sections import ACTION, KEEP, SECTIONS, SUBGOAL, SWITCH
from polopt.training.run import Run
from polopt.worlds import GuessNumber, SubgoalTasks

WORLD = SubgoalTasks(GuessNumber(1, 9, turns=3, size=6), tags=("q", "g", "a"))


def test_each_decision_of_an_answer_has_its_section() -> None:
    source = source_of(limit=60, world=WORLD)
    batch = source.demonstrate(4)
    section, decode = batch.extras["section"], source.player.dialogue.text
    assert (section[~batch.mask] == -1).all()
    for row in range(len(batch)):
        for turn in batch.turn[row, batch.mask[row]].unique().tolist():
            here = batch.mask[row] & (batch.turn[row] == turn)
            said = {
                SECTIONS[part]: decode(batch.extras["tokens"][row, here & (section[row] == part)].tolist())
                for part in section[row, here].unique().tolist()
            }
            switch = {"keep": "<q>KEEP</q>"} if turn else {"switch": "<q>SWITCH</q>"}
            assert said.pop("action").startswith("<a>")
            assert said == {**switch, "subgoal": "<g>begin</g>"}
            assert section[row, here.nonzero()[-1]] == ACTION  # the stop token belongs to the action


def test_answers_that_are_cut_off_have_no_sections() -> None:
    source = source_of(limit=6, world=WORLD)
    batch = source.rollout(RolloutRequest(source.take(4), 2))
    assert batch.truncated.any()
    assert (batch.extras["section"] == -1).all()


def test_penalties_by_hand() -> None:
    """Turns: begins; keeps what it wrote; keeps and rewrites; switches; says nothing of a subgoal."""
    turns = [
        [(SWITCH, 1), (SUBGOAL, 5), (ACTION, 2)],
        [(KEEP, 1), (SUBGOAL, 5), (ACTION, 2)],
        [(KEEP, 1), (SUBGOAL, 6), (ACTION, 2)],
        [(SWITCH, 1), (SUBGOAL, 7), (ACTION, 2)],
        [(ACTION, 2)],
    ]
    flat = torch.tensor([(turn, *decision) for turn, decisions in enumerate(turns) for decision in decisions])
    turn, section, tokens = (column[None] for column in flat.unbind(1))
    width = len(flat)
    like = Experience(
        mask=torch.ones(1, width, dtype=torch.bool), turn=turn, extras={"section": section, "tokens": tokens}
    )
    paid = SubgoalPenalty(keep=0.25, rewritten=0.5)(like)[0]
    ends = [2, 5, 8, 11, 12]
    assert paid[ends].tolist() == [0.0, -0.25, -0.75, 0.0, -0.25]
    assert paid.count_nonzero() == 3


def test_tasks_without_sections_are_refused(tmp_path: Path) -> None:
    stages = {"rl": {"method": "hiper", "steps": 1, "rows": 8}}
    settings = recipe(stages=stages, tasks=DIGITS, limit=3)
    with pytest.raises(ConfigError, match=r"stages\.rl: .*with-subgoals"):
        training_of(settings, Run.create(tmp_path, settings.to_yaml(), {}))
