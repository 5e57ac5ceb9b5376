"""Memory that large tensors have freed stays with the process, for those of the next step."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

# What a user sets to decide for himself.
SETTINGS = ("GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
# Numbers by which glibc's <malloc.h> knows two of its settings: how much free memory at the end of the heap is given
# back to the system, and from which size on memory is asked of the system for one tensor alone.
TRIM, MMAP = -1, -3


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Inside, and in this process from then on, freed memory is used again in place of being asked of the system anew.

    glibc gives tensors of more than 32 MiB back to the system at once. The same memory comes back page by page, each
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
