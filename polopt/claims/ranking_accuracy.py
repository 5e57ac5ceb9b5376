"""These programs measure what the paper on ranking accuracy claims."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import stats

import polopt.methods.ranking_accuracy as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.misranked import misranked
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import Less, More, effect
from polopt.methods.dpo import dpo
from polopt.methods.ranking_accuracy import RankingAccuracy, ranking_accuracy
from polopt.metrics import RankedPairs, idealised_margin
from polopt.objectives import LogProbReward, SquaredLink

BETA = 0.1
# DPO's loss at first is log 2; training stops where more than half of it is gone.
TARGET = 0.3


def without_reference() -> Algorithm:
    return dpo(beta=BETA).but({"objective.implicit": LogProbReward(scale=BETA, decisions="sum")})


@effect(
    "DPO turns fewer of the reference's wrong rankings than the loss without the reference, at the same loss.",
    kind="headline",
    method=lambda: dpo(beta=BETA),
    controls={"no reference": without_reference},
    criteria=[Less("flipped", by=-0.2), Less("loss", times=1.1)],
    step_sizes=(0.5, 1.0, 2.0),
    best=Less("steps", times=1.0),
    seeds=5,
    cost="slow",
    note="Flipped: of the pairs that the reference ranks wrong, the fraction that is right where the mean loss has "
    "come to 0.3, for both sides, over 60 pairs with reference margins of tens of nats.",
)
def rankings_stay(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    problem, losses = misranked(algorithm, seed), list[float]()
    while len(losses) < 400 and (not losses or losses[-1] > TARGET):
        losses.append(problem.descend(algorithm, step_size))
    reached = losses[-1] <= TARGET
    return {
        "flipped": ranking_accuracy(beta=BETA)(problem.ranked()).values["flipped"] if reached else math.nan,
        "loss": losses[-1],
        "steps": float(len(losses)) if reached else math.nan,
    }


@effect(
    "After training the accuracy of the implicit reward, which trainers log, is far above the ranking accuracy.",
    kind="part",
    method=lambda: "implicit_accuracy",
    controls={"ranking accuracy": lambda: "ranking_accuracy"},
    criteria=[More("accuracy", by=0.2)],
    seeds=10,
    cost="slow",
    note="Both of one policy, DPO's where the mean loss has come to 0.3.",
)
def implicit_is_higher(name: str, *, seed: int) -> dict[str, float]:
    algorithm = dpo(beta=BETA)
    problem = misranked(algorithm, seed)
    for _ in range(400):
        if problem.descend(algorithm, 2.0) <= TARGET:
            break
    return {"accuracy": ranking_accuracy(beta=BETA)(problem.ranked()).values[name]}


@claim(
    "A pair is ranked right exactly where its loss is at most its flip loss.",
    kind="identity",
    baseline="the loss log 2, at which the implicit reward turns",
)
def threshold() -> Finding:
    wrong, by_log2, pairs = 0, 0, 0
    for seed in range(10):
        draw = np.random.default_rng(seed)
        scale = 10 ** draw.uniform(0, 3)
        logps = -scale * draw.exponential(1.0, (4, 500))
        for attenuation in (0.0, 0.5, 1.0):
            metric = ranking_accuracy(beta=10 ** draw.uniform(-2, 0), attenuation=attenuation)
            rows = metric(RankedPairs(*logps)).rows
            right = rows["margin"] >= 0
            # Beyond a margin of 700 losses are 0 to rounding, and cannot be compared.
            kept = np.nan_to_num(rows["flip_loss"]) > 1e-290
            wrong += int(((rows["loss"] <= rows["flip_loss"]) != right)[kept].sum())
            by_log2 += int(((rows["loss"] <= math.log(2)) != right)[kept].sum())
            pairs += int(kept.sum())
    return Finding(
        measured={"wrong": wrong, "wrong by log 2": by_log2, "pairs": pairs},
        criterion="none wrong of more than 12,000 random pairs; by log 2 more than 1,000",
        holds=wrong == 0 and by_log2 > 1000 and pairs > 12_000,
    )


@claim(
    "The order in which DPO turns pairs is that of their flip losses.",
    kind="part",
    baseline="the reference's log-probability of the preferred answer",
    cost="slow",
)
def difficulty() -> Finding:
    algorithm = dpo(beta=BETA)
    found, control, turned = [], [], 0.0
    for seed in range(3):
        problem = misranked(algorithm, seed, spread=4.0)
        first = ranking_accuracy(beta=BETA)(problem.ranked()).rows
        wrong = first["margin"] < 0
        step = np.full(len(wrong), np.inf)
        for t in range(120):
            problem.descend(algorithm, 4.0)
            right = problem.ranked().margin() >= 0
            step = np.where(right & np.isinf(step), t, step)
        seen = wrong & np.isfinite(step)
        reference = problem.ranked().ref_chosen_logps
        assert reference is not None
        found.append(float(stats.spearmanr(first["flip_loss"][seen], step[seen])[0]))
        control.append(float(stats.spearmanr(reference[seen], step[seen])[0]))
        turned += float(seen.sum()) / 3
    return Finding(
        measured={
            "correlation, on average": float(np.mean(found)),
            "its control, on average": float(np.mean(control)),
            "pairs turned, on average": turned,
        },
        criterion="Spearman's correlation of flip loss and step, mean of 3 runs, <= -0.8, the control's > -0.8",
        holds=float(np.mean(found)) <= -0.8 and float(np.mean(control)) > -0.8,
    )


@claim(
    "The optimum of the raters' reward with a KL penalty has the idealised accuracy.",
    kind="identity",
    baseline="the quotient of log-probabilities, as in the authors' program",
)
def ideal() -> Finding:
    error, other, moved = 0.0, 0, 0
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        tree = TokenTree.full(3, 3, lambda prompt, answer: 0.0)
        logp = tree.log_probabilities(TabularPolicy(tree, spread=2.0, seed=seed)).detach()[0]
        reward = torch.randn(len(logp), generator=g, dtype=torch.double)
        best = (logp + reward / BETA).log_softmax(0)
        order = torch.randint(len(logp), (2, 200), generator=g)
        chosen, rejected = order[:, order[0] != order[1]]
        agreement = (reward[chosen] - reward[rejected]).sigmoid()
        pairs = RankedPairs(best[chosen], best[rejected], logp[chosen], logp[rejected], agreement=agreement)
        found = ranking_accuracy(beta=BETA, clip=1e-12)(pairs)
        error = max(error, abs(found.values["alignment_gap"]))
        quotient = (logp[chosen] / logp[rejected]) * (agreement / (1 - agreement)) ** (1 / BETA) >= 1
        other += int((quotient.numpy() != (pairs.margin() >= 0)).sum())
        moved += int(((pairs.margin(reference=True) >= 0) != (pairs.margin() >= 0)).sum())
    return Finding(
        measured={"largest alignment gap": error, "wrong by the quotient": other, "wrong by the reference": moved},
        criterion="no gap in 20 trees of 200 pairs; more than 100 pairs wrong by the quotient, and by the reference",
        holds=error == 0 and other > 100 and moved > 100,
    )


@claim(
    "IPO at its optimum leaves the pairs wrong whose reference margin is beyond 1 / (2 tau), whatever the training.",
    kind="ours",
    baseline="DPO, of which a loss small enough turns every pair",
)
def unreachable() -> Finding:
    draw = np.random.default_rng(0)
    reference = -draw.exponential(20.0, (2, 1000))
    margin = reference[0] - reference[1]
    optimum = reference[0] + 5.0 - np.maximum(reference[0] + 5.0, 0), reference[1] - np.maximum(reference[0] + 5.0, 0)
    found = ranking_accuracy(beta=1.0, link=SquaredLink(target=5.0))(RankedPairs(*optimum, *reference))
    wrong, plain = float((margin < -5).mean()), ranking_accuracy()(RankedPairs(*optimum, *reference))
    return Finding(
        measured={
            "unreachable": found.values["unreachable"],
            "wrong at the optimum": 1 - found.values["ranking_accuracy"],
            "margins beyond": wrong,
            "largest loss at the optimum": float(found.rows["loss"].max()),
            "unreachable, DPO": plain.values["unreachable"],
        },
        criterion="the three fractions are equal and > 0.2, the loss < 1e-20, and none for DPO",
        holds=found.values["unreachable"] == wrong
        and abs(1 - found.values["ranking_accuracy"] - wrong) < 1e-12
        and wrong > 0.2
        and float(found.rows["loss"].max()) < 1e-20
        and plain.values["unreachable"] == 0,
    )


@mutation("The flip loss forgets beta.", kills=threshold)
def without_beta(replace: Replace) -> None:
    own = RankingAccuracy.flip_loss
    replace(RankingAccuracy, "flip_loss", lambda self, margin: own(self, margin / self.beta))


@mutation("The loss has the whole reference, attenuated or not.", kills=threshold)
def unattenuated(replace: Replace) -> None:
    own = RankingAccuracy._trained
    replace(RankingAccuracy, "_trained", lambda self, rows: own(self.but(attenuation=1.0), rows))


@mutation("The ideal policy moves as if beta were 1.", kills=ideal)
def ideal_without_beta(replace: Replace) -> None:
    replace(module, "idealised_margin", lambda margin, a, beta, clip: idealised_margin(margin, a, 1.0, clip))
