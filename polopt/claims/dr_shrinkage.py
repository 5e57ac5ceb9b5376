"""These programs measure what the paper of DRos claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.lab.limited_weights import distance, limits_of, squared_error
from polopt.methods.dr_shrinkage import dr_shrinkage
from polopt.metrics import DirectMethod, DoublyRobust, LeastError, LoggedValues, OffPolicyEstimator, ShrunkWeights


@effect(
    "Where some actions were logged rarely it errs less than the doubly robust estimate, and than the model alone.",
    kind="headline",
    method=lambda: dr_shrinkage(model=LoggedValues()),
    controls={
        "doubly robust": lambda: DoublyRobust(model=LoggedValues()),
        "the model alone": lambda: DirectMethod(model=LoggedValues()),
    },
    criteria=[Less("error", times=0.95)],
    seeds=20,
    note="The root of the mean squared error over 50 logs of 400 decisions, on random problems; the model's values "
    "are half of the true ones.",
)
def errs_less(metric: OffPolicyEstimator | LeastError, *, seed: int) -> dict[str, float]:
    return {"error": squared_error(metric, seed) ** 0.5}


@claim(
    "Without shrinkage it is the doubly robust estimate, and with all of it the model's mean value.",
    kind="identity",
    baseline="a strength between",
)
def limits() -> Finding:
    return limits_of(
        lambda size: dr_shrinkage(strength=size, model=LoggedValues()), small=1e-12, large=1e14, between=1.0
    )


@claim(
    "The shrunk weight minimises the bound on the squared error from which it comes, for every weight.",
    kind="theory",
    baseline="the weight clipped at the shrunk weight's largest value",
)
def optimal() -> Finding:
    strength = 4.0
    weight = np.append(np.exp(np.linspace(-5, 5, 41)), strength**0.5)
    found = np.exp(ShrunkWeights(strength=strength)(np.log(weight)[:, None]))[:, 0]
    tried = np.linspace(0, 1, 20_001)[None] * weight[:, None]

    def bound(u: np.ndarray) -> np.ndarray:
        """Returns strength (u - w)^2 / w^2 + u^2 for one decision: what is lost by bias, and the variance."""
        wide = weight[:, None]
        return strength * (u - wide) ** 2 / wide**2 + u**2

    best = tried[np.arange(len(weight)), bound(tried).argmin(1)]
    off = float((np.abs(found - best) / weight).max())
    clipped = np.minimum(weight, strength**0.5 / 2)
    return Finding(
        measured={
            "distance to the best of 20,001, relative": off,
            "of clipped weights": float((np.abs(clipped - best) / weight).max()),
            "largest shrunk weight": float(found.max()),
        },
        criterion="the first < 1e-4, of clipped weights > 0.1; the largest within 1e-3 of sqrt(strength) / 2 = 1",
        holds=off < 1e-4 and (np.abs(clipped - best) / weight).max() > 0.1 and distance(found.max(), 1.0) < 1e-3,
        note="The bound of one decision is strength (u - w)^2 / w^2 + u^2, of the bias and of the variance, with u on "
        "a grid.",
    )


@mutation("Weights are shrunk by w and not by its square.", kills=optimal)
def by_the_weight(replace: Replace) -> None:
    def linear(self: ShrunkWeights, log_weight: np.ndarray) -> np.ndarray:
        return np.log(self.strength) + log_weight - np.logaddexp(log_weight, np.log(self.strength))

    replace(ShrunkWeights, "forward", linear)


@mutation("A strength that grows shrinks more.", kills=limits)
def the_other_way(replace: Replace) -> None:
    forward = ShrunkWeights.forward
    replace(ShrunkWeights, "forward", lambda self, x: forward(self.but(strength=1 / self.strength), x))
