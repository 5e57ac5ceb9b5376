"""Requests to scorers that hang, bloat, die or break out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hostile
import pytest

from polopt.worlds.scoring.verdict import Request

SECONDS = 0.6
HOSTILE = str(Path(hostile.__file__).resolve())
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what the kernel forbids is Linux's to forbid")


def asked(function: str, answer: str, **row: Any) -> Request:
    return Request({"scorer": "function", "name": f"{HOSTILE}:{function}"}, row, answer)
