"""These programs measure what the paper of the pseudo-inverse estimator claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.lab.slates import SlateProblem, slates
from polopt.methods.pseudoinverse import pseudoinverse
from polopt.methods.wis import wis
from polopt.metrics import LoggedDecisions, OffPolicyEstimator, PseudoInverse
from polopt.metrics.weighted import WeightedTerms


@effect(
    "From one reward for the whole slate, its standard error is less than 0.75 of that of the product of the "
    "positions' ratios.",
    kind="headline",
    method=pseudoinverse,
    controls={"the whole slate": lambda: wis(self_normalised=False)},
    criteria=[Less("standard error", times=0.75)],
    seeds=20,
    note="Exact, over all slates of seven positions and three items in two contexts; policies are random.",
)
def varies_less(metric: OffPolicyEstimator, *, seed: int) -> dict[str, float]:
    return {"standard error": slates(seed, positions=7).estimated(metric)[1] ** 0.5}


@claim(
    "It is unbiased where a slate's expected reward is a sum over its positions.",
    kind="identity",
    baseline="the same where the item above matters, too",
)
def unbiased() -> Finding:
    off, biased = 0.0, np.inf
    for seed in range(10):
        alone, chained = slates(seed), slates(seed, interaction=1.0)
        off = max(off, abs(alone.estimated(pseudoinverse())[0] - alone.value()))
        biased = min(biased, abs(chained.estimated(pseudoinverse())[0] - chained.value()))
    return Finding(
        measured={"bias": off, "least bias where the item above matters": float(biased)},
        criterion="the first < 1e-12, the second > 1e-4, on ten problems, over all slates",
        holds=off < 1e-12 and biased > 1e-4,
    )


def pseudoinverse_weights(problem: SlateProblem, context: int) -> np.ndarray:
    """Returns q_pi' Gamma^+ 1_s of every slate of a context, from the moments of all slates."""
    import itertools

    _, L, A = problem.own.shape
    items = np.array(list(itertools.product(range(A), repeat=L)))
    shown = np.zeros((len(items), L * A))
    shown[np.arange(len(items))[:, None], np.arange(L) * A + items] = 1.0
    laws = [p[context][np.arange(L), items].prod(1) for p in (problem.behaviour, problem.target)]
    gamma = shown.T @ (laws[0][:, None] * shown)
    found: np.ndarray = shown @ np.linalg.pinv(gamma, rcond=1e-10) @ (laws[1] @ shown)
    return found


@claim(
    "For positions that are drawn independently its weight is that of the paper's pseudo-inverse of the slates' "
    "moments.",
    kind="identity",
    baseline="the product of the ratios",
)
def of_the_moments() -> Finding:
    off, product = 0.0, np.inf
    for seed in range(5):
        problem = slates(seed)
        table, _ = problem.all_slates()
        found = weights(pseudoinverse().terms(table), table)
        expected = np.concatenate([pseudoinverse_weights(problem, x) for x in range(len(problem.own))])
        off = max(off, float(np.abs(found - expected).max()))
        product = min(product, float(np.abs(np.exp(table.log_weights()[:, -1]) - expected).max()))
    return Finding(
        measured={"distance": off, "of the product": float(product)},
        criterion="the first < 1e-9, the second > 0.1",
        holds=off < 1e-9 and product > 0.1,
    )


def weights(terms: WeightedTerms, table: LoggedDecisions) -> np.ndarray:
    """Returns the factor of each slate's reward."""
    found: np.ndarray = (terms.weight * terms.value).sum(1) / table.returns(1.0)
    return found


@mutation("The ratios are added up, and nothing is taken off.", kills=unbiased)
def nothing_taken_off(replace: Replace) -> None:
    terms = PseudoInverse.terms

    def summed(self: PseudoInverse, table: LoggedDecisions) -> WeightedTerms:
        found = terms(self, table)
        value = found.value.copy()
        value[:, 0] = 0.0
        return WeightedTerms(found.log_weight, value, found.self_normalised, found.importance)

    replace(PseudoInverse, "terms", summed)
