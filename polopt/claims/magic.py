"""These programs measure what the paper of MAGIC claims."""

import dataclasses

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.lab.logged import long_walk, with_values
from polopt.methods.magic import magic
from polopt.metrics import DirectMethod, DoublyRobust, LoggedValues, OffPolicyEstimator, blended, least_on_simplex

GIVEN = LoggedValues()


def error(metric: OffPolicyEstimator, seed: int, scale: float, logs: int = 20, episodes: int = 200) -> float:
    """Returns the root of the mean squared error over logs of 10 decisions, with `scale` times the true values."""
    problem, behaviour, target = long_walk(10, seed)
    problem = dataclasses.replace(problem, reward=problem.reward + 1)  # values of which no multiple is right
    q = scale * problem.values(target, 1.0)[0]
    table = with_values(problem.simulate(behaviour, target, episodes * logs, seed + 1_000_000), q, target)
    found = [metric.terms(table[np.arange(at, at + episodes)]).estimate() for at in range(0, len(table), episodes)]
    return float(np.sqrt(np.mean((np.array(found) - problem.value(target, 1.0)) ** 2)))


@effect(
    "Whether the model is good or bad, it is not far from the better of the model alone and the weighted doubly robust "
    "estimate, each of which can be several times worse than the other.",
    kind="headline",
    method=lambda: magic(model=GIVEN),
    controls={
        "the model alone": lambda: DirectMethod(model=GIVEN),
        "weighted doubly robust": lambda: DoublyRobust(model=GIVEN, self_normalised=True),
    },
    criteria=[Less("error over the better one's", times=0.7)],
    seeds=15,
    note="The larger of two quotients, with values that are 0.99 and 0.3 times the true ones. Errors are root mean "
    "squared, over 20 logs of 200 episodes of 10 decisions.",
)
def finds_the_better(metric: OffPolicyEstimator, *, seed: int) -> dict[str, float]:
    both = DirectMethod(model=GIVEN), DoublyRobust(model=GIVEN, self_normalised=True)
    quotients = [error(metric, seed, x) / min(error(end, seed, x) for end in both) for x in (0.99, 0.3)]
    return {"error over the better one's": max(quotients)}


@claim(
    "Its ends are the model's value and the weighted doubly robust estimate, and each step between corrects one "
    "decision more.",
    kind="identity",
    baseline="the end of the other side",
)
def ends() -> Finding:
    off = {"no correction": 0.0, "all": 0.0, "four": 0.0}
    apart = np.inf
    for seed in range(5):
        problem, behaviour, target = long_walk(10, seed)
        table = with_values(problem.simulate(behaviour, target, 200, seed), problem.values(target, 0.9)[0] / 2, target)
        terms = blended.BlendedReturns(gamma=0.9, model=GIVEN).doubly_robust(table)
        found = blended._partial_sums(terms.weight * terms.value).mean(0)
        whole = DoublyRobust(gamma=0.9, model=GIVEN, self_normalised=True).terms(table).estimate()
        model = DirectMethod(gamma=0.9, model=GIVEN).terms(table).estimate()
        # By hand: the ratios' means by step, four corrected decisions, and the model's value of the fifth state.
        ratio = np.exp(table.log_weights())
        w = np.concatenate([np.ones((200, 1)), ratio / ratio.mean(0)], 1)
        assert table.q is not None
        assert table.v is not None
        corrected = w[:, 1:] * (table.reward - table.q) + w[:, :-1] * table.v
        rest = 0.9**4 * w[:, 4] * table.v[:, 4]
        four = float(np.mean(corrected[:, :4] @ 0.9 ** np.arange(4) + rest))
        off["no correction"] = max(off["no correction"], abs(found[0] - model))
        off["all"] = max(off["all"], abs(found[-1] - whole))
        off["four"] = max(off["four"], abs(found[4] - four))
        apart = min(apart, abs(found[0] - found[-1]))
    return Finding(
        measured={**{f"distance, {name}": x for name, x in off.items()}, "between the ends": float(apart)},
        criterion="distances < 1e-9, between the ends > 1e-3",
        holds=max(off.values()) < 1e-9 and apart > 1e-3,
    )


@claim(
    "The weights have the least estimated error of all that are 0 or more and add up to 1.",
    kind="identity",
    baseline="equal weights",
)
def least() -> Finding:
    from scipy.optimize import minimize

    off, equal = 0.0, np.inf
    for seed in range(20):
        draw = np.random.default_rng(seed)
        factor, bias = draw.normal(size=(5, 5)), draw.normal(size=5)
        matrix = factor @ factor.T / 10 + np.outer(bias, bias)
        x = least_on_simplex(matrix)
        best = minimize(
            lambda x, matrix=matrix: x @ matrix @ x,
            np.full(5, 0.2),
            jac=lambda x, matrix=matrix: 2 * matrix @ x,
            method="SLSQP",
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        ).fun
        off = max(off, float(x @ matrix @ x) - best, abs(x.sum() - 1), -x.min())
        equal = min(equal, float(np.full(5, 0.2) @ matrix @ np.full(5, 0.2)) - best)
    return Finding(
        measured={"above the least": off, "of equal weights": equal},
        criterion="the first < 1e-7, the second > 1e-3, on 20 random matrices",
        holds=off < 1e-7 and equal > 1e-3,
        note="The least comes from a general solver with constraints.",
    )


@mutation("The model is trusted whatever the log says.", kills=finds_the_better)
def always_the_model(replace: Replace) -> None:
    replace(blended, "least_on_simplex", lambda matrix: np.eye(len(matrix))[0])


@mutation("A step's correction is left out of the estimate of its own length.", kills=ends)
def one_less(replace: Replace) -> None:
    sums = blended._partial_sums

    def late(product: np.ndarray) -> np.ndarray:
        found = sums(product)
        return np.concatenate([found[:, :1], found[:, :-1]], 1)

    replace(blended, "_partial_sums", late)
