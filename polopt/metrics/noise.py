"""The simple gradient noise scale: the batch size beyond which a larger batch gains little."""

from __future__ import annotations

import math
from typing import NamedTuple


class GradientNoise(NamedTuple):
    """signal: estimate of |G|^2, the true gradient's square. noise: estimate of tr(Sigma), the summed
    variance of one example's gradient. Both unbiased, so either may come out negative: average each over
    steps before dividing."""

    signal: float
    noise: float

    @property
    def scale(self) -> float:
        """B_simple = tr(Sigma) / |G|^2, in examples; NaN if the estimated signal is not positive."""
        return max(self.noise, 0.0) / self.signal if self.signal > 0 else math.nan


def gradient_noise(square_small: float, square_big: float, small: int, big: int) -> GradientNoise:
    """Estimates signal and noise of a gradient from its squared norm at two batch sizes.

    The expected squared norm at batch n is |G|^2 + tr(Sigma) / n; two sizes give two equations:

        |G|^2     = (B |g_B|^2 - b |g_b|^2) / (B - b)
        tr(Sigma) = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)

    Args:
        square_small: |g_b|^2 at batch b, best the mean over the micro-batches of a step.
        square_big: |g_B|^2 at batch B, of the whole step.
        small: b, examples in a micro-batch.
        big: B, examples in the step. "Example" is whatever the loss averages over.

    Raises:
        ValueError: unless 1 <= b < B.

    Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", arXiv 1812.06162, app. A.
    """
    if not 1 <= small < big:
        raise ValueError(f"gradient_noise: batch sizes must satisfy 1 <= small < big, found {small} and {big}")
    signal = (big * square_big - small * square_small) / (big - small)
    noise = (square_small - square_big) / (1 / small - 1 / big)
    return GradientNoise(signal, noise)
