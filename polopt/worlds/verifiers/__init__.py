"""Verifiers: functions that return the value of a completion, given the row that it answers."""

from __future__ import annotations

from polopt.worlds.verifiers.specs import computing, make_verifier
from polopt.worlds.verifiers.weighted import Weighted

__all__ = ["Weighted", "computing", "make_verifier"]
