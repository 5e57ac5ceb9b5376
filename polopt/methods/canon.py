"""CANON: each half of a group, split by entropy or length, is the baseline of the other."""

from polopt.algorithm import Algorithm
from polopt.credit import HalfGroupAdvantage
from polopt.features.base import RowFeature
from polopt.features.rows import MeanEntropy
from polopt.method import Paper, method
from polopt.objectives import Clip, SequenceSum, Surrogate, TokenRatio
from polopt.part import Part
from polopt.sampling import Rollouts
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="Conditional Advantage Estimation for Reinforcement Learning in Large Reasoning Models",
        authors="Chen, Guanxu and others",
        year=2025,
        arxiv="2509.23962",
    ),
    changes="Dr. GRPO whose baseline is the mean of the group's other half, by a measure such as entropy or length.",
    room="credit",
    tier="faithful",
)
def canon(
    *,
    group: int = 16,
    by: RowFeature = MeanEntropy(),  # noqa: B008
    mu: float | Schedule | RowFeature = 1.0,
    upper: float = 1.0,
    lower: float = 1.0,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = 3.0,
    length: int | None = None,
) -> Algorithm:
    """A = mu A_inter + (1 - mu) A_intra: R against the mean of the group's other half and of its own; see
    `credit.HalfGroupAdvantage`. Sum over tokens, mean over answers, over a constant `length` (None: the horizon), as
    Dr. GRPO.
    dual: the term of a negative advantage is at most -dual A, as in the authors' program (None: no such bound).

    mu: a number, a `Schedule` (cosine with restarts: knots and shapes), or `SuccessRate()` of the batch; with
    `invert=True` the other way round. by: `MeanEntropy()` of the sampler or `DecisionCount()`.

    upper, lower: the authors' alpha multiplies the returns of one half where halves are compared: of the lower half by
    entropy (lower=alpha), of the long one by length (upper=alpha). Their code's `_lambda` is the paper's mu.

    Answers tied at the border count in both halves, by their share; the authors' stable sort puts those sampled
    first in the lower half. mu = 1/2 on an even group is Dr. GRPO.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=HalfGroupAdvantage(by=by.but(), mu=mu.but() if isinstance(mu, Part) else mu, upper=upper, lower=lower),
        objective=Surrogate(
            ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=SequenceSum(length=length)
        ),
    )
