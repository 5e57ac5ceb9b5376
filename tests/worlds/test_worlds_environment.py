"""A world of one's own: what the light contract adds, and what breaks the protocol is one sentence."""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polopt.config import ConfigError
from polopt.errors import PoloptWarning, UserError
from polopt.worlds import Step, Task, TaskSplit, WorldError, build_tasks, environment
from polopt.worlds.contract import LARGEST, check_split, checked_step, new_episode, try_episode
from polopt.worlds.executors import InlineExecutor, ThreadExecutor


class Echo:
    """Pays an answer that repeats the prompt; two turns at most."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def reset(self) -> str:
        self.left = 2
        return self.task.prompt

    def step(self, action: str) -> Step:
        self.left -= 1
        right = action == self.task.prompt
        return Step("again", float(right), right, not right and not self.left, {})


def echo(**changes: Any) -> TaskSplit:
    return environment(**{"episode": Echo, "train": ["a", "b"], "heldout": ["c"], "turns": 2} | changes)


def test_a_class_and_lists_of_prompts_are_an_environment() -> None:
    split = echo(
        train=["a", {"prompt": "b", "kind": "letter", "solution": "b", "hard": True}, Task("t", "k", "c", None, {})]
    )
    assert [split.train[i] for i in range(3)] == [
        Task("train/0", "task", "a", None, {}),
        Task("train/1", "letter", "b", "b", {"hard": True}),
        Task("t", "k", "c", None, {}),
    ]
    assert (len(split.train), split.train.turns, split.train.kinds) == (3, 2, ["k", "letter", "task"])
    check_split(split, "world")
    play = new_episode(split.train, split.train[0])
    assert play.reset() == "a"
    assert play.demonstrate() is None
    assert [play.step("x"), play.step("a")] == [
        Step("again", 0.0, False, False, {}),
        Step("again", 1.0, True, False, {}),
    ]
    assert (
        new_episode(
            echo(turns=1, train=[{"prompt": "p", "solution": "s"}]).train, Task("i", "k", "p", "s", {})
        ).demonstrate()
        == "s"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"train": [""]},
            r"train\[0\] must be a Task, a prompt, or a mapping with a non-empty text `prompt`, found ''",
        ),
        ({"heldout": ["c", {"question": 1}]}, r"heldout\[1\] must be a Task"),
        ({"train": [{"prompt": "a", "id": "x"}], "heldout": [{"prompt": "b", "id": "x"}]}, "two tasks have the id 'x'"),
    ],
)
def test_tasks_that_are_none(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        echo(**changes)


# Worlds that a person may write, each with one mistake.
def broken(**methods: Any) -> type:
    return type("Maze", (Echo,), methods)


def returning(value: Any) -> Callable[..., Any]:
    return lambda self, *_: value


def lacking(name: str) -> type:
    return type("Maze", (), {n: v for n, v in vars(Echo).items() if n != name and not n.startswith("__d")})


def failing(self: Any, action: str) -> Step:
    return Step("", 1 / 0, True, False, {})


STEP = r"must return polopt.worlds.Step\(observation, reward, terminated, truncated, info\), found"
EPISODES = [
    (lacking("step"), r"Maze.step is missing; an episode has both reset\(\) and step\(action\)"),
    (lacking("reset"), "Maze.reset is missing"),
    (broken(reset=returning(None)), "Maze.reset must return text, found None; write"),
    (broken(reset=lambda self, seed: ""), r"Maze.reset raised TypeError: .*'seed'"),
    (broken(demonstrate=returning(4)), "Maze.demonstrate must return text, found 4"),
    (broken(step=failing), r"Maze.step raised ZeroDivisionError: .* \(test_worlds_environment.py, line \d+\)"),
    (broken(step=returning(None)), f"step 1: Maze.step {STEP} None"),
    (broken(step=returning(("", 1.0, True, False, {}))), rf"{STEP} tuple .*gymnasium's.* polopt.worlds.Step\(\*them\)"),
    (broken(step=returning(("", 1.0, True, {}))), f"{STEP} tuple .*`done` is two fields here"),
    (broken(step=returning(Step("", float("nan"), True, False, {}))), "step 1: Maze.step returned the reward nan;"),
    (broken(step=returning(Step("", 1e308, True, False, {}))), r"reward 1e\+308; .* finite number of at most 1e\+16"),
    (broken(step=returning(Step("", torch.tensor(0.5), True, False, {}))), r"the reward Tensor tensor\(0.5"),
    (broken(step=returning(Step(3, 0.0, True, False, {}))), "the observation 3; it must be text"),
    (broken(step=returning(Step("", 0.0, None, False, {}))), "terminated = None; it must be a bool"),
    (broken(step=returning(Step("", 0.0, True, False, None))), "info = None; it must be a dict"),
    (broken(step=returning(Step("", 0.0, True, False, {"signals": {"true": float("inf")}}))), "'true' = inf"),
    (broken(step=returning(Step("", 0.0, True, False, {"signals": 1}))), "must map names to numbers"),
    (broken(step=returning(Step("", 0.0, True, False, {"feedback": 1}))), "must be text or None"),
]  # fmt: skip


@pytest.mark.parametrize(("episode", "sentence"), EPISODES, ids=[sentence[:30] for _, sentence in EPISODES])
@pytest.mark.parametrize("grounds", [InlineExecutor(), ThreadExecutor(2)], ids=["here", "threads"])
def test_a_broken_episode_is_one_sentence(episode: type, sentence: str, grounds: Any) -> None:
    with pytest.raises(WorldError, match=sentence) as caught:
        try_episode(echo(episode=episode).train, grounds)
    message = str(caught.value)
    assert message.startswith("task train/0")
    assert "\n" not in message
    assert isinstance(caught.value, UserError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message  # it travels from other processes


def test_a_user_error_of_the_world_stays_what_it_is() -> None:
    def refuse(self: Any, action: str) -> Step:
        raise ConfigError("no key")

    with pytest.raises(ConfigError, match=r"^no key$"):
        try_episode(echo(episode=broken(step=refuse)).train, InlineExecutor())


class Plain:
    """The protocol without the helper."""

    kinds, turns = ("echo",), 2

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Task:
        return Task("t", "echo", "a", None, {})

    def episode(self, task: Task) -> Any:
        return Echo(task)


def but(**changes: Any) -> Any:
    return type("Mazes", (Plain,), changes)()


def without(name: str) -> Any:
    return type("Mazes", (), {n: v for n, v in vars(Plain).items() if n != name and not n.startswith("__d")})()


SETS = [
    (without("turns"), "Mazes has no turns, the most answers that one episode takes; add it"),
    (without("kinds"), "Mazes has no kinds"),
    (without("episode"), "Mazes has no episode"),
    (without("__len__"), "Mazes has no __len__, the number of its tasks"),
    (but(__len__=lambda self: 0), "train has no tasks; there must be at least one"),
    (but(turns=0), "Mazes.turns must be a whole number >= 1, found 0"),
    (but(turns=lambda self: 2), "Mazes.turns must be a whole number >= 1, found .*; make it a property"),
    (but(kinds="echo"), "Mazes.kinds must be a list of names, found 'echo'"),
    (but(__getitem__=lambda self, i: "a"), r"Mazes\[0\] must be a polopt.worlds.Task\(.*found 'a'"),
    (but(__getitem__=lambda self, i: [][i]), "raised IndexError: list index out of range"),
    (but(__getitem__=lambda self, i: Task("t", "k", "", None, {})), r"Mazes\[0\].prompt must be non-empty text"),
    (but(__getitem__=lambda self, i: Task(1, "k", "a", None, {})), r"Mazes\[0\].id must be non-empty text, found 1"),  # type: ignore[arg-type]
    (but(__getitem__=lambda self, i: Task("t", "k", "a", 2, {})), r"Mazes\[0\].solution must be text, or None"),  # type: ignore[arg-type]
    (but(__getitem__=lambda self, i: Task("t", "k", "a", None, None)), r"Mazes\[0\].row must be a dict"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("tasks", "sentence"), SETS, ids=[sentence[:30] for _, sentence in SETS])
def test_broken_sets_of_tasks_are_one_sentence(tasks: Any, sentence: str) -> None:
    check_split(TaskSplit(Plain(), Plain()), "world")
    with pytest.raises(ConfigError, match=sentence):
        check_split(TaskSplit(tasks, Plain()), "world")
    with pytest.raises(ConfigError, match=r"^world: heldout"):
        check_split(TaskSplit(Plain(), tasks), "world")


def test_an_episode_without_demonstrate_is_told_how_to_have_one() -> None:
    with pytest.raises(WorldError, match=r"task t: Echo.demonstrate is missing; .*polopt.worlds.environment adds it"):
        try_episode(Plain(), InlineExecutor())


FACTORY = """
from polopt.worlds import TaskSplit

