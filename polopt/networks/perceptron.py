"""Multilayer perceptrons of policies, and random weights of modules that draw their own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Generator, nn

Activation = Literal["tanh", "relu"]


def perceptron(widths: Sequence[int], activation: Activation, gain: float, generator: Generator) -> nn.Sequential:
    """Returns layers with orthogonal weights of gain sqrt(2), the last one of `gain`, and biases of 0."""
    layers: list[nn.Module] = []
    for i, (inner, outer) in enumerate(itertools.pairwise(widths)):
        last = i == len(widths) - 2
        layer = nn.Linear(inner, outer)
        nn.init.orthogonal_(layer.weight, gain if last else math.sqrt(2), generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, nn.Tanh() if activation == "tanh" else nn.ReLU()]
    return nn.Sequential(*layers)


class seeded:
    """Draws initial weights from a generator, and leaves torch's own as it was."""

    def __init__(self, generator: Generator) -> None:
        self.seed = int(torch.randint(2**62, (), generator=generator))

    def __enter__(self) -> None:
        self.fork = torch.random.fork_rng(devices=[])
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error: object) -> None:
        self.fork.__exit__(None, None, None)
