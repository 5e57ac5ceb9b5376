"""What hangs, bloats, dies or breaks out in a worker process costs its own answer and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scorer_requests import HOSTILE, asked, linux

from benchmarks import fuzz_scorers
from benchmarks.fuzz_scorers import fuzz
from polopt.errors import PoloptWarning
from polopt.worlds import ReasoningGym
from polopt.worlds.scoring import limits
from polopt.worlds.scoring.fork_server import ForkServer, ScorerProcess, WorkerDied
from polopt.worlds.scoring.place import IN_PROCESS, judged_in
from polopt.worlds.scoring.plain import plain
from polopt.worlds.scoring.pool import ScorerPool
from polopt.worlds.scoring.verdict import Request, Verdict
from polopt.worlds.untrusted import is_safe

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
