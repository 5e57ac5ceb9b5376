"""CANON: the two halves of a group, by entropy or length, are each other's baseline."""

import torch

from polopt.algorithm import Algorithm
from polopt.credit import FieldMeasure, GroupMean, HalfGroupAdvantage, MeanEntropy, Measure, RelativeAdvantage
from polopt.experience import Experience
from polopt.method import Finding, Paper, method
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
    by: Measure = MeanEntropy(),  # noqa: B008
    mu: float | Schedule | Measure = 1.0,
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

    Answers level at the border count in both halves, by their share; the authors' stable sort puts those sampled
    first in the lower half. mu = 1/2 on an even group is Dr. GRPO.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=HalfGroupAdvantage(by=by.but(), mu=mu.but() if isinstance(mu, Part) else mu, upper=upper, lower=lower),
        objective=Surrogate(
            ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=SequenceSum(length=length)
        ),
    )


@canon.claim("mu = 1/2 is Dr. GRPO on even groups, and is not on odd ones.", baseline="R minus the group's mean")
def identity() -> Finding:
    plain, half = (
        RelativeAdvantage(baseline=GroupMean(), scale=None),
        HalfGroupAdvantage(by=FieldMeasure(name="x"), mu=0.5),
    )
    off = {}
    for size in (16, 15):
        batch = _batch(slope=1.5, size=size, groups=100)
        off[size] = (half(batch) - plain(batch)).abs().max().item()
    return Finding(
        measured={f"largest difference, groups of {n}": v for n, v in off.items()},
        criterion="< 1e-12 for 16, > 1e-3 for 15",
        holds=off[16] < 1e-12 and off[15] > 1e-3,
    )


@canon.claim("Amplifies the pull towards what goes with reward, whichever direction that is.", baseline="Dr. GRPO")
def direction_free() -> Finding:
    plain, inter = RelativeAdvantage(baseline=GroupMean(), scale=None), HalfGroupAdvantage(by=FieldMeasure(name="x"))
    gain, measured = {}, {}
    for slope in (1.5, -1.5):
        batch = _batch(slope, size=16, groups=3000)
        pulls = [(c(batch)[:, 0] * batch.extras["x"]).view(3000, 16).mean(1) for c in (plain, inter)]
        gain[slope] = (pulls[1].mean() / pulls[0].mean()).item()
        for name, pull in zip(("Dr. GRPO", "inter"), pulls, strict=True):
            measured[f"pull, slope {slope:g}, {name}"] = pull.mean().item()
            measured[f"pull over its std, slope {slope:g}, {name}"] = (pull.mean() / pull.std()).item()
    measured |= {f"gain, slope {slope:g}": value for slope, value in gain.items()}
    return Finding(
        measured=measured,
        criterion="both gains in [1.5, 1.8], and within 0.1 of each other",
        holds=all(1.5 < g < 1.8 for g in gain.values()) and abs(gain[1.5] - gain[-1.5]) < 0.1,
        note="It amplifies the size of the pull, not its signal-to-noise ratio, which falls from 2.4 to 2.1: a larger "
        "step along this direction, not a clearer view of it.",
    )


def _batch(slope: float, size: int, groups: int) -> Experience:
    """Rewards of 0 and 1 with odds exp(slope x), x normal and noted of each row."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size * groups, generator=generator, dtype=torch.double)
    return Experience(
        mask=torch.ones(len(x), 1).bool(),
        reward=torch.bernoulli(torch.sigmoid(slope * x), generator=generator),
        group=torch.arange(groups).repeat_interleave(size),
        extras={"x": x},
    )
