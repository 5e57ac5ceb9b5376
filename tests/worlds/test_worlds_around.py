"""Worlds with planted difficulties: rates of errors against what was asked for, second attempts, working."""

from __future__ import annotations

from typing import Any

import pytest

from polopt.config import ConfigError
from polopt.worlds import Chains, EpisodeError, NoisyTasks, SecondChanceTasks, build_tasks, signals_of
from polopt.worlds.protocol import held_in_memory, scorers_of
from polopt.worlds.subset import SubsetTasks

CHAINS = {"kind": "chains", "steps": [1, 3], "letters": 4, "train": 3000, "heldout": 50}


def test_chains_by_hand() -> None:
    tasks = Chains((2, 2), size=200, worked=1.0)
    for i in range(200):
        task = tasks[i]
        word, moves = task.prompt.removesuffix("=").split()
        said = []
        for move in moves:
            if move == "r":
                word = "".join(reversed(word))
            elif move == "l":
                word = word[1:] + word[0]
            else:
                word = word[1] + word[0] + word[2:]
            said.append(word)
        assert task.solution == " ".join(said)
        assert task.kind == "2 steps"


@pytest.mark.parametrize(
    ("answer", "paid", "flawed", "working"),
    [("dcba cbad", 1, 0, 1), ("cbad", 1, 0, 0), ("abcd cbad", 1, 1, 1), ("dcba abcd", 0, 0, 1), ("", 0, 0, 0)],
)
def test_what_a_chain_pays_and_tells(answer: str, paid: float, flawed: float, working: float) -> None:
    tasks = Chains((2, 2), size=5)
    task = tasks[0]
    row = {"words": ["dcba", "cbad"], "needed": True}
    score, info = tasks.score(answer, type(task)(task.id, task.kind, "abcd rl=", "cbad", row))
    assert (score, info["solved"]) == (paid, bool(paid))
    assert info["signals"] == {"flawed": flawed, "working": working, "needed": 1.0}


@pytest.mark.parametrize(
    ("around", "more"), [(NoisyTasks, ("true",)), (SecondChanceTasks, ()), (lambda t: SubsetTasks(t, [4, 2]), ())]
)
def test_tasks_around_others_tell_what_these_tell(around: Any, more: tuple[str, ...]) -> None:
    """Also of what these come to know later."""
    inner: Any = Chains((1, 3), size=5)
    inner.scorers, inner.in_memory = [], True
    outer = around(inner)
    inner.scorers.append({"kind": "another"})
    assert (outer.kinds, scorers_of(outer), held_in_memory(outer)) == (inner.kinds, ({"kind": "another"},), True)
    assert outer.signals == (*inner.signals, *more)
    assert [outer[i].id for i in range(2)] == [inner[i].id for i in ((4, 2) if len(outer) == 2 else (0, 1))]


def test_no_word_is_in_both_sets() -> None:
    split = build_tasks(CHAINS, seed=1)
    words = [{split_[i].prompt.split()[0] for i in range(len(split_))} for split_ in (split.train, split.heldout)]
    assert not words[0] & words[1]
    shown = sum(" " in (split.train[i].solution or "") for i in range(3000) if split.train[i].kind != "1 step")
    several = sum(split.train[i].kind != "1 step" for i in range(3000))
    assert abs(shown / several - 0.5) < 0.05


def test_errors_come_as_often_as_they_were_planted() -> None:
    rates = {"1 step": 0.4, "3 steps": 0.1}
    split = build_tasks({"kind": "noisy", "of": CHAINS, "missed": rates, "fooled": 0.2}, seed=0)
    assert signals_of(split.train) == ("flawed", "working", "needed", "true")
    counts: dict[tuple[str, bool], list[float]] = {}
    for i in range(3000):
        task = split.train[i]
        for answer, right in ((task.solution or "", True), ("none", False)):
            steps = []
            for _ in range(2):
                episode = split.train.episode(task)
                episode.reset()
                steps.append(episode.step(answer))
            assert steps[0].reward == steps[1].reward  # the same answer is always judged alike
            assert steps[0].info["signals"]["true"] == float(right)
            assert steps[0].info["solved"] == right
            counts.setdefault((task.kind, right), []).append(steps[0].reward)
    for (kind, right), paid in counts.items():
        expected = 1 - rates.get(kind, 0.0) if right else 0.2
        error = max((expected * (1 - expected) / len(paid)) ** 0.5, 1e-9)
        assert abs(sum(paid) / len(paid) - expected) < 4 * error
    clean = split.heldout.episode(split.heldout[0])
    clean.reset()
    assert clean.step(split.heldout[0].solution or "").reward == 1


def test_second_chances() -> None:
    tasks = build_tasks({"kind": "second-chance", "of": CHAINS, "ask": "again"}, seed=0).train
    assert tasks.turns == 2
    task = tasks[0]
    episode = tasks.episode(task)
    assert episode.reset() == task.prompt
    first = episode.step("wrong")
    assert (first.reward, first.observation, first.over) == (0.0, "again", False)
    assert episode.demonstrate() == task.solution
    second = episode.step(task.solution or "")
    assert (second.reward, second.terminated, second.info["solved"]) == (1.0, True, True)
    with pytest.raises(EpisodeError, match="takes two answers"):
        episode.step("more")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="missed names the kind '4 steps'"):
        build_tasks({"kind": "noisy", "of": CHAINS, "missed": {"4 steps": 0.1}}, seed=0)
    with pytest.raises(ConfigError, match=r"fooled must be in \[0, 1\]"):
        build_tasks({"kind": "noisy", "of": CHAINS, "fooled": 2.0}, seed=0)
    guess = {"kind": "guess-number", "low": 1, "high": 9}
    with pytest.raises(ConfigError, match="the tasks must take one answer, found 7 turns"):
        build_tasks({"kind": "second-chance", "of": guess}, seed=0)
    with pytest.raises(ValueError, match="chains: need 1 <= fewest <= most steps"):
        Chains((3, 2), size=5)
    assert isinstance(build_tasks({"kind": "noisy", "of": guess}, seed=0).train, NoisyTasks)
    assert SecondChanceTasks(Chains(size=3)).turns == 2
