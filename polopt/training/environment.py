"""The software and hardware of a run: versions, processor, cores, and the commit of a source checkout."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import polopt

PACKAGES = ("transformers", "numpy", "reasoning-gym")


def environment() -> dict[str, Any]:
    """Returns versions, machine and commit, as written to run.json; a package that is not installed has none."""
    return {
        "polopt": polopt.__version__,
        "commit": commit(),
        "torch": torch.__version__,
        **{name: version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": {"cpu": processor(), "cores": cores(), "system": platform.platform()},
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cores() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def processor() -> str:
    """Returns the processor's model where the system names it, else its architecture."""
    try:
        if platform.system() == "Darwin":
            return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@functools.cache
def commit() -> str | None:
    """Returns the git commit of polopt's source checkout, with `-dirty` where it was edited; None where it is
    installed as a package, or git is not there."""
    root = Path(polopt.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    return _output("git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
