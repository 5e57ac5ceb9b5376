"""These programs measure what the paper of TQ and SACo claims."""

import functools

import numpy as np
from scipy.stats import spearmanr

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.cliff import KINDS, Cliff, cliff, data_sets, together
from polopt.methods.dataset_perspective import DatasetPerspective, dataset_perspective
from polopt.metrics import Measured, t_interval
from polopt.metrics.transitions import LoggedTransitions

# Grids of the headline, and of the other claim.
MANY, FEW = 30, 6
COPIES, TRANSITIONS = 4, 600


def ends(world: Cliff) -> tuple[float, float]:
    """Returns the returns of the random and of the best policy."""
    return world.evaluate(np.full(world.reward.shape, 0.25)), world.evaluate(world.expert())


def measured(world: Cliff, sets: dict[str, np.ndarray]) -> Measured:
    """Measures data sets of a grid, one of which is the reference."""
    low, high = ends(world)
    metric = dataset_perspective(random_return=low, expert_return=high, reference="reference")
    found: Measured = metric(together(world, sets))
    return found


@functools.cache
def described(seed: int) -> dict[str, np.ndarray]:
    """Returns, of 20 data sets of a grid, TQ, SACo, and the returns of a cloned and of an offline learner, in units
    in which the random policy has 0 and the best one 1."""
    world = cliff(seed)
    sets = data_sets(world, seed, COPIES, TRANSITIONS)
    values = measured(world, sets).values
    names = [name for name in sets if name != "reference"]
    low, high = ends(world)
    return {
        "TQ": np.array([values[f"{name}, TQ"] for name in names]),
        "SACo": np.array([values[f"{name}, SACo"] for name in names]),
        "cloning": np.array([(world.cloned(sets[name]) - low) / (high - low) for name in names]),
        "Q-learning": np.array([(world.offline(sets[name]) - low) / (high - low) for name in names]),
    }


@claim(
    "Unconstrained Q-learning from a data set does well where its coverage is high, cloning where its quality is.",
    kind="headline",
    baseline="the other number: TQ of Q-learning, and SACo of cloning",
    cost="slow",
)
def learners() -> Finding:
    found: dict[str, list[float]] = {}
    for seed in range(MANY):
        of = described(seed)
        for learner in ("Q-learning", "cloning"):
            for number in ("SACo", "TQ"):
                rank = float(spearmanr(of[learner], of[number]).statistic)
                found.setdefault(f"{learner} and {number}", []).append(rank)
    means = {name: t_interval(values) for name, values in found.items()}
    offline, cloned = means["Q-learning and SACo"], means["cloning and TQ"]
    gaps = [
        t_interval(np.subtract(found["Q-learning and SACo"], found["Q-learning and TQ"])).low,
        t_interval(np.subtract(found["cloning and TQ"], found["cloning and SACo"])).low,
    ]
    return Finding(
        measured={name: interval.estimate for name, interval in means.items()},
        criterion="mean rank correlation over 30 grids at least 0.5 of Q-learning with SACo, 0.8 of cloning with TQ, "
        "and with the other number lower, its 95 % interval below 0",
        holds=offline.estimate >= 0.5 and cloned.estimate >= 0.8 and min(gaps) > 0,
        intervals={name: (interval.low, interval.high) for name, interval in means.items()},
        note=f"20 data sets of {TRANSITIONS} decisions on each 5 x 7 grid, of {', '.join(KINDS)} behaviour. "
        "Q-learning is exact and begins at values of 0, which are too high for what a data set lacks.",
    )


@claim(
    "Where TQ is 0.9 or more, cloning is on average within 5 % of the better of the two learners.",
    kind="part",
    baseline="cloning where TQ is below 0.9",
)
def cloning_suffices() -> Finding:
    high: list[float] = []
    low: list[float] = []
    most = 0.0
    for seed in range(FEW):
        of = described(seed)
        behind = np.maximum(of["cloning"], of["Q-learning"]) - of["cloning"]
        high.append(float(behind[of["TQ"] >= 0.9].mean()))
        low.append(float(behind[of["TQ"] < 0.9].mean()))
        most = max(most, float(behind[of["TQ"] >= 0.9].max()))
    found, others = t_interval(high), t_interval(low)
    return Finding(
        measured={"behind, TQ >= 0.9": found.estimate, "behind, TQ < 0.9": others.estimate, "most, TQ >= 0.9": most},
        criterion="the 95 % interval of the mean over grids ends below 0.05, and that of lower TQ begins above it",
        holds=found.high < 0.05 < others.low,
        intervals={
            "behind, TQ >= 0.9": (found.low, found.high),
            "behind, TQ < 0.9": (others.low, others.high),
        },
        note="Of single data sets of TQ 0.9 cloning can be 0.1 behind: it earns about what they do.",
    )


