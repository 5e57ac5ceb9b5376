"""What a batch type costs on small batches: polopt's `Experience` against tensordict's tensorclass.

    python benchmarks/batch.py        (needs: pip install tensordict)

Three operations that every training step does many times: build a batch of eight fields, add one field, index
half of the rows. Median microseconds over many repeats, single thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from tensordict import tensorclass
from torch import Tensor

from polopt import Experience

B, T, REPEATS = 64, 32, 2000


@tensorclass
class Batch:
    mask: Tensor
    logp: Tensor
    entropy: Tensor
    reward: Tensor
    outcome: Tensor
    group: Tensor
    terminated: Tensor
    truncated: Tensor
    advantage: Tensor | None = None


def fields() -> dict[str, Tensor]:
    return {
        "mask": torch.ones(B, T, dtype=torch.bool),
        "logp": torch.zeros(B, T),
        "entropy": torch.zeros(B, T),
        "reward": torch.zeros(B),
        "outcome": torch.zeros(B),
        "group": torch.arange(B),
        "terminated": torch.ones(B, dtype=torch.bool),
        "truncated": torch.zeros(B, dtype=torch.bool),
    }


def microseconds(run: Callable[[], object]) -> float:
    for _ in range(100):
        run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> None:
    torch.set_num_threads(1)
    data, advantage, rows = fields(), torch.zeros(B, T), torch.arange(0, B, 2)
    experience, tensorclass = Experience(**data), Batch(**data, batch_size=[B])
    table = {
        "build": (lambda: Experience(**data), lambda: Batch(**data, batch_size=[B])),
        "add a field": (
            lambda: experience.replace(advantage=advantage),
            lambda: tensorclass.replace(advantage=advantage),
        ),
        "index rows": (lambda: experience[rows], lambda: tensorclass[rows]),
    }
    print(f"| operation (B={B}, T={T}) | polopt, us | tensorclass, us | ratio |\n|---|---|---|---|")
    for name, (a, b) in table.items():
        x, y = microseconds(a), microseconds(b)
        print(f"| {name} | {x:.0f} | {y:.0f} | {y / x:.1f} |")


if __name__ == "__main__":
    main()
