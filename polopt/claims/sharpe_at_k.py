"""These programs measure what the paper of SharpeRatio@k claims."""

import dataclasses

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.logged import long_walk
from polopt.methods.pdis import pdis
from polopt.methods.sharpe_at_k import SharpeRatio, sharpe_at_k
from polopt.metrics import EstimatedPolicies, OffPolicyEstimator, TrajectoryImportanceSampling, t_interval

ESTIMATORS: dict[str, OffPolicyEstimator] = {
    "pdis": pdis(),
    "pdis, self-normalised": pdis(self_normalised=True),
    "trajectories": TrajectoryImportanceSampling(),
    "trajectories, self-normalised": TrajectoryImportanceSampling(self_normalised=True),
}
CANDIDATES, LOGS = 12, 100


def estimates(seed: int) -> list[EstimatedPolicies]:
    """Returns, of each log of 30 episodes of a random problem, what four estimators say of twelve policies, the first
    of which is the behaviour policy."""
    problem, behaviour, _ = long_walk(5, seed)
    draw = np.random.default_rng(seed)
    policies = [behaviour, *(draw.dirichlet(np.full(2, 0.7), 4) * 0.98 + 0.01 for _ in range(CANDIDATES - 1))]
    truth = [problem.value(policy, 1.0) for policy in policies]
    found = []
    for log in range(LOGS):
        table = problem.simulate(behaviour, behaviour, 30, 1000 * seed + log)
        assert table.state is not None
        assert table.action is not None
        guesses = []
        for policy in policies:
            target = dataclasses.replace(table, target_logp=np.log(policy)[table.state, table.action])
            guesses += [metric.terms(target).estimate() for metric in ESTIMATORS.values()]
        found.append(
            EstimatedPolicies(
                estimator=[name for _ in policies for name in ESTIMATORS],
                policy=[f"{i:02}" for i in range(CANDIDATES) for _ in ESTIMATORS],
                estimate=guesses,
                value=np.repeat(truth, len(ESTIMATORS)),
                behaviour=np.repeat(np.arange(CANDIDATES) == 0, len(ESTIMATORS)),
            )
        )
    return found


def best(metric: SharpeRatio, data: EstimatedPolicies, score: str, sign: float) -> str:
    """Returns the estimator that a score puts first; of equals the first."""
    values = metric(data).values
    return max(ESTIMATORS, key=lambda name: sign * np.nan_to_num(values[f"{name}, {score}"], nan=-np.inf))


@claim(
    "It names another estimator as the best than the mean squared error does, in a fifth of all logs or more.",
    kind="part",
    baseline="none: the rank correlation, a score of accuracy, names another one than the error in half of the logs",
)
def other_order() -> Finding:
    metric = sharpe_at_k(k=(3,))
    shares: list[float] = []
    ranked: list[float] = []
    for seed in range(3):
        for each, score in ((shares, "SharpeRatio@3"), (ranked, "rank correlation")):
            differ = [best(metric, log, score, 1) != best(metric, log, "RMSE", -1) for log in estimates(seed)]
            each.append(float(np.mean(differ)))
    found = t_interval(shares)
    return Finding(
        measured={"share of logs": found.estimate, "of the rank correlation": float(np.mean(ranked))},
        criterion="more than 0.2 of 100 logs, in each of three random problems",
        holds=min(shares) > 0.2,
        intervals={"share of logs": (found.low, found.high)},
        note="Twelve policies, four estimators, logs of 30 episodes of five decisions. That a score differs does not "
        "make it the better one: that it measures what a portfolio is worth is its definition.",
    )


def opposed() -> EstimatedPolicies:
    """Returns two estimators of ten policies with one mean squared error and one rank correlation."""
    truth = np.arange(1.0, 11.0)
    one = np.array([1.0, 2, 3, 4, -3, 6, -1, 8, 9, 10])
    other = np.array([9.0, 2, 3, 4, 5, 6, 7, 8, 17, 10])
    return EstimatedPolicies(
        estimator=["low"] * 10 + ["high"] * 10,
        policy=[f"{i}" for i in range(10)] * 2,
        estimate=np.concatenate([one, other]),
        value=np.tile(truth, 2),
        behaviour=np.tile(np.arange(10) == 4, 2),
    )


@claim(
    "It tells an estimator that puts a bad policy among the first from one that puts a good one among the last, where "
    "error, rank correlation and regret tell none.",
    kind="part",
    baseline="mean squared error, rank correlation and regret",
)
def overestimates() -> Finding:
    values = sharpe_at_k(k=(3,))(opposed()).values
    gaps = {
        name: abs(values[f"low, {name}"] - values[f"high, {name}"]) for name in ("RMSE", "rank correlation", "regret@3")
    }
    low, high = values["low, SharpeRatio@3"], values["high, SharpeRatio@3"]
    return Finding(
        measured={"underestimates good ones": low, "overestimates a bad one": high, "RMSE": values["low, RMSE"]},
        criterion="(10 - 5) / sqrt(2 / 3) and (10 - 5) / sqrt(146 / 9) to 1e-12; the three others differ by < 1e-12",
        holds=abs(low - 5 / (2 / 3) ** 0.5) < 1e-12
        and abs(high - 5 / (146 / 9) ** 0.5) < 1e-12
        and max(gaps.values()) < 1e-12,
        note="True values 1 to 10; the first three of the estimators are 10, 9, 8 and 9, 10, 1.",
    )


@mutation("The spread is of all candidates.", kills=overestimates)
def spread_of_all(replace: Replace) -> None:
    portfolios = SharpeRatio.portfolios

    def wide(self: SharpeRatio, ranked: np.ndarray, base: float) -> dict[str, float]:
        found = portfolios(self, ranked, base)
        return {**found, **{f"SharpeRatio@{k}": (found[f"best@{k}"] - base) / float(ranked.std()) for k in self.k}}

    replace(SharpeRatio, "portfolios", wide)


@mutation("The portfolio's mean takes the place of its best.", kills=overestimates)
def mean_of_the_portfolio(replace: Replace) -> None:
    portfolios = SharpeRatio.portfolios

    def mean(self: SharpeRatio, ranked: np.ndarray, base: float) -> dict[str, float]:
        found = portfolios(self, ranked, base)
        ratios = {f"SharpeRatio@{k}": (found[f"mean@{k}"] - base) / found[f"std@{k}"] for k in self.k}
        return {**found, **ratios}

    replace(SharpeRatio, "portfolios", mean)
