"""Displays of a run in training: on a terminal, in a log, in a notebook."""

from __future__ import annotations

import os


def leading() -> bool:
    """Returns True in the process that prints: rank 0 under `torchrun`, or the only process."""
    return os.environ.get("RANK", "0") == "0"
