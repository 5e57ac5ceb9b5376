"""Guess the number: best play wins in time, and the end of the turns is a truncation."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polopt.worlds import EpisodeError, GuessNumber, Tasks


def play(tasks: GuessNumber, number: int, actions: list[str] | None = None) -> list:
    task = next(t for t in (tasks[i] for i in range(len(tasks))) if t.row["number"] == number)
    episode = tasks.episode(task)
    assert episode.reset() == task.prompt
    steps = []
    while not steps or not steps[-1].over:
        action = actions.pop(0) if actions is not None else episode.demonstrate()
        steps.append(episode.step(action))
    return steps


@given(low=st.integers(-1000, 1000), width=st.integers(0, 300), data=st.data())
@settings(max_examples=60, deadline=None)
def test_bisection_wins_within_the_turns_that_information_allows(low: int, width: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(low, low + width))
    turns = math.ceil(math.log2(width + 2))
    steps = play(GuessNumber(low, low + width, turns, size=1, hidden=[number]), number)
    assert len(steps) <= turns
    assert [s.reward for s in steps] == [0.0] * (len(steps) - 1) + [1.0]
    assert steps[-1].terminated
    assert not any(s.truncated for s in steps)


def test_one_turn_fewer_is_not_enough_for_every_number() -> None:
    won = [play(GuessNumber(1, 100, 6, size=1, hidden=[n]), n)[-1].terminated for n in range(1, 101)]
    assert sum(won) == 2**6 - 1


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_truncated_exactly_when_patience_ends(turns: int) -> None:
    tasks = GuessNumber(1, 100, turns, size=1, hidden=[50])
    steps = play(tasks, 50, ["7"] * turns)
    assert [s.truncated for s in steps] == [False] * (turns - 1) + [True]
    assert not any(s.terminated for s in steps)
    assert sum(s.reward for s in steps) == 0
    last_moment = play(tasks, 50, ["7"] * (turns - 1) + ["50"])
    assert last_moment[-1].terminated
    assert not last_moment[-1].truncated


def test_hints_and_malformed_guesses() -> None:
    tasks = GuessNumber(1, 9, 7, size=1, hidden=[5])
    steps = play(tasks, 5, ["3", " 8\n", "five", "5.0", "0", "", "+5"])
    reminder = "write one whole number from 1 to 9"
    assert [s.observation for s in steps] == ["higher", "lower", *[reminder] * 4, ""]
    assert [s.info["guess"] for s in steps] == [3, 8, None, None, None, None, 5]
    assert steps[-1].terminated


def test_demonstration_recovers_from_anybodys_guesses() -> None:
    tasks = GuessNumber(1, 100, 20, size=1, hidden=[77])
    episode = tasks.episode(tasks[0])
    episode.reset()
    for action in ["90", "x", "10", "95", "5"]:
        episode.step(action)
    # 11..89 are left: 79 numbers, 7 halvings.
    steps = 0
    while not episode.step(str(episode.demonstrate())).over:
        steps += 1
    assert steps < 7
    assert episode.demonstrate() is None


def test_no_step_before_reset_or_after_the_end() -> None:
    tasks = GuessNumber(1, 2, 1, size=1)
    episode = tasks.episode(tasks[0])
    with pytest.raises(EpisodeError, match="call reset"):
        episode.step("1")
    episode.reset()
    episode.step("7")
    with pytest.raises(EpisodeError, match="call reset"):
        episode.step("1")
    episode.reset()
    assert episode.step(str(tasks[0].row["number"])).reward == 1


@pytest.mark.parametrize("high", [2, 3, 6, 100])
def test_split_hides_different_numbers(high: int) -> None:
    split = GuessNumber.split(1, high, 7, train=3000, heldout=400, seed=3)
    train, heldout = (
        {t.row["number"] for t in map(s.__getitem__, range(len(s)))} for s in (split.train, split.heldout)
    )
    assert isinstance(split.train, Tasks)
    assert not train & heldout
    assert train | heldout == set(range(1, high + 1))
    ids = [s[i].id for s in (split.train, split.heldout) for i in range(len(s))]
    assert len(set(ids)) == 3400


@pytest.mark.parametrize("wrong", [{"low": 2, "high": 1}, {"turns": 0}, {"size": 0}, {"hidden": [101]}, {"hidden": []}])
def test_impossible_games_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="GuessNumber: "):
        GuessNumber(**{"size": 1, **wrong})
