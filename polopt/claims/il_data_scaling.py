"""These programs measure what the paper of data scaling laws claims, on laws that are known and on a small imitator."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods.il_data_scaling import DataScaling, il_data_scaling
from polopt.metrics import CollectedData, fit_power_law, power_law, t_interval, wilson
from polopt.metrics.power_law import PowerLaw

SIZES = np.array([1.0, 2, 4, 8, 16, 32, 64])


def failures(exponent: float, trials: int, repeats: int, seed: int) -> np.ndarray:
    """Returns failures of policies whose gap is 0.8 N^exponent, [repeats, 7]."""
    rates = 0.8 * SIZES**exponent
    return np.random.default_rng(seed).binomial(trials, rates, (repeats, len(SIZES))).astype(float)


@claim(
    "From 200 trials at each of seven sizes the exponent is found to 0.08, and its interval holds the true one.",
    kind="part",
    baseline="the interval of a bootstrap that is half as wide",
)
def exponent() -> Finding:
    repeats, metric = 300, il_data_scaling(resamples=200)
    close = covered = half = 0
    for counts in failures(-0.5, 200, repeats, 1):
        found = metric.curve(SIZES, counts, np.full(7, 200.0))["exponent"]
        interval = metric._interval(found, 1400)
        close += abs(found[0] + 0.5) < 0.08
        covered += interval.low <= -0.5 <= interval.high
        half += abs(found[0] + 0.5) <= (interval.high - interval.low) / 4
    ends = {
        name: wilson(count, repeats) for name, count in (("within 0.08", close), ("covered", covered), ("half", half))
    }
    return Finding(
        measured={name: x.estimate for name, x in ends.items()},
        criterion="within 0.08 in 90 % of 300 repeats or more; the 95 % interval covers in 90 % or more, half of it in "
        "less than 80 %",
        holds=ends["within 0.08"].estimate >= 0.9 and ends["covered"].estimate >= 0.9 and ends["half"].estimate < 0.8,
        intervals={name: (x.low, x.high) for name, x in ends.items()},
        note="The gap is 0.8 N^-0.5, N from 1 to 64.",
    )


@claim(
    "Points without a failure bias a straight line through the logarithms, from which they must be left out; they do "
    "not bias the likelihood.",
    kind="ours",
    baseline="least squares in log-log over the points that have a failure",
)
def points_of_success_one() -> Finding:
    counts, trials = failures(-0.9, 25, 400, 2), np.full(7, 25.0)
    own = fit_power_law(SIZES, counts, trials).exponent
    lines = []
    for row in counts:
        kept = row > 0
        lines.append(np.polyfit(np.log(SIZES[kept]), np.log(row[kept] / 25), 1)[0])
    biases = {"likelihood": t_interval(own + 0.9), "least squares": t_interval(np.array(lines) + 0.9)}
    return Finding(
        measured={
            **{f"bias of {name}": x.estimate for name, x in biases.items()},
            "points left out": float((counts == 0).mean()),
        },
        criterion="over 400 repeats of 25 trials a size the likelihood's bias is below 0.05, and "
        "that of least squares above it",
        holds=abs(biases["likelihood"].estimate) < 0.05 and biases["least squares"].low > 0.05,
        intervals={f"bias of {name}": (x.low, x.high) for name, x in biases.items()},
    )


@claim(
    "Through two points it is the exact power law.", kind="identity", baseline="none: an identity with a closed form"
)
def two_points() -> Finding:
    law = fit_power_law([2.0, 8.0], [60.0, 15.0], [100.0, 100.0])
    off = max(abs(float(law.exponent) + 1), abs(float(law.factor) - 1.2))
    return Finding(measured={"distance from 1.2 / N": off}, criterion="< 1e-5", holds=off < 1e-5)


def imitation(environments: int, demonstrations: int, seed: int, trials: int = 200) -> int:
    """Returns the successes of a policy that imitates an expert, in environments that its data do not have.

    An environment is a point of the unit square, the expert's action a smooth function of it, and a demonstration that
    action with noise. The imitator is a kernel regression, whose squared error over demonstrations of one environment
    is that of their mean. A trial succeeds if its action is within 0.3 of the expert's, whose actions vary by 1.
    """
    draw = np.random.default_rng(1000 * seed + environments)
    of_problem = np.random.default_rng(seed)
    waves, phases = of_problem.normal(0, 3.5, (2, 30)), of_problem.uniform(0, 2 * np.pi, 30)

    def expert(x: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.cos(x @ waves + phases).sum(-1) * np.sqrt(2 / 30)
        return found

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.exp(-((x[:, None] - y[None]) ** 2).sum(-1) * 3.5**2 / 2)
        return found

    seen, unseen = draw.random((environments, 2)), draw.random((trials, 2))
    noise = 0.3 / np.sqrt(demonstrations)
    shown = expert(seen) + noise * draw.standard_normal(environments)
    weights = np.linalg.solve(kernel(seen, seen) + max(noise**2, 1e-6) * np.eye(environments), shown)
    return int((np.abs(kernel(unseen, seen) @ weights - expert(unseen)) < 0.3).sum())


@claim(
    "Of 1600 demonstrations, 50 from each of 32 environments teach more than 400 from each of 4, and more "
    "demonstrations of the same environments hardly anything.",
    kind="headline",
    baseline="as many demonstrations from fewer environments; more of the same environments",
)
def diversity() -> Finding:
    seeds = range(10)
    rates = {(n, k): np.array([imitation(n, k, seed) for seed in seeds]) / 200 for n in (4, 32) for k in (50, 400)}
    gain = t_interval(rates[32, 50] - rates[4, 400])
    more = {n: t_interval(rates[n, 400] - rates[n, 50]) for n in (4, 32)}
    return Finding(
        measured={
            "32 x 50 - 4 x 400": gain.estimate,
            **{f"{n} environments, 400 - 50 each": x.estimate for n, x in more.items()},
        },
        criterion="the first above 0.2, the others below 0.05 in size, by their intervals over ten problems",
        holds=gain.low > 0.2 and all(x.low > -0.05 and x.high < 0.05 for x in more.values()),
        intervals={
            "32 x 50 - 4 x 400": (gain.low, gain.high),
            **{f"{n} environments, 400 - 50 each": (x.low, x.high) for n, x in more.items()},
        },
    )


@claim(
    "From the results of such policies it advises to collect environments, and finds demonstrations saturated.",
    kind="part",
    baseline="the same results with the two columns exchanged, of which it must advise the opposite",
)
def advises_environments() -> Finding:
    right = exchanged = 0
    for seed in range(10):
        cells = [(n, 50) for n in (2, 4, 8, 16)] + [(8, k) for k in (25, 100, 200, 400)]
        successes = [imitation(n, k, seed) for n, k in cells]
        n, k = np.array(cells).T
        for swapped in (False, True):
            sizes = {"environments": k if swapped else n, "demonstrations": n if swapped else k}
            found = il_data_scaling(resamples=200)(CollectedData(successes, [200] * 8, **sizes))
            best = "demonstrations" if swapped else "environments"
            yes = f"Collect more {best} before" in found.tables[0].caption
            right, exchanged = right + (yes and not swapped), exchanged + (yes and swapped)
    return Finding(
        measured={"environments": right / 10, "demonstrations, if exchanged": exchanged / 10},
        criterion="in 9 of 10 problems or more, and the opposite of the exchanged columns",
        holds=min(right, exchanged) >= 9,
        intervals={"environments": (wilson(right, 10).low, wilson(right, 10).high)},
    )


@mutation("Points without a failure are left out.", kills=points_of_success_one)
def leaves_out(replace: Replace) -> None:
    climb = power_law._climb

    def of_those_with_one(x: np.ndarray, f: np.ndarray, s: np.ndarray, c: float) -> tuple[np.ndarray, ...]:
        return climb(x, f * (f > 0.5), s * (f > 0.5), c)

    replace(power_law, "_climb", of_those_with_one)


@mutation("Intervals are half as wide as the bootstrap's.", kills=exponent)
def half_as_wide(replace: Replace) -> None:
    interval = DataScaling._interval
    replace(DataScaling, "_interval", lambda self, samples, n: interval(self, samples * 0.5 + samples[0] * 0.5, n))


@mutation("A doubling is evaluated at the present size.", kills=advises_environments)
def no_doubling(replace: Replace) -> None:
    gap = PowerLaw.gap

    def at_most_16(self: PowerLaw, size: np.ndarray) -> np.ndarray:
        return gap(self, np.minimum(size, 16.0))

    replace(PowerLaw, "gap", at_most_16)
