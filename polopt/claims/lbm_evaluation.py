"""These programs measure what a comparison of policies is worth whose trials are looked at while they run."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods import lbm_evaluation as file
from polopt.methods.lbm_evaluation import PolicyComparison, lbm_evaluation
from polopt.metrics import PolicyTrials, beta_posterior, betting_evidence, compact_letters, wilson

PAIRS, ALPHA = 200, 0.05


def outcomes(rates: tuple[float, ...], repeats: int, pairs: int, seed: int) -> np.ndarray:
    """Returns successes of policies of these rates, [repeats, policies, pairs]."""
    return np.random.default_rng(seed).random((repeats, len(rates), pairs)) < np.array(rates)[:, None]


def trials(successes: np.ndarray) -> PolicyTrials:
    """Returns successes [policies, pairs] as trials in turns."""
    policies, pairs = successes.shape
    return PolicyTrials(np.tile([f"{i}" for i in range(policies)], pairs), successes.T.ravel())


def fisher_looks(x: np.ndarray, every: int) -> np.ndarray:
    """Returns whether the one-sided test of Fisher on successes [repeats, 2, pairs] rejects at any of its looks."""
    from scipy.stats import hypergeom

    rejected = np.zeros(len(x), bool)
    for n in range(every, x.shape[-1] + 1, every):
        one, other = x[..., :n].sum(-1).T
        rejected |= hypergeom.sf(one - 1, 2 * n, one + other, n) <= ALPHA
    return rejected


@claim(
    "Looked at after every pair of trials, it separates equal policies in at most 5 % of comparisons; Fisher's test, "
    "looked at after every fifth, in over 10 %.",
    kind="headline",
    baseline="Fisher's exact test with peeking",
)
def peeking() -> Finding:
    repeats, measured, intervals, holds = 2000, {}, {}, True
    for rate in (0.1, 0.5, 0.9):
        x = outcomes((rate, rate), repeats, PAIRS, 10 + int(10 * rate))
        d = x[:, 0].astype(float) - x[:, 1]
        sides = {"": betting_evidence(d), ", one-sided": betting_evidence(d, "above")}
        for side, evidence in sides.items():
            found = wilson(int((evidence.max(-1) >= 1 / ALPHA).sum()), repeats)
            measured[f"separated at {rate}{side}"] = found.estimate
            intervals[f"separated at {rate}{side}"] = (found.low, found.high)
            holds &= found.estimate <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / repeats)
        if rate == 0.5:
            control = wilson(int(fisher_looks(x, 5).sum()), repeats)
    return Finding(
        measured={**measured, "Fisher, peeking": control.estimate},
        criterion="at most 0.05 and 3 standard errors at rates of 0.1, 0.5 and 0.9, one- and two-sided, within 200 "
        "pairs; Fisher's one-sided test at rate 0.5 above 0.10 by its interval",
        holds=bool(holds and control.low > 0.10),
        intervals={**intervals, "Fisher, peeking": (control.low, control.high)},
    )


@claim(
    "It stops early where policies differ: with rates of 0.5 and 0.75 after fewer than 100 of 200 pairs on average.",
    kind="part",
    baseline="all 200 pairs; equal rates, where it goes on to the end",
)
def stops_early() -> Finding:
    repeats, measured = 2000, {}
    for rate, side in ((0.75, "both"), (0.7, "above"), (0.5, "both")):
        x = outcomes((rate, 0.5), repeats, PAIRS, 20)
        hit = betting_evidence(x[:, 0].astype(float) - x[:, 1], side) >= 1 / ALPHA  # type: ignore[arg-type]
        measured[f"separated at 0.5 and {rate}, {side}"] = float(hit.any(-1).mean())
        measured[f"mean pairs at 0.5 and {rate}, {side}"] = float(
            np.where(hit.any(-1), hit.argmax(-1) + 1, PAIRS).mean()
        )
    ends = {
        name: (found.low, found.high)
        for name, value in measured.items()
        if name.startswith("separated")
        for found in [wilson(round(value * repeats), repeats)]
    }
    return Finding(
        measured=measured,
        criterion="0.5 and 0.75, two-sided: separated in 90 % or more, after fewer than 100 pairs; 0.5 and 0.7, "
        "one-sided: in 80 % or more; equal rates: after 190 or more",
        holds=measured["separated at 0.5 and 0.75, both"] >= 0.9
        and measured["mean pairs at 0.5 and 0.75, both"] < 100
        and measured["separated at 0.5 and 0.7, above"] >= 0.8
        and measured["mean pairs at 0.5 and 0.5, both"] >= 190,
        intervals=ends,
    )


@claim(
    "Of six equal policies hardly ever any two are separated, whatever the number of pairs; without correction often.",
    kind="part",
    baseline="the same test without correction over the 15 pairs",
)
def many_policies() -> Finding:
    repeats, metric, policies = 300, lbm_evaluation(), 6
    x = outcomes((0.5,) * policies, repeats, 100, 30)
    corrected = sum(bool(metric.separated(data, data.policies())) for data in map(trials, x))
    first, second = np.triu_indices(policies, 1)
    ever = betting_evidence(x[:, first].astype(float) - x[:, second]).max(-1) >= 1 / ALPHA
    plain = int(ever.any(-1).sum())
    with_it, without = wilson(corrected, repeats), wilson(plain, repeats)
    return Finding(
        measured={"with correction": with_it.estimate, "without": without.estimate},
        criterion="at most 0.05 and 3 standard errors, over 100 trials of each; without correction above it",
        holds=with_it.estimate <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / repeats) and without.low > ALPHA,
        intervals={"with correction": (with_it.low, with_it.high), "without": (without.low, without.high)},
    )


@claim(
    "Two policies share a letter if, and only if, their pair is not separated.",
    kind="identity",
    baseline="none: a definition, on random sets of separated pairs",
)
def letters() -> Finding:
    draw, wrong, graphs = np.random.default_rng(4), 0, 0
    for count in range(1, 9):
        for _ in range(60):
            apart = {(i, j) for i in range(count) for j in range(i + 1, count) if draw.random() < draw.random()}
            found = compact_letters(count, sorted(apart))
            pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
            wrong += sum(bool(set(found[i]) & set(found[j])) == ((i, j) in apart) for i, j in pairs)
            graphs += 1
    return Finding(
        measured={"pairs with the wrong letters": float(wrong), "random sets of separated pairs": float(graphs)},
        criterion="none",
        holds=wrong == 0,
    )


@claim(
    "Its 95 % posterior interval holds the true rate in 93 to 97 % of comparisons whose rates are uniform.",
    kind="theory",
    baseline="the interval of a normal distribution, p +- 1.96 s / sqrt(n)",
)
def posterior() -> Finding:
    draw, n, repeats = np.random.default_rng(5), 20, 4000
    rates = draw.random(repeats)
    counts = draw.binomial(n, rates)
    each = [beta_posterior(s, n) for s in range(n + 1)]
    low, high = (np.array([getattr(x, end) for x in each])[counts] for end in ("low", "high"))
    half = 1.96 * np.sqrt(counts / n * (1 - counts / n) / n)
    covered = wilson(int(((low <= rates) & (rates <= high)).sum()), repeats)
    normal = wilson(int((np.abs(counts / n - rates) <= half).sum()), repeats)
    return Finding(
        measured={"coverage": covered.estimate, "normal": normal.estimate},
        criterion="within 0.93 and 0.97, of 20 trials; the normal interval below 0.93",
        holds=0.93 <= covered.estimate <= 0.97 and normal.high < 0.93,
        intervals={"coverage": (covered.low, covered.high), "normal": (normal.low, normal.high)},
    )


@claim(
    "A policy that was tried more often on the easy task is not separated from its equal; in pooled counts it is.",
    kind="part",
    baseline="Barnard's test on counts pooled over the tasks",
)
def mixture_of_tasks() -> Finding:
    draw, repeats = np.random.default_rng(6), 100
    measured = {"anytime": 0, "fixed": 0, "pooled": 0}
    tests = {name: lbm_evaluation(test=name) for name in ("anytime", "fixed")}  # type: ignore[arg-type]
    policy = np.repeat(["one", "one", "other", "other"], (45, 15, 15, 45))
    task = np.repeat(["easy", "hard", "easy", "hard"], (45, 15, 15, 45))
    for _ in range(repeats):
        data = PolicyTrials(policy, draw.random(120) < np.where(task == "easy", 0.9, 0.3), task, draw.permutation(120))
        for name, metric in tests.items():
            measured[name] += bool(metric.separated(data, ["one", "other"]))
        pooled = PolicyTrials(policy, data.success, None, data.order)
        measured["pooled"] += bool(tests["fixed"].separated(pooled, ["one", "other"]))
    found = {name: wilson(count, repeats) for name, count in measured.items()}
    return Finding(
        measured={name: interval.estimate for name, interval in found.items()},
        criterion="of 100 comparisons of equal policies, on tasks with rates of 0.9 and 0.3, at most 0.12 by either "
        "test; pooled in more than 0.5",
        holds=max(found["anytime"].estimate, found["fixed"].estimate) <= 0.12 and found["pooled"].low > 0.5,
        intervals={name: (interval.low, interval.high) for name, interval in found.items()},
    )


@mutation("The bet on a pair of trials depends on that pair.", kills=many_policies)
def bets_after(replace: Replace) -> None:
    def knowing(values: np.ndarray) -> np.ndarray:
        x = np.asarray(values, float)
        bets = np.cumsum(x) / (np.cumsum(x**2) + 0.5)
        return np.exp(np.cumsum(np.log1p(np.clip(bets, -0.9, 0.9) * x)))

    replace(file, "betting_evidence", knowing)


@mutation("P values are not corrected over the pairs.", kills=many_policies)
def uncorrected(replace: Replace) -> None:
    replace(file, "holm", lambda p, level: [x <= level for x in p])


@mutation("Trials are paired and counted across tasks.", kills=mixture_of_tasks)
def pooled_tasks(replace: Replace) -> None:
    p = PolicyComparison.p

    def pooling(self: PolicyComparison, data: PolicyTrials, one: str, other: str) -> float:
        return p(self, PolicyTrials(data.policy, data.success, None, data.order), one, other)

    replace(PolicyComparison, "p", pooling)
