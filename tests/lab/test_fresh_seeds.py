"""Fresh seeds: all generators of a process begin elsewhere, and claims are counted over them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from polopt import catalogue
from polopt.catalogue import ClaimResult, SeededClaim, run_on_seeds

DRAWS = """
import random, sys
import numpy as np
import torch
from polopt.lab.fresh_seeds import APART, shift_seeds
shift_seeds(int(sys.argv[1]))
start = int(sys.argv[2])
torch.manual_seed(start)
print(
    torch.rand(1).item(),
    torch.rand(1, generator=torch.Generator().manual_seed(start)).item(),
    np.random.default_rng(start).random(),
    random.Random(start).random(),
)
"""


def draws(number: int, seed: int) -> list[float]:
    command = [sys.executable, "-c", DRAWS, str(number), str(seed)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(x) for x in out.split()]


def test_every_generator_is_shifted_by_one_amount() -> None:
    from polopt.lab.fresh_seeds import APART

    own, fresh = draws(0, 5), draws(2, 5)
    assert all(a != b for a, b in zip(own, fresh, strict=True))
    assert fresh == draws(0, 5 + 2 * APART)
    assert fresh == draws(2, 5)


def test_claims_on_seeds() -> None:
    """An identity holds on each; its own seeds are the first result, as `run_claim` has it."""
    planned = [("grpo", "difficulty"), ("rft", "diversity")]
    exact, sampled = run_on_seeds(planned, 3)
    assert (exact.held, len(exact.rows)) == (3, 3)
    alone = catalogue.run_claim(planned[1])
    assert sampled.rows[0].measured == alone.measured
    values = [tuple(row.measured.values()) for row in sampled.rows]
    assert len(set(values)) == 3
    with pytest.raises(ValueError, match="seeds must be at least 1, found 0"):
        list(run_on_seeds(planned, 0))


def test_what_holds_on_some_seeds_is_counted() -> None:
    rows = tuple(
        ClaimResult("a", "b", "headline", "s", "base", "c", {"x": 1.0}, holds, 1.0, "fast", "")
        for holds in (True, False)
    )
    assert SeededClaim(rows).held == 1
    with pytest.raises(ValueError, match="needs a result"):
        SeededClaim(())
