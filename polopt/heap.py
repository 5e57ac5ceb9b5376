"""Reuse of freed memory: the process keeps the memory of large tensors for those of the next step."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

# Variables with which a user overrides this.
SETTINGS = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
# Constants of glibc's <malloc.h> for two settings: the amount of free memory at the end of the heap that is returned to
# the system, and the size from which an allocation gets a memory mapping of its own.
TRIM, MMAP = -1, -3


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Makes this process, inside and from then on, reuse freed memory instead of requesting it from the system again.

    glibc returns tensors of more than 32 MiB to the system at once. The same memory comes back page by page, each
    of them cleared and mapped when it is first written: on a virtual machine that takes longer than the arithmetic on
    it. At the end, what is free goes back to the system. Of no effect with other C libraries, or where the user has set
    one of `SETTINGS`.
    """
    library = _glibc()
    if library is None or any(name in os.environ for name in SETTINGS):
        yield
        return
    library.mallopt(MMAP, 2**30)
    library.mallopt(TRIM, 2**31 - 1)
    try:
        yield
    finally:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None
