"""Claims on seeds that nobody has looked at: every generator that a process makes begins elsewhere."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

# Between one seed of a claim and the next: more than any claim counts up to by itself.
APART = 100_003


def shift_seeds(number: int) -> None:
    """Adds `number * APART` to every seed of torch, NumPy and random from now on, until the process ends.

    Problems that are drawn are other problems then, and samples other samples; number 0 changes nothing. For a process
    that does nothing else: what was drawn and kept before stays.
    """
    if not number:
        return
    shift = number * APART

    def shifted(seed: Any) -> Any:
        if isinstance(seed, (int, np.integer)):
            return int(seed) + shift
        return seed if seed is None else f"{seed!r} {number}"

    class Generator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            return super().manual_seed(shifted(seed))

    class Random(random.Random):
        def __init__(self, x: Any = None) -> None:
            super().__init__(shifted(x))

    default_rng, manual_seed = np.random.default_rng, torch.manual_seed
    torch.Generator = Generator  # type: ignore[misc]
    torch.manual_seed = lambda seed: manual_seed(shifted(seed))
    np.random.default_rng = lambda seed=None: default_rng(
        shifted(seed) if isinstance(seed, (int, np.integer)) else seed
    )
    random.Random = Random  # type: ignore[misc]
