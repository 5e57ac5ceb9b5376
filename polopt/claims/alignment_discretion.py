"""These programs measure what the paper on alignment discretion claims."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import polopt.methods.alignment_discretion as module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods.alignment_discretion import DiscretionAudit, alignment_discretion
from polopt.metrics import PrinciplePreferences, discretion_discrepancy
from polopt.metrics.discretion import consensus, wins

Numbers = NDArray[np.float64]
K = 6


def fast() -> DiscretionAudit:
    return alignment_discretion(resamples=20, priority_resamples=1)


def votes(draw: np.random.Generator, n: int) -> Numbers:
    """Preferences [n, K] of principles, 30 % without one; the last one mostly has the first one's preference."""
    found = draw.choice([-1.0, 1.0, np.nan], p=[0.35, 0.35, 0.3], size=(n, K))
    found[:, -1] = np.where(draw.random(n) < 0.8, found[:, 0], found[:, -1])
    return found


def labelled(draw: np.random.Generator, principles: Numbers, weight: Numbers) -> Numbers:
    """Labels [n] of an annotator that decides by one principle alone: of those with a preference, each with chance
    proportional to exp(weight); where none has one, by a coin."""
    known = ~np.isnan(principles)
    score = np.where(known, weight + draw.gumbel(size=principles.shape), -np.inf)
    by = principles[np.arange(len(principles)), score.argmax(1)]
    return np.where(known.any(1), by, draw.choice([-1.0, 1.0], size=len(principles)))


def met_in_halves(draw: np.random.Generator, n: int) -> Numbers:
    """Preferences [n, K] of two principles a comparison, which conflict: mostly two of the first three, or two of the
    last three."""
    found = np.full((n, K), np.nan)
    for row in found:
        near = draw.random() < 0.9
        pair = draw.permutation(3)[:2] + 3 * draw.integers(2) if near else draw.permutation(K)[:2]
        row[pair] = draw.permutation([-1.0, 1.0])
    return found


@claim(
    "The order in which an annotator places principles comes out of its labels, whichever principles meet.",
    kind="headline",
    baseline="principles ordered by how often the annotator agrees with them",
)
def order_recovered() -> Finding:
    found, plain = [], []
    for seed in range(10):
        draw = np.random.default_rng(seed)
        weight = np.linspace(2.5, 0, K)
        principles = met_in_halves(draw, 5000)
        label = labelled(draw, principles, weight)
        rank = fast().orders(PrinciplePreferences(principles, label[:, None]))[0].rank
        agreement = np.nanmean(np.where(np.isnan(principles), np.nan, principles == label[:, None]), 0)
        found.append(discretion_discrepancy(rank, -weight))
        plain.append(discretion_discrepancy(-agreement, -weight))
    return Finding(
        measured={"mean discrepancy": float(np.mean(found)), "by agreement": float(np.mean(plain))},
        criterion="mean discrepancy from the true order <= 0.05 over 10 annotators of 5000 labels; by agreement > 0.15",
        holds=float(np.mean(found)) <= 0.05 and float(np.mean(plain)) > 0.15,
        note="A principle that mostly meets stronger ones loses often without being the weaker.",
    )


@claim(
    "A principle that the annotator places last is placed high if it mostly agrees with the one placed first.",
    kind="limit",
    baseline="the same without that agreement",
)
def allies() -> Finding:
    places: dict[str, list[float]] = {"ally": [], "alone": []}
    for seed in range(10):
        for name, found in places.items():
            draw = np.random.default_rng(seed)
            principles = votes(draw, 5000)
            if name == "alone":
                principles[:, -1] = draw.permutation(principles[:, -1])
            label = labelled(draw, principles, np.append(np.linspace(2.5, 0, K - 1), -2.0))
            rank = fast().orders(PrinciplePreferences(principles, label[:, None]))[0].rank
            found.append(float(rank[-1]))
    means = {name: float(np.mean(found)) for name, found in places.items()}
    return Finding(
        measured={"mean place of an ally, of 6": means["ally"], "alone": means["alone"]},
        criterion="mean place over 10 annotators <= 3, without the agreement > 5.5",
        holds=means["ally"] <= 3 and means["alone"] > 5.5,
        note="Supremacy counts with which side a label goes, not why: principles that agree are counted together.",
    )


