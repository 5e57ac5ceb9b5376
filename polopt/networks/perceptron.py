"""Multilayer perceptrons of policies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

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
