"""Episodes in Ray actors on a cluster of two simulated nodes: what they say whatever dies meanwhile."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import waiting
from test_grounds import SCRIPT, played
from tiny_runs import GUESS, MODEL, outcome, recipe
from waiting import Counter

from polopt.config import ConfigError
from polopt.training.cluster import episodes as cluster_episodes
from polopt.training.cluster.episodes import ClusterExecutor
from polopt.training.launch import train
from polopt.worlds import EpisodeError
from polopt.worlds.executors import LOST, InlineExecutor
from polopt.worlds.recipe import rebuild_tasks

ray = pytest.importorskip("ray")
# Simulated nodes share one machine: when it is busy they are slow to begin, and to be missed.
pytestmark = pytest.mark.flaky(reruns=2)
WORLD = {"kind": f"{waiting.__file__}:counters", "size": 6}


@pytest.fixture
def other(cluster: Any) -> Iterator[Any]:
    """A second node with a processor. Each test has its own: one that a busy machine let miss its heartbeats is dead
    to Ray, and would be missing in every repetition too."""
    node = cluster.add_node(num_cpus=1)
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


@pytest.fixture
def marks(tmp_path: Path) -> str:
    return str(tmp_path)


def grounds_of(marks: str, **settings: Any) -> tuple[ClusterExecutor, Counter]:
    """Grounds whose workers make the world from a file of the user's."""
    world = Counter(6)
    maker = functools.partial(rebuild_tasks, {**WORLD, "marks": marks}, 0, "train")
    return ClusterExecutor([(world, maker)], **{"workers": 2, **settings}), world


def test_whoever_dies_the_episodes_say_what_they_say(other: Any, marks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undisturbed; with workers that die in the middle of a step; and with one step that kills whoever plays it."""
    grounds, world = grounds_of(marks)
    assert played(grounds, world, SCRIPT) == played(InlineExecutor(), world, SCRIPT)
    assert not any(grounds.counts.values())
    with pytest.raises(EpisodeError, match="counter/1 was told to fail"):
        played(grounds, world, [["1"], ["error"]])

    died = [["1", "die", "3"], *SCRIPT[1:]]
    (Path(marks) / "counter-0").touch()  # so that it does not die here
    here = played(InlineExecutor(), Counter(6, marks=marks), died)
    (Path(marks) / "counter-0").unlink()
    assert played(grounds, world, died) == here
    # Its worker's other episodes had to be played again too, each of them once.
    assert 1 <= grounds.again <= 6
    assert grounds.lost == 0

    monkeypatch.setattr(cluster_episodes, "DEATHS", 2)
    again, deadly = grounds.again, [*SCRIPT[:2], ["7", "die always"], *SCRIPT[3:]]
    found = played(grounds, world, deadly)
    want = played(InlineExecutor(), world, SCRIPT)
    want[2] = [*want[2], LOST]
    assert found == want
    assert grounds.lost == 1
    assert grounds.again > again


def test_who_hangs_is_ended_and_who_strays_is_given_up(other: Any, marks: str) -> None:
    grounds, world = grounds_of(marks, workers=1, threads=2, timeout=3.0)
    script = [["1", "hang", "3"], ["stray", "2", "3"], *SCRIPT[2:]]
    want = played(InlineExecutor(), world, [["1"], ["1", "2"], *SCRIPT[2:]])
    want[0] += [LOST, LOST]
    found = played(grounds, world, script)
    # The worker that had said who it is ended with the one that hung: no other can say so again.
    pid = found[1][1].observation.partition(" ")[2]
    assert pid.isdigit()
    for turn in (1, 2):
        want[1][turn] = want[1][turn]._replace(observation=f"{want[1][turn].observation} {pid}")
    want[1].append(LOST)
    assert found == want
    assert grounds.lost == 2


def test_a_run_on_a_cluster_is_the_run(other: Any, tmp_path: Path) -> None:
    sft = {"method": "sft", "steps": 2, "rows": 8, "optimiser": {"lr": 0.01}}
    rl = {"method": "grpo", "steps": 2, "rows": 8, "group": 4}
    config = {"config": {**MODEL, "n_positions": 256}}
    settings = {"tasks": GUESS, "policy": config, "limit": 4, "stages": {"sft": sft, "rl": rl}}
    far = {"where": "cluster", "workers": 1, "threads": 2}
    for name, changes in {"here": {}, "cluster": {"episodes": far}}.items():
        train(recipe(**settings, **changes), tmp_path / name)
    assert outcome(tmp_path / "cluster") == outcome(tmp_path / "here")


def test_a_world_that_cannot_be_made_is_said_at_the_door(other: Any) -> None:
    maker = functools.partial(rebuild_tasks, {**WORLD, "siez": 3}, 0, "train")
    with pytest.raises(ConfigError, match=r"a worker cannot make the world: .*siez"):
        ClusterExecutor([(Counter(6), maker)], workers=1)


def test_a_node_that_goes_takes_nothing_with_it(cluster: Any, other: Any, marks: str) -> None:
    """Its workers end in the middle of a step."""
    for _ in range(5):  # a node that is slow to begin a worker passes it on
        grounds = ClusterExecutor(workers=3)  # one a node, that of the head included; the world is sent as it is
        where = dict(ray.get(worker.actor.__ray_call__.remote(_node_and_process)) for worker in grounds.workers)
        if len(where) == 3:
            break
    process = Path(f"/proc/{where[other.node_id]}")

    def remove() -> None:
        cluster.remove_node(other, False)
        while process.exists():
            time.sleep(0.02)
        (Path(marks) / "go").touch()

    script = [["1", "linger", *actions[2:]] for actions in SCRIPT]
    removal = threading.Timer(0.4, remove)
    removal.start()
    found = played(grounds, Counter(6, marks=marks), script)
    removal.join()
    assert found == played(InlineExecutor(), Counter(6, marks=marks), script)
    assert grounds.again == 2
    assert grounds.lost == 0


def _node_and_process(_: Any) -> tuple[str, int]:
    return str(ray.get_runtime_context().get_node_id()), os.getpid()