@claim(
    "Arbitrariness is the rate at which labels leave the principles, and copies of principles do not change it.",
    kind="part",
    baseline="the mean rate of disagreement with the principles, which copies change",
)
def arbitrary() -> Finding:
    off, moved, plain_moved = 0.0, 0.0, 0.0
    for seed in range(10):
        draw = np.random.default_rng(seed)
        principles = votes(draw, 5000)
        label = labelled(draw, principles, np.linspace(2, 0, K))
        label = np.where(draw.random(5000) < 0.3, draw.choice([-1.0, 1.0], size=5000), label)
        copied = principles[:, [0, 1, 2, 3, 4, 5, *[4] * 6]]
        rates, plain = [], []
        for p in (principles, copied):
            data = PrinciplePreferences(p, label[:, None])
            rates.append(fast()(data).values["arbitrariness of annotator 1"])
            plain.append(float((p * label[:, None] < 0).sum() / (~np.isnan(p)).sum()))
        off = max(off, abs(rates[0] - 0.15))
        moved, plain_moved = max(moved, abs(rates[1] - rates[0])), max(plain_moved, abs(plain[1] - plain[0]))
    return Finding(
        measured={"largest error": off, "moved by copies": moved, "disagreement moved by copies": plain_moved},
        criterion="30 % of labels are coins: rates within 0.05 of 0.15 in 10 logs, the same with copies; the mean "
        "disagreement moves by more than 0.02",
        holds=off < 0.05 and moved == 0 and plain_moved > 0.02,
    )


@claim(
    "An annotator that is a principle is never arbitrary and places it first; the opposite one reverses every order.",
    kind="identity",
    baseline="another principle in its place",
)
def principle_as_annotator() -> Finding:
    most, first, apart, sums, other = 0.0, 0, 1.0, 0.0, 1.0
    for seed in range(10):
        draw = np.random.default_rng(seed)
        principles = votes(draw, 1000)
        label = labelled(draw, principles, np.linspace(2, 0, K))
        annotators = np.stack([principles[:, 2], label, -label], 1)
        data = PrinciplePreferences(principles, annotators, annotator_names=("principle", "own", "opposite"))
        audit = fast()
        values, (supremacy, conflicts) = audit(data).values, audit.supremacy(data)
        most = max(most, values["arbitrariness of principle"])
        order = audit.orders(data)[0]
        first += int(order.rank[2] == 1 and np.isinf(order.weight[2]))
        other = min(other, float(order.rank[3]) - 1)
        apart = min(apart, values["discrepancy of own and opposite"])
        both = (supremacy + supremacy.transpose(0, 2, 1))[conflicts > 0]
        sums = max(sums, float(np.abs(both - 1).max()))
    return Finding(
        measured={
            "largest arbitrariness": most,
            "placed first, of 10": first,
            "least place of another, from 0": other,
            "least discrepancy of opposites": apart,
            "largest error of PS_ij + PS_ji": sums,
        },
        criterion="arbitrariness 0, first with an infinite weight in 10 of 10, another never; discrepancy 1; errors 0",
        holds=most == 0 and first == 10 and other > 0 and abs(apart - 1) < 1e-12 and sums < 1e-12,
    )


@mutation("A conflict counts for the principle that loses it.", kills=principle_as_annotator)
def losers_win(replace: Replace) -> None:
    replace(module, "wins", lambda principles, annotator, weight=None: wins(principles, annotator, weight).T)


@mutation("Cases in which principles conflict count as consensus with the first of them.", kills=arbitrary)
def conflicts_are_consensus(replace: Replace) -> None:
    def first(principles: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        _, conflict, indifferent = consensus(principles)
        place = (~np.isnan(principles)).argmax(1)
        return principles[np.arange(len(principles)), place], conflict, indifferent

    replace(module, "consensus", first)
