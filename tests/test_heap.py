"""Large tensors that have gone leave their memory to the next."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from polopt.heap import SETTINGS, _glibc

pytestmark = pytest.mark.skipif(_glibc() is None, reason="another C library")
# Pages that a tensor of 64 MiB takes of the system, the first ten times and then, inside, ten times more.
PROGRAM = """
import resource, torch
from polopt.heap import freed_memory_kept

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.zeros(2**24).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

outside = pages()
with freed_memory_kept():
    torch.zeros(2**24).add_(1)
    inside, held = pages(), resident()
print(outside, inside, held - resident())
"""


def counted(**environment: str) -> list[int]:
    plain = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=True)
    return [int(number) for number in done.stdout.split()]


def test_the_memory_of_large_tensors_is_used_again_and_given_back_at_the_end() -> None:
    outside, inside, given_back = counted()
    assert outside > 10 * 2**26 / 65536  # with pages of at most 64 KiB
    assert inside < outside / 2  # where the heap is torn, one tensor or a few
    assert given_back > 2**25


def test_a_user_who_set_the_heap_keeps_his_settings() -> None:
    outside, inside, _ = counted(MALLOC_TOP_PAD_="131072")
    assert inside > outside / 2
