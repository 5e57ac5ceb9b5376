"""These programs measure what the paper of independent importance sampling claims."""

import dataclasses

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.lab.slates import slates
from polopt.methods.iips import iips
from polopt.methods.pdis import pdis
from polopt.methods.wis import wis
from polopt.metrics import IndependentImportanceSampling, LoggedDecisions, OffPolicyEstimator


@effect(
    "Where positions do not influence each other, its standard error is less than 0.75 of that with whole slates' "
    "weights, and of that with weights for a position and all above it.",
    kind="headline",
    method=iips,
    controls={"the whole slate": lambda: wis(self_normalised=False), "a position and those above": pdis},
    criteria=[Less("standard error", times=0.75)],
    seeds=20,
    note="Exact, over all slates of five positions and three items in two contexts; policies are random.",
)
def varies_less(metric: OffPolicyEstimator, *, seed: int) -> dict[str, float]:
    return {"standard error": slates(seed, positions=5).estimated(metric)[1] ** 0.5}


@claim(
    "It is unbiased where a position's reward depends on its own item alone.",
    kind="identity",
    baseline="the same where the item above matters, too",
)
def unbiased() -> Finding:
    off, biased = 0.0, np.inf
    for seed in range(10):
        for problem, found in ((slates(seed), []), (slates(seed, interaction=1.0), [0])):
            mean, _ = problem.estimated(iips())
            if found:
                biased = min(biased, abs(mean - problem.value()))
            else:
                off = max(off, abs(mean - problem.value()))
    return Finding(
        measured={"bias": off, "least bias where the item above matters": float(biased)},
        criterion="the first < 1e-12, the second > 1e-4, on ten problems, over all slates",
        holds=off < 1e-12 and biased > 1e-4,
    )


@claim(
    "Where the item above matters, the ratio of a position and all above it is unbiased.",
    kind="part",
    baseline="independent importance sampling",
)
def cascades() -> Finding:
    found = [slates(seed, interaction=1.0) for seed in range(10)]
    off = {
        name: [abs(p.estimated(m)[0] - p.value()) for p in found] for name, m in (("pdis", pdis()), ("iips", iips()))
    }
    return Finding(
        measured={f"largest bias, {name}": max(x) for name, x in off.items()},
        criterion="pdis < 1e-12, independent importance sampling > 1e-2",
        holds=max(off["pdis"]) < 1e-12 and max(off["iips"]) > 1e-2,
    )


@mutation("A position's weight is that of all positions above it, too.", kills=varies_less)
def those_above(replace: Replace) -> None:
    terms = IndependentImportanceSampling.terms

    def cumulated(self: IndependentImportanceSampling, table: LoggedDecisions) -> object:
        return terms(self, dataclasses.replace(table, target_logp=table.log_weights() + table.behaviour_logp))

    replace(IndependentImportanceSampling, "terms", cumulated)