def fails(seed):
    return {}["tasks"]

def empty(seed):
    return TaskSplit([], [])
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("fails", r"raised KeyError: 'tasks' \(own.py, line 5\)"), ("empty", "train: list has no episode")],
)
def test_the_factory_of_a_world(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "own.py").write_text(FACTORY)
    with pytest.raises(ConfigError, match=sentence) as caught:
        build_tasks({"kind": f"{tmp_path / 'own.py'}:{name}"}, seed=0)
    assert str(caught.value).startswith("world.kind = ")


def test_rewards_become_plain_numbers() -> None:
    """Whatever counts as a number or a truth value is the same number and truth value afterwards."""
    for reward, plain in ((1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(2), 2.0), (-LARGEST, -LARGEST)):
        step = checked_step(Step("", reward, np.bool_(True), np.bool_(False), {}), "here", "step")
        assert (type(step.reward), step.reward, step.terminated, step.truncated) == (float, plain, True, False)
        assert isinstance(step.terminated, bool)


def test_the_trial_leaves_random_numbers_as_they_were() -> None:
    def drawing(self: Any, action: str) -> Step:
        return Step("", random.random() * np.random.rand() * float(torch.rand(())), True, False, {})

    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = drawn()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    try_episode(echo(episode=broken(step=drawing)).train, InlineExecutor())
    assert drawn() == expected


def test_a_trial_that_takes_too_long_gets_a_word() -> None:
    import threading

    never = threading.Event()
    try:
        with pytest.warns(PoloptWarning, match="task train/0 was tried before training and did not answer within"):
            try_episode(
                echo(episode=broken(step=lambda self, action: never.wait())).train, ThreadExecutor(1, timeout=0.05)
            )
    finally:
        never.set()


def test_a_sound_world_is_tried_without_a_word() -> None:
    seen: list[str] = []

    def noted(self: Any, action: str) -> Step:
        seen.append(action)
        return Echo.step(self, action)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try_episode(echo(episode=broken(step=noted)).train, InlineExecutor())
        try_episode(echo(episode=broken(step=noted, demonstrate=lambda self: self.task.prompt)).train, InlineExecutor())
    assert seen == ["", "", "a"]
