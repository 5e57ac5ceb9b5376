"""Fresh seeds: all generators of a process begin elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys

from polopt.lab.fresh_seeds import APART

DRAWS = """
import json, random, sys
import numpy as np
import torch
from polopt.lab.fresh_seeds import shift_seeds
shift_seeds(int(sys.argv[1]))
found = []
for start in map(int, sys.argv[2:]):
    torch.manual_seed(start)
    found.append([
        torch.rand(1).item(),
        torch.rand(1, generator=torch.Generator().manual_seed(start)).item(),
        np.random.default_rng(start).random(),
        random.Random(start).random(),
    ])
print(json.dumps(found))
"""


def draws(number: int, *seeds: int) -> list[list[float]]:
    """One draw of each generator for every seed, in a process whose generators are shifted by `number`."""
    command = [sys.executable, "-c", DRAWS, *map(str, (number, *seeds))]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_every_generator_is_shifted_by_one_amount() -> None:
    own, far = draws(0, 5, 5 + 2 * APART)
    fresh, again = draws(2, 5, 5)
    assert all(a != b for a, b in zip(own, fresh, strict=True))
    assert fresh == far
    assert fresh == again
