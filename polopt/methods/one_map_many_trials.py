"""One map, many trials: arms compared by a model's predictions, with the predictions' shrinkage undone."""

from __future__ import annotations

import numpy as np

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError
from polopt.metrics.shrinkage import (
    PREDICTED_TRIAL_ROWS,
    LinearShrinkage,
    Numbers,
    PredictedTrial,
    ShrinkageCorrection,
    TweedieShrinkage,
)


@method(
    paper=Paper(
        title="Debiasing Machine Learning Predictions for Causal Inference Without Additional Ground Truth Data: One "
        "Map, Many Trials in Satellite-Driven Poverty Analysis",
        authors="Pettersson, Markus B. and Jerzak, Connor T. and Daoud, Adel",
        year=2025,
        arxiv="2508.01341",
    ),
    changes="Compares arms, or policies, by a model's predictions of the outcome: their shrinkage towards the mean is "
    "undone with calibration pairs first.",
    room="metrics",
    tier="proven",
)
def one_map_many_trials(
    *, tweedie: bool = True, baseline: str = "", level: float = 0.95, resamples: int = 500, seed: int = 0
) -> TrialDifference:
    """Difference of each arm's mean corrected prediction c(p) and the baseline arm's, with, from calibration pairs of
    prediction p and outcome y,

        c(p) = p - sigma^2 f'(p) / f(p),    sigma^2 = Var(p - y),

    Tweedie's correction, f a Gaussian kernel density of the calibration predictions; or the linear calibration
    correction c(p) = (p - m) / k, with p = k y + m regressed over the pairs.

    A model that minimises the squared error predicts E[y | x], whose differences are those of y times k < 1. Both undo
    it without an outcome of the trial. They assume that p depends on the arm through y alone, that calibration pairs
    are held out and of the trial's population, and that the model is as good in the trial. The linear one is exact
    where p is linear in y with independent noise; Tweedie's where p - y is, too, of a wider class of outcomes, two
    modes for one. Of a Gaussian p the two agree. Their variance is 1 / k^2 times that of the predictions. Where the arm
    itself is what the model reads, as the action of a learned reward of state and action, nothing is shrunk, and both
    overshoot.

    Policies with a learned reward are arms: their answers' rewards by the model, and calibration pairs of the model's
    and the true reward.

    tweedie: False takes the linear correction.
    baseline: name of the arm that others are compared with; "" the first by name.
    level, resamples, seed: of the percentile bootstrap over calibration rows and over the rows of each arm.

    The score is the density's exact derivative, and that of the nearest calibration prediction beyond them; the paper's
    published code takes a central difference, also beyond.
    """
    correction = TweedieShrinkage() if tweedie else LinearShrinkage()
    return TrialDifference(correction=correction, baseline=baseline, level=level, resamples=resamples, seed=seed)


class TrialDifference(Metric):
    """Differences of arms by raw and by corrected predictions; settings as those of the method `one-map-many-trials`.

    Values: `ARM - BASELINE, raw` and `ARM - BASELINE, corrected`, and the correction's own numbers.
    """

    correction: ShrinkageCorrection = TweedieShrinkage()
    baseline: str = ""
    level: float = 0.95
    resamples: int = 500
    seed: int = 0

    rows = PREDICTED_TRIAL_ROWS

    def setup(self) -> None:
        if not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                "methods.one_map_many_trials.TrialDifference: level must be in (0, 1) and resamples >= 1, found "
                f"{self.level} and {self.resamples}"
            )

    def measure(self, data: PredictedTrial) -> Measured:
        """Measures every arm but the baseline.

        Raises:
            MetricError: no such baseline, fewer than two arms, or as the correction.
        """
        pairs, arms = data.calibration(), data.arms()
        if len(arms) < 2:
            raise MetricError(f"one-map-many-trials: needs the rows of two arms or more, found {sorted(arms)}")
        baseline = self.baseline or min(arms)
        if baseline not in arms:
            raise MetricError(f"one-map-many-trials: baseline {baseline!r} is none of the arms {sorted(arms)}")
        self.correction.check(*pairs)
        values = self.differences(pairs, arms, baseline)
        draw = np.random.default_rng(self.seed)
        drawn = [self.differences(*self.resampled(draw, pairs, arms), baseline) for _ in range(self.resamples)]
        n = min(len(x) for x in (pairs[0], *arms.values()))
        intervals = {name: self.interval(value, [d[name] for d in drawn], n) for name, value in values.items()}
        cautions = self.correction.doubts(*pairs, np.concatenate(list(arms.values())))
        return Measured(values, intervals, {}, tuple(cautions))

    def differences(self, pairs: tuple[Numbers, Numbers], arms: dict[str, Numbers], baseline: str) -> dict[str, float]:
        """Returns all numbers. pairs: predictions and targets of the calibration rows. arms: predictions by name."""
        ends = np.cumsum([len(x) for x in arms.values()])[:-1]
        parts = np.split(self.correction.corrected(*pairs, np.concatenate(list(arms.values()))), ends)
        corrected = {name: float(x.mean()) for name, x in zip(arms, parts, strict=True)}
        found = {}
        for name in arms:
            if name != baseline:
                found[f"{name} - {baseline}, raw"] = float(arms[name].mean() - arms[baseline].mean())
                found[f"{name} - {baseline}, corrected"] = corrected[name] - corrected[baseline]
        return found | self.correction.summary(*pairs)

    def resampled(
        self, draw: np.random.Generator, pairs: tuple[Numbers, Numbers], arms: dict[str, Numbers]
    ) -> tuple[tuple[Numbers, Numbers], dict[str, Numbers]]:
        """Returns calibration rows and rows of each arm, drawn with replacement."""
        rows = draw.integers(len(pairs[0]), size=len(pairs[0]))
        return (pairs[0][rows], pairs[1][rows]), {name: draw.choice(x, len(x)) for name, x in arms.items()}

    def interval(self, value: float, drawn: list[float], n: int) -> Interval:
        """Returns the percentile interval; a resample without a correction reaches as far as any."""
        finite = np.nan_to_num(np.array(drawn), nan=np.inf)
        low, high = np.quantile(finite, [(1 - self.level) / 2, (1 + self.level) / 2])
        return Interval(value, float(low), float(high), self.level, n)
