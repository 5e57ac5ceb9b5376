"""These programs measure what the paper of the online-offline gap claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.judged import LogLinearPolicy, judged_answers
from polopt.lab import TabularPolicy
from polopt.lab.effects import Less, More, effect
from polopt.lab.pair_sources import (
    FixedPairs,
    JudgedAnswers,
    OwnPairs,
    PairSampler,
    ReplayedPairs,
    labelled,
    pair_training,
)
from polopt.methods import online_offline_gap as sentence
from polopt.methods.ipo import ipo
from polopt.methods.online_offline_gap import online_offline_gap
from polopt.methods.sft import sft
from polopt.metrics import FrontierCurves, frontier

STEPS, ROWS, TAU, FEATURES = 300, 64, 0.01, 10
STEP_SIZES = (0.00025, 0.0005, 0.001)

Curve = list[dict[str, float]]


def trained(
    problem: JudgedAnswers, policy: TabularPolicy, source: PairSampler, seed: int, step_size: float, imitate: bool
) -> Iterator[dict[str, float]]:
    algorithm: Algorithm = sft() if imitate else ipo(tau=TAU)
    # The imitation of one answer of two has a gradient that is smaller by the margin's target.
    size = step_size / TAU if imitate else step_size
    return pair_training(algorithm, problem, policy, source, steps=STEPS, step_size=size, rows=ROWS, seed=seed)


def curve(source: str, seed: int, step_size: float, imitate: bool = False) -> Curve:
    """Returns the evaluations of a log-linear policy in training on a source: online, offline, replayed (the pairs of
    an online run, shuffled), or better (a data set of an online run's policy when its KL was 2 first)."""
    problem, features = judged_answers(seed, thin=0.3)
    g = torch.Generator().manual_seed(seed)

    def fresh() -> LogLinearPolicy:
        return LogLinearPolicy(problem.tree, features[:, :FEATURES], problem.reference.logits.detach())

    if source == "offline":
        return list(trained(problem, fresh(), FixedPairs(problem.data), seed, step_size, imitate))
    policy, own = fresh(), OwnPairs(problem.tree, problem.proxy)
    found: Curve = []
    for point in trained(problem, policy, own, seed, step_size, imitate):
        found.append(point)
        if source == "better" and point["kl"] >= 2.0:
            break
    if source == "online":
        return found
    if source == "replayed":
        return list(trained(problem, fresh(), ReplayedPairs(own.stream, g), seed, step_size, imitate))
    chance = problem.tree.log_probabilities(policy).detach()[0].exp()
    answers = torch.multinomial(chance, 2 * len(problem.data), replacement=True, generator=g).view(-1, 2)
    data = FixedPairs(labelled(answers, problem.golden, g))
    return list(trained(problem, fresh(), data, seed, step_size, imitate))


def numbers(points: Curve) -> dict[str, float]:
    """Returns the best win rate within a KL of 1, 2 and 4, and the last policy's accuracy on the data."""
    kl, rate = ([p[name] for p in points] for name in ("kl", "win_rate"))
    within = frontier(kl, rate, [1.0, 2.0, 4.0]).tolist()
    found = {f"win rate within KL {k}": w for k, w in zip((1, 2, 4), within, strict=True)}
    return {**found, "accuracy": points[-1]["accuracy"], "largest KL": max(kl)}


@effect(
    "Within the same KL, pairs of the policy itself reach a higher win rate than the data set, although their labels "
    "are those of a model that was fitted to it; the offline policy is the better classifier of the data's pairs.",
    kind="headline",
    method=lambda: "online",
    controls={"offline": lambda: "offline"},
    step_sizes=STEP_SIZES,
    criteria=[More("win rate within KL 4", by=0.01), Less("accuracy", by=0.0)],
    seeds=20,
    trials=3,
    cost="slow",
    note="IPO for both, 300 steps of 64 pairs, 500 pairs of data; a golden judge apart. On the first problem both "
    "reach 0.67 within a KL of 1: the gap opens where the policy leaves the data. Accuracy is that of the implicit "
    "reward.",
)
def online_wins(source: str, *, seed: int, step_size: float) -> dict[str, float]:
    return numbers(curve(source, seed, step_size))


@effect(
    "The same pairs, shuffled and replayed, do not reach as much: it is not their coverage alone.",
    kind="part",
    method=lambda: "online",
    controls={"replayed": lambda: "replayed"},
    step_sizes=STEP_SIZES,
    criteria=[More("win rate within KL 4", by=0.0)],
    seeds=10,
    trials=3,
    cost="slow",
    note="Replay reaches nearly as much: on fresh seeds the gain was 0.003 (-0.002 to 0.008), which is no gain.",
)
def order_matters(source: str, *, seed: int, step_size: float) -> dict[str, float]:
    return numbers(curve(source, seed, step_size))


@effect(
    "A data set of a better policy's answers does not reach as much: it is not the quality of the data.",
    kind="part",
    method=lambda: "online",
    controls={"a better policy's data": lambda: "better"},
    step_sizes=STEP_SIZES,
    criteria=[More("win rate within KL 4", by=0.0)],
    seeds=10,
    trials=3,
    cost="slow",
    refuted=True,
    note="It reaches more on 19 of twice ten seeds, by 0.034 (-0.001 to 0.069) and 0.009 (-0.002 to 0.019), whose "
    "intervals reach below 0.",
)
def not_quality(source: str, *, seed: int, step_size: float) -> dict[str, float]:
    return numbers(curve(source, seed, step_size))


@effect(
    "The gap is that of the sampling and not of the loss: imitation of the better one of two answers has it too.",
    kind="part",
    method=lambda: "online",
    controls={"offline": lambda: "offline"},
    step_sizes=STEP_SIZES,
    criteria=[More("win rate within KL 4", by=0.02)],
    seeds=5,
    trials=3,
    cost="slow",
    note="Imitation of the data's preferred answers stays within a KL of 0.2, where it ends.",
)
def imitation_too(source: str, *, seed: int, step_size: float) -> dict[str, float]:
    return numbers(curve(source, seed, step_size, imitate=True))


@claim(
    "A tabular policy, with pairs of the reference without end and the golden judge's labels, has no gap.",
    kind="limit",
    baseline="the log-linear policy, the data set and the proxy of the headline",
    cost="slow",
)
def no_gap() -> Finding:
    rows: dict[str, list[Any]] = {name: [] for name in ("source", "run", "kl", "win_rate")}
    for run in range(3):
        problem, _ = judged_answers(run, answers=16, thin=0.3)
        for source, refresh in (("online", 1), ("offline", None)):
            policy = TabularPolicy(problem.tree).set_probabilities(problem.reference.logits.detach().softmax(-1))
            own = OwnPairs(problem.tree, problem.golden, refresh)
            way = pair_training(ipo(tau=0.05), problem, policy, own, steps=150, step_size=0.05, rows=256, seed=run)
            _append(rows, source, run, list(way))
    found = online_offline_gap(budgets=(1.0,))(FrontierCurves(**rows))
    rows = {name: [] for name in rows}
    for run in range(3):
        for source in ("online", "offline"):
            _append(rows, source, run, curve(source, run, 0.001))
    other = online_offline_gap(budgets=(4.0,))(FrontierCurves(**rows))
    gap, headline = found.values["online - offline, mean"], other.values["online - offline, mean"]
    return Finding(
        measured={"mean gap": gap, "mean gap of the headline": headline, "gap at KL 1": found.values[AT_1]},
        criterion="3 problems of 16 answers: |mean gap| < 0.01; the headline's > 0.01",
        holds=abs(gap) < 0.01 < headline,
        note="On one of three fresh seeds the mean gap was beyond 0.01: IPO's optimum depends on how pairs are drawn.",
    )


AT_1 = "online - offline at KL 1"


def _append(rows: dict[str, list[Any]], source: str, run: int, points: Curve) -> None:
    rows["source"] += [source] * len(points)
    rows["run"] += [run] * len(points)
    for name in ("kl", "win_rate"):
        rows[name] += [point[name] for point in points]


@claim(
    "Two runs along one frontier, one of them three times as fast, have no gap at equal KL.",
    kind="identity",
    baseline="the comparison at equal steps, and a frontier that is higher by 0.05",
)
def equal_kl() -> Finding:
    speed = {"slow": (0.03, 0.0), "offline": (0.09, 0.0), "higher": (0.05, 0.05)}
    at = {name: v * np.arange(100) for name, (v, _) in speed.items()}
    rate = {name: 0.5 + 0.3 * (1 - np.exp(-at[name])) + speed[name][1] for name in speed}
    curves = FrontierCurves(
        source=np.repeat(list(speed), 100), kl=np.concatenate([*at.values()]), win_rate=np.concatenate([*rate.values()])
    )
    found = online_offline_gap(budgets=(1.0, 2.0))(curves).values
    same = max(abs(found[f"slow - offline{x}"]) for x in (" at KL 1", " at KL 2", ", mean"))
    higher = found["higher - offline at KL 2"]
    steps = float(np.abs(rate["slow"] - rate["offline"]).max())
    return Finding(
        measured={"gap at equal KL": same, "at equal steps, largest": steps, "of the higher one": higher},
        criterion="gap < 1e-3, of the points' lines; at equal steps > 0.1; higher within 1e-3 of 0.05",
        holds=same < 1e-3 and steps > 0.1 and abs(higher - 0.05) < 1e-3,
    )


@mutation("Win rates are compared at equal steps.", kills=equal_kl)
def equal_steps(replace: Replace) -> None:
    replace(sentence, "frontier", lambda kl, rate, at: np.interp(at, np.linspace(0, 4, len(kl)), rate))
