"""Episodes beside each other are what they are one after another, and who hangs is given up, counted."""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import GUESS, MODEL, Digits, lines, outcome, policy, recipe
from waiting import Counter

import polopt as po
from polopt.config import ConfigError
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.training import recipe as recipes
from polopt.training.episode_player import EpisodePlayer
from polopt.training.launch import train
from polopt.training.source import LanguageSource
from polopt.worlds import EpisodeError, GuessNumber, Step, Task, VerifierError, make_verifier
from polopt.worlds.executors import (
    LOST,
    EpisodeExecutor,
    InlineExecutor,
    PendingCall,
    ThreadExecutor,
    in_thread,
    overlapped,
)

LONG = {**MODEL, "n_positions": 256}
# Seconds that are short to wait for, and long for a world that answers at once on a busy machine.
SOON = 0.8
THREADS = {"where": "threads", "workers": 3}


def played(grounds: EpisodeExecutor, world: Counter, script: Sequence[Sequence[str]]) -> list[list[Any]]:
    """What the world says to each row's actions, turn by turn."""
    plays = grounds.open(world, [world[i] for i in range(len(script))])
    said: list[list[Any]] = [[prompt] for prompt in grounds.reset(plays)]
    for turn in range(max(map(len, script))):
        here = [i for i, actions in enumerate(script) if turn < len(actions)]
        for i, step in zip(here, grounds.step([plays[i] for i in here], [script[i][turn] for i in here]), strict=True):
            said[i].append(step)
    return said


SCRIPT = [["1", "2", "3"], ["4", "5", "6"], ["7"], ["x", "2"], ["3", "3", "3"], ["9", "9", "9"]]


def test_threads_say_what_the_episodes_say() -> None:
    world = Counter(6, wait=0.01)
    assert played(ThreadExecutor(4), world, SCRIPT) == played(InlineExecutor(), world, SCRIPT)


@pytest.mark.parametrize(
    "world", [GUESS, {"kind": "second-chance", "of": {"kind": "chains", "train": 50}}], ids=range(2)
)
def test_a_run_in_threads_is_the_run(tmp_path: Path, world: dict[str, Any]) -> None:
    sft = {"method": "sft", "steps": 3, "rows": 8, "optimiser": {"lr": 0.01}}
    rl = {"method": "grpo", "steps": 3, "rows": 8, "group": 4}
    settings = {"tasks": world, "policy": {"config": LONG}, "limit": 4, "stages": {"sft": sft, "rl": rl}}
    for name, changes in {"here": {}, "threads": {"episodes": THREADS}}.items():
        train(recipe(**settings, **changes), tmp_path / name)
    assert outcome(tmp_path / "threads") == outcome(tmp_path / "here")


def test_a_run_in_processes_is_the_run(tmp_path: Path) -> None:
    """Three workers judge what scorers here judge one by one."""
    gym = {"spell_backward": {"min_word_len": 3, "max_word_len": 3}, "spiral_matrix": {"min_n": 2, "max_n": 2}}
    tasks = {"kind": "reasoning-gym", "datasets": gym, "train": 40, "heldout": 8}
    stages = {"rl": {"method": "grpo", "steps": 4, "rows": 8, "group": 4}}
    settings = {"tasks": tasks, "policy": {"config": LONG}, "limit": 4, "stages": stages}
    settings |= {"evaluation": {"problems": 8, "quick": 4, "every": 2}, "checkpoint": 2}
    train(recipe(**settings, episodes={"where": "here"}), tmp_path / "here")
    train(recipe(**settings, episodes={"where": "processes", "workers": 3}), tmp_path / "processes")
    assert outcome(tmp_path / "processes") == outcome(tmp_path / "here")


HOSTILE = str(Path(__file__).resolve().parents[1] / "hostile.py")


