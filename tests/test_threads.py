"""Threads that wait for each other sleep while other programs want the processors, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch

from polopt import threads
from polopt.threads import BUSY, IDLE, SETTINGS, _count, _Watch, giving_way


def sleepers() -> int:
    return sum(thread.name == "polopt-asleep" for thread in threading.enumerate())


@pytest.fixture
def two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("of", "processors", "callers"), [(2, 2, 1), (2, 3, 2), (4, 4, 1), (4, 8, 2), (2, 16, 15), (8, 2, 1)]
)
def test_a_process_comes_to_have_more_threads_than_there_are_processors(of: int, processors: int, callers: int) -> None:
    # The first caller has a team of `of`; each other one adds the rest of a team to itself, which GNU OpenMP does not
    # count.
    assert _count(of, processors) == callers
    assert of + callers * (of - 1) > processors
    assert callers == 1 or of + (callers - 1) * (of - 1) <= processors


@pytest.mark.usefixtures("two_threads")
def test_sleepers_come_when_threads_are_kept_from_running_and_go_when_they_are_not() -> None:
    watch, seen = _Watch(lambda: 0.0), []
    for share in (0.0, BUSY, BUSY + 0.01, (BUSY + IDLE) / 2, IDLE, 0.0, 1.0, 0.0):
        watch.adjust(share)
        seen.append(bool(watch.sleepers))
    assert seen == [False, False, True, True, True, False, True, False]


@pytest.mark.usefixtures("two_threads")
def test_none_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    clock = iter(range(10**9))
    monkeypatch.setattr(threads, "INTERVAL_S", 0.001)
    monkeypatch.setattr(threads, "_delay_reader", lambda: lambda: float(next(clock)))  # always kept from running
    came = threading.Event()
    adjust = _Watch.adjust
    monkeypatch.setattr(_Watch, "adjust", lambda self, share: (adjust(self, share), share and came.set()))
    with giving_way():
        assert came.wait(20)
        assert sleepers() > 0
        begun = [thread for thread in threading.enumerate() if thread.name.startswith("polopt-")]
    for thread in begun:
        thread.join(20)
    assert sleepers() == 0
    assert not any(thread.is_alive() for thread in begun)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_users_own_choice_stands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1000")
    before = threading.active_count()
    with giving_way():
        assert threading.active_count() == before


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU OpenMP")
def test_beside_sleepers_a_thread_that_waits_takes_no_processor() -> None:
    code = (
        "import os, time, torch\n"
        "from polopt.threads import _Watch\n"
        "torch.set_num_threads(2)\n"
        "x = torch.ones(2**17)\n"
        "def seconds():\n"
        "    x.add_(1); begun = time.process_time()\n"
        "    for _ in range(200): x.add_(1); time.sleep(0.003)\n"
        "    return time.process_time() - begun\n"
        "watch = _Watch(lambda: 0.0)\n"
        "alone = seconds(); watch.adjust(1.0); time.sleep(0.2); beside = seconds()\n"
        "watch.adjust(0.0); time.sleep(0.2); print(alone, beside, seconds())\n"
    )
    environment = {k: v for k, v in os.environ.items() if k not in SETTINGS and not k.startswith("OMP_")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    alone, beside, again = map(float, done.stdout.split())
    # Seconds of processor, not of the clock: the waiting thread's turns are most of them, or are gone.
    assert beside < 0.5 * min(alone, again), done.stdout
