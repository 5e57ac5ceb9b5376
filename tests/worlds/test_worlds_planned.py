"""A plan before the answers: no reward, no part of the task, and the task's own episodes after it."""

from __future__ import annotations

import pytest

from polopt.config import ConfigError
from polopt.worlds import EpisodeError, GuessNumber, PlannedTasks, build_tasks, signals_of

TASKS = PlannedTasks(GuessNumber(1, 9, turns=3, size=5))


def test_the_first_answer_is_a_plan_and_the_others_are_the_tasks_own() -> None:
    assert (TASKS.turns, signals_of(TASKS)) == (4, signals_of(TASKS.tasks))
    task = TASKS[2]
    assert task.prompt == f"{TASKS.tasks[2].prompt}\nFirst write a plan:"
    episode, plain = TASKS.episode(task), TASKS.tasks.episode(TASKS.tasks[2])
    with pytest.raises(EpisodeError, match="call reset"):
        episode.step("1")
    assert episode.reset() == task.prompt
    plain.reset()
    # A plan that would be the right answer is a plan.
    first = episode.step(plain.demonstrate() or "")
    assert (first.observation, first.reward, first.over) == ("Now follow the plan:", 0.0, False)
    while True:
        action = plain.demonstrate() or ""
        assert episode.demonstrate() == action
        step, own = episode.step(action), plain.step(action)
        assert step == own
        if step.over:
            break
    assert step.reward == 1.0
    with pytest.raises(EpisodeError, match="is over"):
        episode.step("1")
    assert episode.demonstrate() is None


def test_from_plain_data() -> None:
    split = build_tasks(
        {"kind": "with-plan", "of": {"kind": "guess-number", "high": 5}, "ask": "Plan.", "then": "Go."}, seed=0
    )
    assert split.heldout[0].prompt.endswith("\nPlan.")
    episode = split.train.episode(split.train[0])
    episode.reset()
    assert episode.step("any").observation == "Go."
    with pytest.raises(ConfigError, match="kind"):
        build_tasks({"kind": "with-plan", "of": {"kind": "nothing"}}, seed=0)
