"""One thread per worker, the shapes that polopt.ops annotates checked at every call, and the longest tests first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module

import pytest
import torch
from jaxtyping import config, install_import_hook
from shape_checks import check_each_kind_once

# Before anything imports polopt.
install_import_hook("polopt.ops", "beartype.beartype")
check_each_kind_once(import_module("polopt.ops"))
torch.set_num_threads(1)
# The processes that tests begin, too: more threads than cores wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's own workers give way to everybody else (nice 15), and would wait for the other tests to finish.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112

# Files by how many seconds they take, roughly. Each simulates clusters in its turn, or begins many processes, or has
# tests of many seconds: who begins with them is not left alone with one at the end. Files on one line stay together.
LONGEST: dict[tuple[str, ...], int] = {
    ("test_cluster_ray.py", "test_compare_cluster.py", "test_grounds_cluster.py", "test_cluster_source.py"): 280,
    ("test_team.py",): 170,
    ("test_devices.py",): 100,
    ("test_methods.py",): 200,
    ("test_gradients.py",): 80,
    ("test_parts.py",): 70,
    ("test_benchmark.py",): 60,
    ("test_documented_commands.py",): 60,
    ("test_verl_worker.py", "test_trl_runs.py"): 60,
    ("test_check.py",): 45,
}


# Whether no test has run yet.
FIRST = pytest.StashKey[bool]()


@pytest.fixture
def shapes_unchecked() -> Iterator[None]:
    """For tests that measure with some hundred thousand calls, of which every one would be checked at twice its cost;
    the same functions are checked wherever else they are called."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIRST] = True


def pytest_runtest_setup(item: pytest.Item) -> None:
    """One of xdist's workers begins with the simulated clusters, whose tests wait for many processes in turn: the
    others give way to it."""
    if item.config.stash[FIRST]:
        item.config.stash[FIRST] = False
        if "PYTEST_XDIST_WORKER" in os.environ and item.path.parent.name != "cluster":
            os.nice(10)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deal the longest files out to xdist's workers, which begin with equal stretches of the list and then steal from
    the ends of each other's."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    loads, first = [0] * workers, [list[pytest.Item]() for _ in range(workers)]
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.path.name, []).append(item)
    for files, seconds in sorted(LONGEST.items(), key=lambda pair: -pair[1]):
        worker = loads.index(min(loads))
        loads[worker] += seconds
        first[worker] += [item for name in files for item in by_file.pop(name, [])]
    rest = [item for found in by_file.values() for item in found]
    share, start = -(-len(items) // workers), 0
    dealt: list[pytest.Item] = []
    for worker, longest in enumerate(first):
        room = max(0, share - len(longest)) if worker < workers - 1 else len(rest)
        dealt += longest + rest[start : start + room]
        start += room
    items[:] = dealt + rest[start:]
