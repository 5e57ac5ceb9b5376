"""What the two sides share: how a process is started, timed and weighed."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.spec import Spec

Measured = dict[str, Any]


def resident() -> int:
    """Bytes of memory that this process holds now (Linux); elsewhere the most it has held so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    """The most bytes that this process has held."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def settle(spec: Spec) -> None:
    """Wait until the device has finished: a clock read before would stop too early."""
    if spec.device != "cpu":
        import torch

        torch.cuda.synchronize()


def start_afresh(spec: Spec) -> int:
    """Give back the warm-up's memory and forget its peak; bytes of device memory that are held nevertheless."""
    gc.collect()
    if spec.device == "cpu":
        return 0
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def device_memory(spec: Spec, held: int) -> dict[str, int] | None:
    """Since `start_afresh`, the most bytes of device memory in tensors, without those `held` from before, and the
    most that was taken from the device."""
    if spec.device == "cpu":
        return None
    import torch

    most = torch.cuda.max_memory_allocated()
    return {"allocated": most - held, "reserved": torch.cuda.max_memory_reserved(), "held": held}


class Stopwatch:
    """Seconds of training, without the evaluations in between."""

    def __init__(self) -> None:
        self.total = 0.0
        self.resume()

    def resume(self) -> None:
        self._mark = time.perf_counter(), time.process_time()

    def lap(self) -> dict[str, float]:
        """Seconds of the clock, and of processors, since the last lap or resume; the former join the total."""
        now = time.perf_counter(), time.process_time()
        lap = {"whole": now[0] - self._mark[0], "cpu": now[1] - self._mark[1]}
        self._mark = now
        self.total += lap["whole"]
        return lap


def work(measure: Callable[[Spec], Measured]) -> None:
    """Read the specification named on the command line, measure, write the result to the second name."""
    spec = Spec.load(Path(sys.argv[1]))
    import torch

    torch.set_num_threads(spec.threads)
    before = os.getloadavg()[0]
    if spec.warm:
        measure(dataclasses.replace(spec, limit=spec.warm, steps=1))
    held = start_afresh(spec)
    result = measure(spec)
    result |= {"peak": peak(), "load": [before, os.getloadavg()[0]], "gpu": device_memory(spec, held)}
    Path(sys.argv[2]).write_text(json.dumps(result))
