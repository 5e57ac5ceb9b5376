"""Lengths of answers: the longest determines when a rollout ends, the sum its cost."""

from __future__ import annotations

import dataclasses
import functools
import math
from statistics import NormalDist

from polopt.config import ConfigError
from polopt.plan import flops

_NORMAL = NormalDist()
# Beyond so many rows, equal shares of the distribution represent them.
MOST = 4096


@dataclasses.dataclass(frozen=True)
class BatchLengths:
    """`rows` answers in groups of `group`, each group behind a prompt of `prompt` tokens. lengths: ascending, one for
    each row, or for as many equal shares of them.
    """

    rows: int
    group: int
    prompt: float
    lengths: tuple[float, ...]

    @property
    def each(self) -> float:
        """Rows that one of the lengths represents."""
        return self.rows / len(self.lengths)

    @property
    def prompts(self) -> float:
        return self.rows / self.group

    @property
    def tokens(self) -> float:
        """Tokens of all answers."""
        return self.each * sum(self.lengths)

    @property
    def longest(self) -> float:
        return self.lengths[-1]

    @property
    def mean(self) -> float:
        return sum(self.lengths) / len(self.lengths)

    @property
    def squares(self) -> float:
        """Sum over rows of the square of the answer's length."""
        return self.each * sum(n * n for n in self.lengths)

    @property
    def answer_pairs(self) -> float:
        """Pairs of an answer's token with a key that it sees."""
        return self.tokens * self.prompt + (self.squares + self.tokens) / 2

    @property
    def prompt_pairs(self) -> float:
        return self.prompts * flops.causal(self.prompt)


def typical(rows: int, mean: float, limit: float, spread: float) -> tuple[float, ...]:
    """Lengths of a typical batch, ascending: quantiles (i - 3/8) / (rows + 1/4) (Blom 1958, which are the expected
    order statistics to about a percent) of min(X, limit), X log-normal with std / mean = spread, such that the mean
    is `mean`.

    Raises:
        ConfigError: a mean above the limit, or a negative spread.
    """
    if not 0 < mean <= limit or spread < 0:
        raise ConfigError(
            f"answers of {mean:g} tokens on average with a limit of {limit:g} and a spread of {spread:g}: expected "
            "0 < mean <= limit and spread >= 0"
        )
    count = min(rows, MOST)
    if spread == 0 or mean == limit:
        return (float(mean),) * count
    sigma = math.sqrt(math.log1p(spread**2))
    middle = _median(mean, limit, sigma)
    shares = [(i + 1 - 0.375) / (count + 0.25) for i in range(count)]
    if count < rows:  # the last one is the longest of all rows
        shares[-1] = (rows - 0.375) / (rows + 0.25)
    return tuple(max(1.0, min(limit, math.exp(middle + sigma * _NORMAL.inv_cdf(q)))) for q in shares)


@functools.lru_cache(maxsize=64)
def _median(mean: float, limit: float, sigma: float) -> float:
    """log of the median of X, by bisection: E min(X, limit) rises with it."""
    low, high = math.log(mean) - 1, math.log(limit) + 40 * sigma
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if cut_mean(middle, sigma, limit) < mean else (low, middle)
    return (low + high) / 2


def cut_mean(middle: float, sigma: float, limit: float) -> float:
    """E min(X, T) = e^(m + s^2 / 2) Phi(z - s) + T (1 - Phi(z)), z = (log T - m) / s, of log-normal X."""
    z = (math.log(limit) - middle) / sigma
    return math.exp(middle + sigma**2 / 2) * _NORMAL.cdf(z - sigma) + limit * (1 - _NORMAL.cdf(z))
