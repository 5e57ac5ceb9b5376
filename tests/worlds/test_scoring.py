"""Scorers in worker processes: equal verdicts, threads, forks, and where episodes are stepped."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scorer_requests import HOSTILE, asked

from polopt.config import ConfigError
from polopt.training import recipe as recipes
from polopt.worlds import ReasoningGym, Step, Task, TaskList, VerifierError, make_verifier
from polopt.worlds.answers import OneAnswer, step_together
from polopt.worlds.executors import InlineExecutor, ScoringProcessExecutor
from polopt.worlds.scoring.place import IN_PROCESS, judged_in
from polopt.worlds.scoring.pool import ScorerPool
from polopt.worlds.scoring.verdict import Request


def test_as_many_workers_as_there_are_agree_with_none(workers: ScorerPool) -> None:
    names = ("chain_sum", "countdown", "gsm_symbolic", "knights_knaves", "spiral_matrix")
    tasks = ReasoningGym({name: {} for name in names}, size=24, seed=4)
    answers = [(str(tasks[(i + j) % 24].solution), tasks[i]) for i in range(24) for j in (0, 6, 1)]
    answers += [(text, tasks[i]) for i in range(24) for text in ("", "1 + 1", "nan", "[" * 50, "7")]
    found = []
    for place in (IN_PROCESS, workers):
        with judged_in(place):
            found.append(tasks.score_many(answers))
    assert found[0] == found[1]
    assert sum(reward for reward, _ in found[0]) >= 24
    with judged_in(workers):
        assert [tasks.score(*one) for one in answers[:20]] == found[0][:20]


def test_several_threads_may_ask(workers: ScorerPool) -> None:
    found: dict[int, list[float]] = {}

    def work(i: int) -> None:
        texts = ["a" * n for n in range(1, 20 + i)]
        found[i] = [
            v.value for v in workers.judge([Request({"scorer": "regex", "pattern": f"a{{{i}}}"}, {}, t) for t in texts])
        ]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {i: [float(n >= i) for n in range(1, 20 + i)] for i in range(2, 8)}


def test_the_process_that_begins_workers_is_replaced(workers: ScorerPool) -> None:
    workers.judge([asked("misbehave", "a")])
    fork_server = workers._fork_server
    assert fork_server is not None
    os.kill(fork_server.process.pid, signal.SIGKILL)
    fork_server.process.wait(10)
    assert workers.judge([asked("misbehave", "a")])[0].value == 1


def test_a_process_that_is_forked_has_workers_of_its_own_and_leaves_none_behind(workers: ScorerPool) -> None:
    """Killed while a worker of its hangs, it takes them along; the workers here never notice."""
    workers.judge([asked("misbehave", "a")])
    before = workers._fork_server
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            workers.judge([asked("misbehave", "b")])
            pids = [workers._fork_server.process.pid, *(worker.pid for worker in workers._free if worker)]  # type: ignore[union-attr]
            threading.Thread(target=workers.judge, args=([asked("misbehave", "sleep")] * 4,), daemon=True).start()
            time.sleep(0.2)
            os.write(write, " ".join(map(str, pids)).encode())
            time.sleep(60)
        finally:
            os._exit(1)
    pids = [int(pid) for pid in os.read(read, 1000).split()]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_runs(pid) for pid in pids)
    assert workers.judge([asked("misbehave", "a")])[0].value == 1
    assert workers._fork_server is before


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_scorer_that_cannot_be_loaded_is_one_sentence(workers: ScorerPool) -> None:
    with pytest.raises(ConfigError, match=r"verifier .*hostile.py:nobody cannot be loaded .*AttributeError"):
        workers.judge([asked("nobody", "a")])
    with pytest.raises(ConfigError, match="a row holds a object, which cannot be sent"):
        workers.judge([asked("misbehave", "a", thing=object())])


def test_a_users_function_in_processes(workers: ScorerPool) -> None:
    verifier = make_verifier([{"verifier": f"{HOSTILE}:misbehave", "where": "processes", "weight": 2}, "exact"])
    row = {"prompt": "why?", "answer": "exit"}
    with judged_in(workers):
        (lost, how), (paid, _) = verifier.judge_many([("exit", row), ("a", row)])
        assert (lost, how["lost"], how["solved"]) == (1.0, "died", False)  # the other verifier's, whose answer it is
        assert paid == 2.0
        with pytest.raises(VerifierError, match=r"misbehave raised SystemExit: 0, on the row with prompt 'why\?'"):
            verifier.judge("leave", row)
        with pytest.raises(VerifierError, match=r"misbehave must return a finite number.*found 'one'"):
            verifier.judge("text", row)


def test_a_function_here_that_leaves_is_an_error_of_the_function() -> None:
    def reward(completion: str, row: dict[str, Any]) -> float:
        sys.exit(0)

    with pytest.raises(VerifierError, match=r"reward raised SystemExit: 0 .* on the row with prompt 'why\?'"):
        make_verifier(reward).verify("x", {"prompt": "why?", "answer": "y"})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"verifier": lambda completion, row: 1.0, "where": "processes"}, "needs a function by name"),
        ({"verifier": f"{HOSTILE}:many", "where": "processes"}, "is for functions of one answer"),
        ({"verifier": f"{HOSTILE}:misbehave", "where": "there"}, "verifier.where = 'there'"),
    ],
)
def test_where_a_function_runs_is_checked(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_verifier(spec)


def test_what_is_lost_is_counted_by_reason(workers: ScorerPool) -> None:
    verifier = make_verifier({"verifier": f"{HOSTILE}:picky", "where": "processes"})
    task = Task("a", "k", "why?", "y", {"prompt": "why?", "answer": "y"})
    world = TaskList(
        [task], lambda *_: (0.0, {}), score_many=lambda many: verifier.judge_many([(text, t.row) for text, t in many])
    )
    grounds = ScoringProcessExecutor()
    grounds.place = workers
    plays = grounds.open(world, [task] * 5)
    grounds.reset(plays)
    steps = grounds.step(plays, ["a", "aa", "aaa", "aaaa", "aaaaa"])
    assert [(step.reward, step.terminated, step.truncated) for step in steps] == [
        (reward, True, False) for reward in (1.0, 0.0, 1.0, 0.0, 1.0)
    ]
    assert {name: n for name, n in grounds.counts.items() if n} == {"lost": 2, "lost/died": 2}
    other = InlineExecutor()
    other.count(grounds.counts)
    assert other.counts == grounds.counts


def test_an_episode_of_a_kind_of_its_own_is_stepped_by_its_own_step() -> None:
    class Doubled(OneAnswer):
        def step(self, action: str) -> Step:
            step = super().step(action)
            return step._replace(reward=2 * step.reward)

    calls = []

    def many(answered: Sequence[tuple[str, Task]]) -> list[tuple[float, dict[str, Any]]]:
        calls.append(len(answered))
        return [(float(len(text)), {}) for text, _ in answered]

    task = Task("a", "k", "p", None, {})
    one = lambda text, task: (float(len(text)), {})  # noqa: E731
    episodes = [kind(task, one, many) for kind in (OneAnswer, Doubled, OneAnswer, Doubled)]
    for episode in episodes:
        episode.reset()
    assert [step.reward for step in step_together(episodes, ["a", "b", "cc", "dd"])] == [1, 2, 2, 4]
    assert calls == [2]


@pytest.mark.parametrize("dataset", ["power_function", "tsumego"])
def test_data_sets_that_check_no_settings_are_taken(dataset: str) -> None:
    tasks = ReasoningGym({dataset: {}}, size=2)
    with judged_in(IN_PROCESS):
        assert tasks.score(str(tasks[0].solution), tasks[0])[0] == 1


JSONL = {"kind": "dataset", "path": "rows.jsonl"}


@pytest.mark.parametrize(
    ("tasks", "name"),
    [
        (None, "reasoning-gym"),
        ({**JSONL, "verifier": "regex"}, "regex"),
        ({"kind": "noisy", "of": {**JSONL, "verifier": ["exact", {"verifier": "math-verify"}]}}, "math-verify"),
    ],
)
def test_threads_are_refused_to_what_computes(tasks: dict[str, Any] | None, name: str) -> None:
    changes = {"episodes.where": "threads", **({"tasks": tasks} if tasks else {})}
    with pytest.raises(
        ConfigError, match=rf"episodes\.where = 'threads' is for what waits, and {name} \(tasks\) computes"
    ):
        recipes.load("smoke", changes)


def test_threads_are_for_what_waits() -> None:
    for verifier in ("exact", ["math-verify", f"{HOSTILE}:picky"]):
        changes = {"episodes.where": "threads", "tasks": {**JSONL, "verifier": verifier}}
        assert recipes.load("smoke", changes).episodes.where == "threads"


def test_a_system_that_cannot_fork_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ConfigError, match=r"cannot fork processes; set episodes: \{where: here\}"):
        ScorerPool()
