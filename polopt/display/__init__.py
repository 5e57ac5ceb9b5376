"""A run while it trains: on a terminal, in a log, in a notebook."""

from __future__ import annotations

import os


def leading() -> bool:
    """Whether this process is the one that prints, of those that `torchrun` has started, if it has."""
    return os.environ.get("RANK", "0") == "0"
