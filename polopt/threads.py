"""How the threads of one operation wait for each other. This has to be decided before torch is loaded."""

from __future__ import annotations

import os
import sys

# GNU OpenMP, which torch's wheels for Linux bring, lets a thread that waits spin 300,000 times, some milliseconds,
# before it sleeps. Beside another busy process the thread that is waited for has lost its core, often to the one that
# spins: a decoding step has some hundred short parallel regions and takes ten times its time. A few microseconds of
# spinning keep what it is good for, threads that arrive together.
SPINS = 1000
SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def limit_spinning() -> None:
    """Set GOMP_SPINCOUNT unless the user has set it or OMP_WAIT_POLICY; of no effect where torch is loaded already."""
    if "torch" not in sys.modules and not any(name in os.environ for name in SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
