"""Scorers in processes: what hangs, bloats, dies or breaks out costs its own answer and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hostile
import pytest

from benchmarks import fuzz_scorers
from benchmarks.fuzz_scorers import fuzz
from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.training import recipe as recipes
from polopt.worlds import ReasoningGym, Step, Task, TaskList, VerifierError, make_verifier
from polopt.worlds.answers import OneAnswer, step_together
from polopt.worlds.executors import InlineExecutor, ScoringProcessExecutor
from polopt.worlds.scoring import limits
from polopt.worlds.scoring.fork_server import ForkServer, ScorerProcess, WorkerDied
from polopt.worlds.scoring.place import IN_PROCESS, judged_in
from polopt.worlds.scoring.plain import plain
from polopt.worlds.scoring.pool import ScorerPool
from polopt.worlds.scoring.verdict import Request, Verdict
from polopt.worlds.untrusted import is_safe

SECONDS = 0.6
HOSTILE = str(Path(hostile.__file__).resolve())
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what the kernel forbids is Linux's to forbid")


@pytest.fixture(scope="module")
def workers() -> Iterator[ScorerPool]:
    pool = ScorerPool(4, SECONDS, 0.5)
    yield pool
    pool.close()


def asked(function: str, answer: str, **row: Any) -> Request:
    return Request({"scorer": "function", "name": f"{HOSTILE}:{function}"}, row, answer)


BOMBS = {
    "coin_flip": ["1e999,999,999", "１e99999999"],
    "rush_hour": ["A+99999999999"],
    "rubiks_cube": ["R1300000000"],
    "simple_integration": ["(x+y+z+w)**500"],
    "intermediate_integration": ["(x+y+z+w)**500"],
}


def test_no_answer_keeps_the_learner_busy(workers: ScorerPool) -> None:
    """Each of these ran for minutes or took gigabytes; among them, others are judged as if nothing had been."""
    unguarded = {"scorer": "function", "name": f"{Path(HOSTILE).with_name('unguarded.py')}:score"}
    rows = {name: {"dataset": name, "entry": plain(ReasoningGym({name: {}}, size=1)[0].row, "x")} for name in BOMBS}
    bombs = [Request(unguarded, rows[name], bomb) for name in BOMBS for bomb in BOMBS[name][:1]]
    regex = Request({"scorer": "regex", "pattern": "(a+)+$"}, {}, "a" * 60 + "b")
    mathematics = {"scorer": "math-verify", "timeout": None}
    bombs += [regex, Request(mathematics, {"answer": "7"}, "$9^{9^{9^{9}}}$")]
    calm = [
        Request(regex.scorer, {}, "aaa"),
        Request(regex.scorer, {}, "b"),
        Request(mathematics, {"answer": "7"}, "7"),
        Request(unguarded, rows["coin_flip"], rows["coin_flip"]["entry"]["answer"]),
    ]
    found = workers.judge([one for bomb in bombs for one in (bomb, calm[0])] + calm)
    verdicts = found[: 2 * len(bombs) : 2]
    assert all(verdict.lost in ("timeout", "memory") or verdict.value < 1 for verdict in verdicts), verdicts
    assert sum(verdict.lost is not None for verdict in verdicts) >= 4, verdicts
    assert {verdict.value for verdict in found[1 : 2 * len(bombs) : 2]} == {1.0}
    assert [verdict.value for verdict in found[-4:]] == [1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(("dataset", "bomb"), [(name, bomb) for name in BOMBS for bomb in BOMBS[name]])
def test_a_known_bomb_is_not_even_sent(dataset: str, bomb: str) -> None:
    assert not is_safe(dataset, bomb)


@pytest.mark.parametrize(
    ("dataset", "answer", "safe"),
    [
        ("coin_flip", "1e9_9_9_9_9", False),
        ("coin_flip", "1e٩٩٩٩٩", False),
        ("coin_flip", "0.03125", True),
        ("rubiks_cube", "R U2 F' L1000", True),
        ("rush_hour", "A+9_999_999", False),
        ("rush_hour", "F+1 K-2", True),
        ("simple_integration", "(x+y)**400", True),  # C(513, 1) terms at most
        ("simple_integration", "(x+y+z)**100", False),  # C(130, 2)
        ("simple_integration", "(x+y+z+w)**7*(x+y)**9", False),  # C(11, 3) * C(17, 1)
        ("simple_integration", "x**200/7 + 3*sin(x)**2 + C", True),
    ],
)
def test_what_a_scorer_may_see(dataset: str, answer: str, safe: bool) -> None:
    assert is_safe(dataset, answer) is safe


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        ("exit", "died"),
        ("memory", "memory"),
        ("crash", "died"),
        ("sleep", "timeout"),
        ("garbage", "died"),
        ("pickle", "died"),
    ],
)
def test_who_dies_or_lies_loses_its_own_answer_alone(workers: ScorerPool, answer: str, lost: str) -> None:
    found = workers.judge([asked("misbehave", text) for text in ("a", answer, "b", "c")])
    assert [verdict.lost for verdict in found] == [None, lost, None, None]
    assert [verdict.value for verdict in found if verdict.lost is None] == [1.0] * 3


def test_verdicts_beyond_those_asked_for_are_not_believed(workers: ScorerPool) -> None:
    """The process that sends them is ended; what it is asked next, another one judges."""
    workers.judge([asked("misbehave", "too much")])
    assert workers.judge([asked("misbehave", "text")])[0].odd == "'one'"


@linux
def test_nothing_gets_out(workers: ScorerPool, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("as it was")
    (verdict,) = workers.judge([asked("escape", "", folder=str(tmp_path), learner=os.getpid())])
    assert verdict.raised is None
    assert verdict.value >= 19  # all of the attempts
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "as it was"


@linux
def test_the_numbers_of_forbidden_calls_are_the_kernels() -> None:
    for column, header in enumerate(("x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h")):
        path = Path("/usr/include") / header
        if not path.is_file():
            pytest.skip(f"{path} is not installed")
        known = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text())}
        wrong = {
            name: number
            for name, numbers in limits.FORBIDDEN.items()
            if (number := numbers[column]) is not None and known.get(name, number) != number
        }
        assert not wrong
        judged = [known.get(name) for name in ("open", "openat", "clone", "prlimit64")]
        assert [numbers[column] for numbers, *_ in limits.JUDGED] == judged


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 4000,
        b'{"value": true}',
        b'{"value": 1, "raised": "x"}',
        b"{}",
        b"[1]",
        b'{"raised": {"a": 1}}',
        b'{"lost": "nothing"}',
        b'{"value": 1' + b"0" * 4100 + b"}",
        b"\xff",
    ],
)
def test_a_line_that_is_no_verdict_is_refused(line: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(line + b"\n")
        with pytest.raises((WorkerDied, ValueError)):
            [Verdict.read(one) for one in ScorerProcess(0, ours, 0).lines()]


def test_a_line_that_is_a_verdict_is_read() -> None:
    assert Verdict.read({"value": 1}) == Verdict(1.0)
    assert math.isnan(Verdict.read({"raised": "x"}).value)


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


# The answers that were right for nearly every task; they may be right where they are the answer.
CONSTANT = {
    "game_of_life_halting": ["False", "x", "0"],
    "complex_arithmetic": ["nan", "nan+nanj"],
    "coin_flip": ["0"],
    "puzzle24": ["10 + 3 + 4 + 7", "9 + 9 + 6 + 2/4"],
}


@pytest.mark.parametrize("dataset", CONSTANT)
def test_one_answer_for_everything_is_not_paid(dataset: str) -> None:
    tasks = ReasoningGym({dataset: {}}, size=4)
    with judged_in(IN_PROCESS):
        for i in range(4):
            answer = str(tasks[i].solution)
            assert tasks.score(answer, tasks[i])[0] == 1, answer
            for constant in CONSTANT[dataset]:
                assert tasks.score(constant, tasks[i])[0] == float(constant == answer)


def test_a_word_with_more_behind_it_is_not_the_word() -> None:
    """Shares of a ninth add up to more than 1."""
    tasks = ReasoningGym({"spell_backward": {"min_word_len": 9, "max_word_len": 9}}, size=5)
    with judged_in(IN_PROCESS):
        for i in range(5):
            answer = str(tasks[i].solution)
            assert [tasks.score(answer + more, tasks[i])[0] for more in ("", "x")] == [1, 0]


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


def test_what_a_system_does_not_limit_is_said(monkeypatch: pytest.MonkeyPatch, workers: ScorerPool) -> None:
    fork = ForkServer.fork
    monkeypatch.setattr(ForkServer, "fork", lambda *given: (fork(*given)[0], ["memory is not limited"]))
    said_so = pytest.warns(PoloptWarning, match="less confined: memory is not limited")
    with said_so as said, contextlib.closing(ScorerPool(2)) as few:
        found = few.judge([Request({"scorer": "regex", "pattern": "a"}, {}, "a")] * 20)
    assert sum(warning.category is PoloptWarning for warning in said) == 1
    assert len(found) == 20


def test_the_filter_closes_calls_to_children_alone() -> None:
    """What confines a worker does not confine this process."""
    assert ctypes.CDLL(None).prctl(21, 0, 0, 0, 0) == 0  # PR_GET_SECCOMP


def test_hostile_answers_cost_nothing_but_themselves(workers: ScorerPool) -> None:
    """A slice of benchmarks/fuzz_scorers.py."""
    names = ["coin_flip", "rubiks_cube", "n_queens", "string_insertion", "complex_arithmetic", "countdown"]
    found = [found for _, found in fuzz([*names, "exact", "numeric", "regex", "unit-tests"], 300, workers)][-1]
    assert (found.answers, found.exceptions, found.slow) == (300, [], 0)
    assert 0 < found.solved.total() < 100


def test_the_fuzzer_sees_code_that_runs(workers: ScorerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_scorers, "verifier", lambda name, draw: (_runs_everything, [("1", {})]))
    with pytest.raises(RuntimeError, match="exact: an answer has run as code"):
        list(fuzz(["exact"], 200, workers))


def _runs_everything(many: Sequence[tuple[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    for text, _ in many:
        for trap in re.findall(r"__import__\('pathlib'\)\.Path\('[^']*'\)\.touch\(\)", text):
            eval(trap)
    return [(0.0, {}) for _ in many]