def test_a_run_logs_which_answers_its_scorers_lost(tmp_path: Path) -> None:
    rows = [{"prompt": f"even {i}", "answer": "2"} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    verifier = {"verifier": f"{HOSTILE}:picky", "where": "processes"}  # dies over even lengths, pays for odd ones
    tasks = {"kind": "dataset", "path": str(tmp_path / "rows.jsonl"), "verifier": verifier, "heldout": 0.3}
    run = train(
        recipe(tasks=tasks, stages={"rl": {"method": "grpo", "steps": 2, "rows": 16, "group": 4}}), tmp_path / "run"
    )
    logged = lines(run.folder, "metrics")
    died = [record.get("episodes/lost/died", 0) for record in logged]
    assert sum(died) > 0
    assert [record.get("episodes/lost", 0) for record in logged] == died
    for record, n in zip(logged, died, strict=True):
        # Every row is paid 1, cut off by the token limit, or lost.
        assert record["reward/mean"] == pytest.approx(1 - n / 16 - record["truncated"])


def test_all_that_a_source_plays_is_the_same_in_threads() -> None:
    """Windows that are extended, feedback that is asked for again, answers of others, beginnings of solutions."""
    world = GuessNumber(1, 9, turns=3, size=6)
    made = policy("float64", world=world, config=LONG)
    head = made.model.lm_head
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0], dtype=head.weight.dtype))
    head.bias.data[made.tokenizer.convert_tokens_to_ids([*"123456789", "<|end|>"])] = 6.0
    found = []
    for grounds in (InlineExecutor(), ThreadExecutor(3)):
        player = EpisodePlayer(made, world, 6, executor=grounds)
        source = LanguageSource(player, rows=8, seed=0, generator=torch.Generator().manual_seed(0))
        whole = source.rollout(
            RolloutRequest(source.take(4), 3, Support(), starts=[po.sampling.Start(given=i % 2) for i in range(4)])
        )
        assert int(whole.turn.max()) == 2
        begun = source.rollout(RolloutRequest(source.take(4), 2, Support(), max_decisions=2))
        begun = begun[~(begun.terminated | begun.truncated)]
        longer = source.extend(begun, 2)
        recalled = source.restore_rows(whole)
        said = [[["4", "7", "5"], ["x"]], [["1", "9999999"]]]
        received = source.import_answers(torch.tensor([0, 1]), said, Support())
        shown = source.demonstrate(3)
        found.append([whole, begun, longer, recalled, received, shown, source.solution_lengths(torch.arange(3))])
    for one, other in zip(*found, strict=True):
        _same(one, other)


def _same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
        return
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b), field.name
    assert one.extras.keys() == other.extras.keys()
    for name, a in one.extras.items():
        assert torch.equal(a, other.extras[name]) if isinstance(a, torch.Tensor) else a == other.extras[name], name


class Together(Digits):
    """Each answer waits until `size` of them are here: alone, none ever comes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.barrier, self.most, self.now, self.lock = threading.Barrier(size), 0, 0, threading.Lock()

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.barrier.wait(timeout=60)
        with self.lock:
            self.now -= 1
        return 1.0, {}


def test_those_who_wait_wait_beside_each_other_and_never_more_than_workers() -> None:
    world = Together(4)
    grounds = ThreadExecutor(4)
    plays = grounds.open(world, [world[i % 4] for i in range(12)])
    grounds.reset(plays)
    assert [step.reward for step in grounds.step(plays, ["1"] * 12)] == [1.0] * 12
    assert world.most == 4


def test_who_hangs_is_given_up_and_counted() -> None:
    world, grounds = Counter(6), ThreadExecutor(2, timeout=SOON)
    script = [["1", "hang", "3"] if i in (1, 4) else actions for i, actions in enumerate(SCRIPT)]
    found = played(grounds, world, script)
    plain = played(
        InlineExecutor(), world, [actions[:1] if i in (1, 4) else actions for i, actions in enumerate(script)]
    )
    for i in range(6):
        assert found[i] == (plain[i] if i not in (1, 4) else [*plain[i], LOST, LOST])
    assert {name: n for name, n in grounds.counts.items() if n} == {"lost": 2, "lost/timeout": 2}
    assert LOST.truncated
    assert not LOST.terminated


class Sleepy(Digits):
    """Some tasks never open, some are never judged."""

    def __init__(self, size: int, opens: bool) -> None:
        super().__init__(size)
        self.opens = opens

    def episode(self, task: Task) -> Any:
        episode, hangs = super().episode(task), task.id.endswith("/1")
        if hangs:
            forever = lambda *_: time.sleep(1e6)  # noqa: E731
            setattr(episode, "step" if self.opens else "reset", forever)
        return episode


@pytest.mark.parametrize("opens", [True, False])
def test_a_lost_row_is_truncated_and_pays_nothing(opens: bool) -> None:
    world = Sleepy(3, opens)
    made = policy("float64", world=world)
    made.model.lm_head.bias = torch.nn.Parameter(torch.zeros(made.model.lm_head.weight.shape[0], dtype=torch.float64))
    made.model.lm_head.bias.data[made.tokenizer.eos_token_id] = 9.0  # every answer reaches the world
    player = EpisodePlayer(made, world, 3, executor=ThreadExecutor(2, timeout=SOON))
    rows = player.play([world[i] for i in range(3)], 1, Support(), torch.Generator().manual_seed(0))
    assert [(row.terminated, row.truncated) for row in rows] == [(True, False), (False, True), (True, False)]
    assert (rows[1].reward, rows[1].solved) == (0.0, False)
    opening = player.dialogue.opening(world[1].prompt)
    assert rows[1].ids[: len(opening)] == opening
    assert player.executor.lost == 1


def test_a_demonstration_that_hangs_is_refused() -> None:
    world = Sleepy(3, opens=True)
    player = EpisodePlayer(policy(world=world), world, 3, executor=ThreadExecutor(2, timeout=SOON))
    with pytest.raises(ValueError, match=r"1 of 3 demonstrations were not answered .*episodes\.timeout"):
        player.demonstrate([world[i] for i in range(3)])


def hanging(size: int, seed: int) -> Any:
    heldout = Digits(20, seed=-1)
    return po.worlds.TaskSplit(Sleepy(size, opens=True), heldout)


def test_a_run_logs_what_it_lost(tmp_path: Path) -> None:
    settings = {"kind": f"{Path(__file__).resolve()}:hanging", "size": 3}
    spec = recipe(tasks=settings, limit=8, episodes={**THREADS, "workers": 8, "timeout": SOON})
    logged = lines(train(spec, tmp_path / "run").folder, "metrics")
    lost = [record.get("episodes/lost", 0) for record in logged]
    assert sum(lost) > 0
    # Only a row that was given up is truncated without its tokens being spent; each is counted once.
    assert all(record["truncated"] * record["rows"] >= n for record, n in zip(logged, lost, strict=True))


def test_what_an_episode_raises_is_raised() -> None:
    with pytest.raises(EpisodeError, match="counter/2 was told to fail"):
        played(ThreadExecutor(2), Counter(6), [*SCRIPT[:2], ["1", "error"]])


def broken(completion: str, row: dict[str, Any]) -> float:
    raise ZeroDivisionError("on purpose")


def test_a_verifier_runs_where_the_episode_is() -> None:
    """Its thread is the episode's, and what goes wrong in it keeps its name."""
    seen = []

    def where(completion: str, row: dict[str, Any]) -> float:
        seen.append(threading.current_thread())
        return 1.0

    task = Task("a", "k", "2 + 2 =", "4", {"prompt": "2 + 2 =", "answer": "4"})
    for verifier in map(make_verifier, (where, "math-verify")):
        world = po.worlds.TaskList([task], lambda text, task, v=verifier: v.judge(text, task.row))
        (play,) = plays = ThreadExecutor(2).open(world, [task])
        ThreadExecutor(2).reset(plays)
        (step,) = ThreadExecutor(2).step([play], ["4"])
        assert step.reward == 1.0
    assert seen[0] is not threading.main_thread()
    world = po.worlds.TaskList([task], lambda text, task: make_verifier(broken).judge(text, task.row))
    plays = ThreadExecutor(2).open(world, [task])
    ThreadExecutor(2).reset(plays)
    with pytest.raises(VerifierError, match="broken raised ZeroDivisionError"):
        ThreadExecutor(2).step(plays, ["4"])


