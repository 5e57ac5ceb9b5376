"""Policy evaluation in a learned simulator: how far its values agree with the true ones."""

from __future__ import annotations

import numpy as np

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError
from polopt.metrics.correlation import correlations, rank_correlations
from polopt.metrics.simulated_policies import SIMULATED_ROWS, Numbers, SimulatedPolicies, rank_violations

FEW_POLICIES = 6
# Pairs of policies that are compared at once.
MOST_PAIRS = 2_000_000


@method(
    paper=Paper(
        title="Scalable Policy Evaluation with Video World Models",
        authors="Tseng, Wei-Cheng and Gu, Jinwei and Zhang, Qinsheng and Mao, Hanzi and Liu, Ming-Yu and Shkurti, "
        "Florian and Yen-Chen, Lin",
        year=2025,
        arxiv="2511.11520",
    ),
    changes="Scores a learned simulator by the values that policies have in it: their correlation with the true "
    "values, and how much is lost by its order of the policies.",
    room="metrics",
    tier="reading",
)
def wm_policy_evaluation(*, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> SimulatorAgreement:
    """Agreement of predicted values V and true values R of n policies, of each model:

        MMRV = 1/n sum_i max_j |R_i - R_j| [(V_i < V_j) != (R_i < R_j)]

    the mean maximum rank violation, 0 if the model orders all policies rightly; Pearson's r, the rank correlation, the
    mean of V - R (bias), and its root mean square (RMSE).

    V is the mean success of a policy that is rolled out in the model from real first states:
    `metrics.simulated_value(model, policy, start, horizon, score)`, with any callable as the model;
    `metrics.RandomFeatureDynamics` is a small one for low-dimensional states. The paper's are video models, and a
    vision-language model judges success. Policies should not be those whose data trained the model. A model that has
    seen success alone predicts it of bad policies, too.

    level, resamples, seed: of the percentile bootstrap over policies, which with `trials` draws each true success rate
    anew, too. With few policies it is wide, and says so.

    MMRV's resamples contain a policy several times, which adds no violation: its interval reaches too low. The
    intervals, rank correlation, bias and RMSE are ours.
    """
    return SimulatorAgreement(level=level, resamples=resamples, seed=seed)


class SimulatorAgreement(Metric):
    """Agreement of simulated and true values; settings as those of the method `wm-policy-evaluation`.

    Values are named `MODEL, Pearson r` and so on.
    """

    level: float = 0.95
    resamples: int = 2000
    seed: int = 0

    rows = SIMULATED_ROWS

    def setup(self) -> None:
        if not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                "methods.wm_policy_evaluation.SimulatorAgreement: level must be in (0, 1) and resamples >= 1, found "
                f"{self.level} and {self.resamples}"
            )

    def measure(self, data: SimulatedPolicies) -> Measured:
        """Measures every model.

        Raises:
            MetricError: fewer than two policies of a model.
        """
        values, intervals, cautions = dict[str, float](), dict[str, Interval](), list[str]()
        for model, part in data.by_model().items():
            if len(part) < 2:
                raise MetricError(f"wm-policy-evaluation: model {model!r:.60} has one policy; agreement needs two")
            found = {name: float(value) for name, value in self.agreement(part.predicted, part.true).items()}
            drawn = self.drawn(part)
            if np.isnan(found["Pearson r"]):
                cautions.append(f"{model}: values that are all equal have no correlation")
            for name, value in found.items():
                values[f"{model}, {name}"] = value
                x = drawn[name][np.isfinite(drawn[name])]
                if np.isfinite(value) and len(x):
                    low, high = np.quantile(x, [(1 - self.level) / 2, (1 + self.level) / 2])
                    intervals[f"{model}, {name}"] = Interval(value, float(low), float(high), self.level, len(part))
            if len(part) < FEW_POLICIES:
                cautions.append(f"{model}: {len(part)} policies are few for a correlation; give {FEW_POLICIES} or more")
        return Measured(values, intervals, {}, tuple(cautions))

    def drawn(self, part: SimulatedPolicies) -> dict[str, np.ndarray]:
        """Returns the numbers of each resample of the policies, by name, not finite where all drawn are equal."""
        draw = np.random.default_rng(self.seed)
        rows = draw.integers(len(part), size=(self.resamples, len(part)))
        true = part.true[rows]
        if part.trials is not None:
            trials = part.trials[rows].astype(int)
            true = draw.binomial(trials, true) / trials
        parts = -(-self.resamples * len(part) ** 2 // MOST_PAIRS)
        both = zip(np.array_split(part.predicted[rows], parts), np.array_split(true, parts), strict=True)
        found = [self.agreement(*each) for each in both]
        return {name: np.concatenate([each[name] for each in found]) for name in found[0]}

    def agreement(self, predicted: Numbers, true: Numbers) -> dict[str, Numbers]:
        """Returns the numbers of one model's policies, [..., n], in each row."""
        error = predicted - true
        return {
            "Pearson r": correlations(predicted, true),
            "rank correlation": rank_correlations(predicted, true),
            "MMRV": rank_violations(predicted, true),
            "bias": error.mean(-1),
            "RMSE": np.sqrt((error**2).mean(-1)),
        }