@claim(
    "TQ of the best policy's data is 1 and of the random policy's 0 on average; SACo of the reference is 1; a data set "
    "that holds every pair once has as many.",
    kind="identity",
    baseline="exact values",
)
def fixed_points() -> Finding:
    world = cliff(0)
    S, A = world.reward.shape
    draw = np.random.default_rng(0)
    uniform = np.full((S, A), 1 / A)
    sets = {
        "expert": world.play(world.expert(), 115, draw),
        "random": world.play(uniform, 20_000, draw),
        "reference": world.learn(300, draw),
        "sweep": np.stack([np.repeat(range(S * A), 1), *np.zeros((4, S * A), int)], 1),
    }
    sets["sweep"][:, 2], sets["sweep"][:, 3] = np.divmod(np.arange(S * A), A)
    found = measured(world, sets)
    random = found.intervals["random, TQ"]
    pairs = found.values["sweep, unique state-action pairs"]
    return Finding(
        measured={
            "TQ, expert": found.values["expert, TQ"],
            "TQ, random": random.estimate,
            "SACo, reference": found.values["reference, SACo"],
            "pairs of a full sweep": pairs,
        },
        criterion=f"1 to 1e-12, 0 within two widths of its 95 % interval, 1 and {S * A} exactly",
        holds=abs(found.values["expert, TQ"] - 1) < 1e-12
        and abs(random.estimate) < random.high - random.low
        and found.values["reference, SACo"] == 1
        and pairs == S * A,
        intervals={"TQ, random": (random.low, random.high)},
    )


@claim(
    "With one set of limits, data from a tenth of the space cover less of it.",
    kind="ours",
    baseline="the limits of each data set, by which they cover as much",
)
def shared_limits() -> Finding:
    draw = np.random.default_rng(0)
    points = draw.random((4000, 2))
    wide = np.repeat(["wide", "narrow"], 2000)
    state = np.where(wide[:, None] == "wide", points, points / 10)
    data = LoggedTransitions(
        episode=np.tile(np.arange(2000) // 20, 2).astype(str),
        step=np.tile(np.arange(20), 200),
        state=state,
        action=np.zeros(4000),
        reward=np.zeros(4000),
        dataset=wide,
    )
    own = LoggedTransitions(
        data.episode, data.step, np.where(data.dataset[:, None] == "wide", data.state, 10 * data.state), data.action,
        data.reward, dataset=data.dataset,
    )  # fmt: skip
    shared, each = (dataset_perspective(reference="wide", bins=20)(x).intervals["narrow, SACo"] for x in (data, own))
    return Finding(
        measured={"SACo": shared.estimate, "SACo by its own limits": each.estimate},
        criterion="SACo below 0.05; by its own limits above 0.9",
        holds=shared.estimate < 0.05 and each.estimate > 0.9,
        intervals={"SACo": (shared.low, shared.high)},
        note="2,000 points of a square, and as many of a hundredth of it, in 20 x 20 cells.",
    )


@mutation("Each data set has its own limits.", kills=shared_limits)
def own_limits(replace: Replace) -> None:
    cells = DatasetPerspective.cells

    def each(self: DatasetPerspective, data: LoggedTransitions) -> tuple[np.ndarray, np.ndarray]:
        states, pairs = np.zeros(len(data), int), np.zeros(len(data), int)
        for name in set(data.dataset.tolist()):
            rows = np.flatnonzero(data.dataset == name)
            states[rows], pairs[rows] = cells(self, data[rows])
        return states, pairs

    replace(DatasetPerspective, "cells", each)


@mutation("A pair is the sum of state and action.", kills=fixed_points)
def sums(replace: Replace) -> None:
    def added(self: DatasetPerspective, data: LoggedTransitions) -> tuple[np.ndarray, np.ndarray]:
        state = data.state.astype(int)[:, 0]
        return state, np.unique(state + data.action.astype(int)[:, 0], return_inverse=True)[1]

    replace(DatasetPerspective, "cells", added)


@mutation("An episode that was cut counts in the returns.", kills=fixed_points)
def cut_episodes(replace: Replace) -> None:
    replace(DatasetPerspective, "complete", lambda self, data: np.ones(len(data.lengths), bool))


@mutation("Coverage is the number of different states.", kills=fixed_points)
def states_alone(replace: Replace) -> None:
    cells = DatasetPerspective.cells

    def alone(self: DatasetPerspective, data: LoggedTransitions) -> tuple[np.ndarray, np.ndarray]:
        states, _ = cells(self, data)
        return states, states

    replace(DatasetPerspective, "cells", alone)
