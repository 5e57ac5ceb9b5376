"""Fresh seeds: all generators of a process begin elsewhere."""

from __future__ import annotations

import subprocess
import sys

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
