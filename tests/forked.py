"""Processes as forks of one that has imported what would take most of their time."""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping

import torch

# Seconds after which a process that hangs is ended.
LONGEST = 400


def alone(work: Callable[[], object]) -> int:
    """Does the work in another process; how that has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(_begin(work, {}), 0)[1])


def run(processes: int, work: Callable[[], object]) -> list[int]:
    """Does the work in each process of a team that finds itself as `torchrun` would begin it; how each has ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    size = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
    team = {**size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    left = {_begin(work, {**team, "RANK": rank, "LOCAL_RANK": rank}) for rank in range(processes)}
    codes = []
    while left:
        pid, status = os.wait()
        left.discard(pid)
        codes.append(os.waitstatus_to_exitcode(status))
        if codes[-1]:  # the others would wait for it
            for other in left:
                os.kill(other, signal.SIGKILL)
    return codes


def _begin(work: Callable[[], object], environment: Mapping[str, object]) -> int:
    if pid := os.fork():
        return pid
    code = 1
    signal.alarm(LONGEST)
    try:
        os.environ |= {name: str(value) for name, value in environment.items()}
        work()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