@pytest.mark.parametrize(
    ("episodes", "sentence"),
    [
        ({"where": "thread"}, "episodes are not played 'thread'.*threads"),
        ({"where": "threads", "worker": 2}, "episodes.worker is not a setting.*workers"),
        ({"where": "threads", "workers": 0}, "episodes.workers = 0"),
        ({"where": "threads", "timeout": 0}, "episodes.timeout = 0"),
        ({"where": "here", "workers": 2}, "episodes.workers is not a setting"),
    ],
)
def test_a_mistake_gets_one_sentence(episodes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        recipe(episodes=episodes)


def test_settings_by_dotted_path() -> None:
    found = recipes.load("smoke", {"episodes.workers": 3})
    assert (found.episodes.where, found.episodes.workers) == ("processes", 3)
    assert recipes.load("smoke", {"episodes.where": "here"}).episodes.where == "here"


def test_lanes_keep_their_width_and_answers_their_order() -> None:
    """Whoever is done first; and who is late makes room."""
    going: dict[str, int] = {"a": 0, "b": 0}
    most, lock, told = dict(going), threading.Lock(), []

    def work(lane: str, i: int) -> int:
        with lock:
            going[lane] += 1
            most[lane] = max(most[lane], going[lane])
        time.sleep(0.002 * ((7 * i) % 5))
        with lock:
            going[lane] -= 1
        return i

    calls = [PendingCall(lane, in_thread(work, lane, i), None) for i in range(20) for lane in "ab"]
    done = overlapped(calls, {"a": 2, "b": 5})
    assert [future.result() for future in done if future is not None] == [i for i in range(20) for _ in "ab"]
    assert most["a"] <= 2
    assert most["b"] <= 5
    stuck: list[Future[Any]] = [Future() for _ in range(3)]
    calls = [PendingCall(0, lambda f=f: f, 0.05, functools.partial(told.append, i)) for i, f in enumerate(stuck)]
    assert overlapped([*calls, PendingCall(0, in_thread(work, "a", 1), None)], {0: 1})[:3] == [None] * 3
    assert told == [0, 1, 2]


def test_nothing_to_play_is_played_at_once() -> None:
    for grounds in (InlineExecutor(), ThreadExecutor(2)):
        assert grounds.reset([]) == grounds.step([], []) == grounds.demonstrate([]) == []
    assert isinstance(LOST, Step)
