"""A Ray cluster of simulated nodes on this machine, for all the tests of this folder in turn."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# A node that is gone is missed in six seconds, not in a quarter of a minute and more. Not sooner: the head is asked as
# well, on a machine that is busy, and a driver whose node is taken for dead ends at once.
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 12}
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    """A head that has no processor, and a node with one that stays."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets have short names
    (place / "ray").mkdir()
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_TMPDIR", str(place))
    patch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    unneeded = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, **unneeded, "_system_config": HEALTH})
    made.add_node(**NODE)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()
    patch.undo()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def added(cluster: Any) -> Iterator[Callable[[], Any]]:
    """Adds a node with a processor; those that a test has not taken away again go when it ends."""
    before = set(cluster.worker_nodes)
    yield lambda: cluster.add_node(**NODE)
    for node in set(cluster.worker_nodes) - before:
        cluster.remove_node(node)
