"""Sums of weighted terms over episodes: their mean or ratio, its interval, and the effective sample size."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from polopt.errors import UserError
from polopt.metrics.intervals import Interval

Numbers = NDArray[np.float64]

# An interval with a smaller effective sample size, or with an episode of a larger share, is unreliable.
FEW_EFFECTIVE, LARGE_SHARE = 30, 0.1
# Episodes up to which the bootstrap is corrected, which leaves each out once.
MOST_CORRECTED = 5_000
# Standard errors between the mean weight and 1 beyond sampling error.
FAR_FROM_ONE = 4.0


class WeightsError(UserError, ValueError):
    """Importance weights from which nothing can be estimated; the message names the reason and the fix."""


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedTerms:
    """sum_k sum_i w_ik y_ik / n, or, self-normalised, sum_k (sum_i w_ik y_ik / sum_i w_ik).

    log_weight, value: [B, K]. importance: [B, T] log of the cumulative importance weights, None if there are none. A
    column whose weights are all 0 adds 0.

    Raises:
        WeightsError: every weight of the last decisions is 0, or, not self-normalised, a weight overflows.
    """

    log_weight: Numbers
    value: Numbers
    self_normalised: bool
    importance: Numbers | None

    def __post_init__(self) -> None:
        top = self.log_weight.max()
        if top == -np.inf:
            if self.importance is not None and (self.importance[:, -1] > -np.inf).any():
                raise WeightsError("the limit leaves no weight above 0; raise it, or take an estimator with a model")
            raise WeightsError(
                "no logged episode is possible under the target policy: it never takes some logged action of each; "
                "log episodes of a policy that is closer to it"
            )
        if not self.self_normalised and top > 600:
            raise WeightsError(
                f"a weight is e^{top:.0f}, too large for a mean; set self_normalised=true, or log episodes of a policy "
                "that is closer to the target policy"
            )

    @functools.cached_property
    def _scaled(self) -> Numbers:
        """Weights as multiples of the column's largest one, [B, K], which never overflow."""
        top = self.log_weight.max(0)
        scaled = self.log_weight - np.where(np.isfinite(top), top, 0.0)
        return np.exp(scaled, out=scaled)

    @functools.cached_property
    def weight(self) -> Numbers:
        """Weights w, [B, K], as multiples of the column's mean where self-normalised."""
        if not self.self_normalised:
            return np.exp(self.log_weight)
        mean = self._scaled.mean(0)
        return self._scaled / np.where(mean > 0, mean, 1.0)

    def estimate(self) -> float:
        weight = self._scaled if self.self_normalised else self.weight
        below = weight.sum(0) if self.self_normalised else np.full(weight.shape[1], float(len(weight)))
        return float((np.einsum("bk,bk->k", weight, self.value) / np.where(below > 0, below, 1.0)).sum())

    def influence(self) -> Numbers:
        """Returns one number for each episode, [B], whose mean is the estimate: its own terms, or the linearised
        ratio's, m + w (y - m) with the column's weighted mean m."""
        if not self.self_normalised:
            return (self.weight * self.value).sum(1)
        mean = (self.weight * self.value).mean(0)
        return (mean + self.weight * (self.value - mean)).sum(1)

    def interval(self, kind: str, level: float, resamples: int, seed: int) -> Interval:
        """Computes the interval over episodes. kind: "t", "normal" or "bootstrap" (bias-corrected and accelerated up to
        5,000 episodes, where the correction still matters, percentiles beyond)."""
        x, estimate = self.influence(), self.estimate()
        n = len(x)
        if n == 1:
            return Interval(estimate, -np.inf, np.inf, level, 1)
        if kind == "bootstrap":
            return self._bootstrapped(level, resamples, seed)
        from scipy import stats

        error = float(x.std(ddof=1)) / n**0.5
        tail = stats.t(n - 1) if kind == "t" else stats.norm
        half = float(tail.ppf((1 + level) / 2)) * error
        return Interval(estimate, estimate - half, estimate + half, level, n)

    def _bootstrapped(self, level: float, resamples: int, seed: int) -> Interval:
        from scipy import stats

        # Sorted, so that the order of the episodes changes no draw.
        order = np.lexsort((*self.value.T, *self.weight.T, self.influence()))
        weight, product = self.weight[order], (self.weight * self.value)[order]
        if not self.self_normalised:  # columns of one divisor are one column
            weight, product = weight[:, :1], product.sum(1, keepdims=True)
        n, estimate = len(order), self.estimate()
        if np.ptp(product, axis=0).max() == 0 and np.ptp(weight, axis=0).max() == 0:
            return Interval(estimate, estimate, estimate, level, n)

        def statistic(samples: NDArray[np.int64], axis: int = -1) -> Numbers:
            rows = np.moveaxis(samples, axis, -1)
            found = resampled(weight, product, rows.reshape(-1, rows.shape[-1]), self_normalised=self.self_normalised)
            return found.sum(1).reshape(rows.shape[:-1])

        found = stats.bootstrap(
            (np.arange(n),),
            statistic,
            confidence_level=level,
            n_resamples=resamples,
            batch=max(1, 2**22 // n),
            method="BCa" if n <= MOST_CORRECTED else "percentile",
            random_state=np.random.default_rng(seed),
        ).confidence_interval
        return Interval(estimate, float(found.low), float(found.high), level, n)

    @property
    def final_weight(self) -> Numbers:
        """Importance weight of each whole episode, [B], as a multiple of their mean where self-normalised."""
        if self.importance is None:
            return np.ones(len(self.value))
        last = self.importance[:, -1]
        if not self.self_normalised:
            return np.exp(last)
        shifted = np.exp(last - (last.max() if np.isfinite(last.max()) else 0.0))
        return shifted / (shifted.mean() or 1.0)

    def summary(self) -> dict[str, float]:
        """Returns the smallest effective sample size of any column, the largest weight, its share of its column's sum,
        and the mean weight of whole episodes."""
        scaled = self._scaled
        total = scaled.sum(0)
        alive = total > 0
        size = total[alive] ** 2 / np.einsum("bk,bk->k", scaled, scaled)[alive]
        found = {
            "effective_sample_size": float(size.min()) if alive.all() else 0.0,
            "largest_weight": float(np.exp(min(self.log_weight.max(), 700.0))),
            "largest_share": float((1 / total[alive]).max()),
        }
        if self.importance is not None and self.importance[:, -1].max() < 600:
            found["mean_weight"] = float(np.exp(self.importance[:, -1]).mean())
        return found


def resampled(weight: Numbers, product: Numbers, rows: NDArray[np.int64], *, self_normalised: bool) -> Numbers:
    """Returns each column's mean or ratio over resampled episodes, [R, K].

    weight, product: [n, K] weights and weighted values. rows: [R, n] of each resample the indices of its episodes.
    """
    n = len(weight)
    place = (np.arange(len(rows))[:, None] * n + rows).ravel()
    count = np.bincount(place, minlength=len(rows) * n).reshape(len(rows), n).astype(float)
    below = count @ weight if self_normalised else np.full((len(rows), product.shape[1]), float(rows.shape[-1]))
    found: Numbers = np.divide(count @ product, below, out=np.zeros_like(below), where=below > 0)
    return found


def weight_cautions(terms: WeightedTerms) -> list[str]:
    """Returns sentences on why an interval over these weights may be unreliable."""
    if terms.importance is None:
        return []
    found, n = terms.summary(), len(terms.value)
    cautions = []
    if found["effective_sample_size"] < FEW_EFFECTIVE:
        cautions.append(
            f"the weights leave {found['effective_sample_size']:.3g} of {n} episodes, fewer than {FEW_EFFECTIVE}: the "
            "interval is likely too narrow"
        )
    if found["largest_share"] > LARGE_SHARE:
        cautions.append(
            f"one episode has {found['largest_share']:.0%} of all weight: the estimate and its interval hang on it"
        )
    dead = np.flatnonzero((terms.importance == -np.inf).all(0))
    if len(dead):
        cautions.append(
            f"from decision {dead[0]} on no logged episode is possible under the target policy: what it earns there "
            "counts as 0"
        )
    if "mean_weight" in found and n >= FEW_EFFECTIVE:
        weight = np.exp(terms.importance[:, -1])
        error = float(weight.std(ddof=1)) / n**0.5
        if abs(found["mean_weight"] - 1) > FAR_FROM_ONE * error + 1e-9:
            cautions.append(
                f"the weights' mean is {found['mean_weight']:.3g} and must be near 1: the logged probabilities are "
                "wrong, the target policy acts where the behaviour policy never does, or its likeliest episodes were "
                "never drawn"
            )
    return cautions
