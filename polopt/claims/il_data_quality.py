"""These programs measure what the paper on the quality of demonstrations claims."""

import dataclasses

import numpy as np
from scipy.stats import spearmanr

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.point_mass import as_data, demonstrate, joined, neighbour_success, success
from polopt.methods import il_data_quality as here
from polopt.methods.il_data_quality import DemonstrationQuality, consistent_demonstrations, il_data_quality
from polopt.metrics import t_interval
from polopt.metrics.state_divergence import state_divergence
from polopt.metrics.transitions import LoggedTransitions

SEEDS, SETS = 5, 100


@claim(
    "The divergence of a learner's states is bounded by that of its actions, weighed by the steps that follow; with "
    "equality where a state holds all earlier actions.",
    kind="theory",
    baseline="a bound that weighs all steps as the last one, which is broken",
)
def bound() -> Finding:
    draw, H = np.random.default_rng(0), 6
    ratios = []
    for _ in range(1000):
        expert, learner = draw.dirichlet(np.ones(3), (2, 5))
        found = state_divergence(draw.dirichlet(np.ones(5)), draw.dirichlet(np.ones(5), (5, 3)), expert, learner, H)
        ratios.append(found.states / found.bound)
    # A tree of two actions: state 0 is the root, 2 s + 1 + a follows on a in s; leaves are never left in H steps.
    S = 2 ** (H + 1) - 1
    ahead = np.minimum(2 * np.arange(S)[:, None] + 1 + np.arange(2), S - 1)
    transitions = np.eye(S)[ahead]
    expert, learner = draw.dirichlet(np.ones(2), (2, S))
    tree = state_divergence(np.eye(S)[0], transitions, expert, learner, H)
    unweighted = float(tree.by_step.sum()) / H
    return Finding(
        measured={
            "largest ratio, random problems": max(ratios),
            "ratio, tree": tree.states / tree.bound,
            "ratio to the unweighted bound, tree": tree.states / unweighted,
        },
        criterion="at most 1 in 1,000 random problems, 1 to 1e-10 in the tree, and above 1.5 without the weights there",
        holds=max(ratios) <= 1 + 1e-12 and abs(tree.states / tree.bound - 1) < 1e-10 and tree.states / unweighted > 1.5,
        note="Problems of 5 states, 3 actions and 6 steps; a tree of 2 actions and 6 steps.",
    )


@claim(
    "Noise of the recorded actions makes cloning worse, noise of the system in collection better up to a point.",
    kind="headline",
    baseline="none of either noise",
    cost="slow",
)
def two_noises() -> Finding:
    labels, systems = (0.0, 4.0, 16.0), (0.0, 0.1, 0.15, 0.2, 0.4)
    by_label, by_system = (np.zeros((SEEDS, len(x))) for x in (labels, systems))
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        for k, noise in enumerate(labels):
            by_label[seed, k] = success(*demonstrate(SETS, draw, system=0.05, label=noise), seed).mean()
        for k, noise in enumerate(systems):
            by_system[seed, k] = success(*demonstrate(SETS, draw, system=noise, label=1.0), seed).mean()
    falls = [t_interval(by_label[:, k] - by_label[:, k + 1]) for k in range(2)]
    inner = sum(0 < int(row.argmax()) < len(systems) - 1 for row in by_system)
    gains = t_interval(by_system.max(1) - by_system[:, 0])
    measured = {f"recorded noise {x:g}": float(by_label[:, k].mean()) for k, x in enumerate(labels)}
    measured |= {f"system noise {x:g}": float(by_system[:, k].mean()) for k, x in enumerate(systems)}
    return Finding(
        measured=measured,
        criterion="success is lower at each higher noise of the records, the 95 % interval of the difference above 0, "
        "and highest at a noise of the system between none and the largest in 4 of 5 seeds or more",
        holds=min(x.low for x in falls) > 0 and inner >= 4,
        intervals={"gain by system noise": (gains.low, gains.high)},
        note="Success of linear policies fitted to 20 demonstrations of a point mass by a controller of limited force, "
        f"which they cannot follow everywhere; {SETS} sets of each kind and seed.",
    )


@claim(
    "Noise of the actions that acts and is recorded does both: a little of it helps.",
    kind="limit",
    baseline="no noise",
)
def acted_noise() -> Finding:
    levels = (0.0, 1.0, 3.0)
    found = np.zeros((SEEDS, 3))
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        for k, noise in enumerate(levels):
            found[seed, k] = success(*demonstrate(SETS, draw, system=0.05, acted=noise), seed).mean()
    gain, loss = t_interval(found[:, 1] - found[:, 0]), t_interval(found[:, 0] - found[:, 2])
    return Finding(
        measured={f"noise {x:g}": float(found[:, k].mean()) for k, x in enumerate(levels)},
        criterion="success is higher at 1 and lower at 3 than at 0, both 95 % intervals above 0",
        holds=gain.low > 0 and loss.low > 0,
        intervals={"gain at 1": (gain.low, gain.high), "loss at 3": (loss.low, loss.high)},
    )


@claim(
    "Action variance ranks data sets of one size by what is cloned from them.",
    kind="headline",
    baseline="state similarity, of the same data sets",
    cost="slow",
)
def ranks() -> Finding:
    levels = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
    found: dict[str, list[float]] = {"action variance": [], "state similarity": []}
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        sets = [demonstrate(150, draw, system=0.05, label=noise) for noise in levels]
        scores = [float(success(*each, seed).mean()) for each in sets]
        names = [f"{noise:02g}" for noise in levels]
        data = joined([as_data(x[0], u[0], name) for (x, u), name in zip(sets, names, strict=True)])
        values = il_data_quality()(data).values
        for key, ranked in found.items():
            ranked.append(float(spearmanr([values[f"{name}, {key}"] for name in names], scores).statistic))
    variance, similarity = (t_interval(x) for x in found.values())
    return Finding(
        measured={key: float(np.mean(x)) for key, x in found.items()},
        criterion="mean rank correlation over 5 seeds at most -0.8, its 95 % interval below that of state similarity",
        holds=variance.estimate <= -0.8 and variance.high < similarity.estimate,
        intervals={"action variance": (variance.low, variance.high)},
        note="Six levels of noise of the records; success is the mean of 150 sets of a level, variance that of one.",
    )


@claim(
    "Demonstrations from more distinct starts make cloning better where action variance stays, and not where it rises "
    "with them.",
    kind="headline",
    baseline="as many demonstrations from one start; starts alone, with the noise of the records unchanged",
    cost="slow",
)
def starts() -> Finding:
    distinct, levels = (1, 5, 20), {"steady": (0.25, 0.25, 0.25), "rising": (0.25, 0.5, 1.0)}
    scores = {name: np.zeros((SEEDS, 3)) for name in levels}
    variance = {name: np.zeros((SEEDS, 3)) for name in levels}
    for seed in range(SEEDS):
        for name, noises in levels.items():
            draw = np.random.default_rng(seed)
            for k, (count, noise) in enumerate(zip(distinct, noises, strict=True)):
                x, u = demonstrate(10, draw, system=0.02, label=noise, starts=0.3, distinct=count)
                scores[name][seed, k] = neighbour_success(x, u, seed).mean()
                variance[name][seed, k] = il_data_quality()(as_data(x[0], u[0])).values["action variance"]
    gain, loss = (t_interval(scores[name][:, 2] - scores[name][:, 0]) for name in levels)
    rise = t_interval(variance["rising"][:, 2] - variance["steady"][:, 2])
    return Finding(
        measured={
            f"{name}, {count} starts": float(scores[name][:, k].mean())
            for name in levels
            for k, count in enumerate(distinct)
        }
        | {f"action variance, {name}, 20 starts": float(variance[name][:, 2].mean()) for name in levels},
        criterion="from 1 to 20 starts success rises where the noise stays, the 95 % interval of the difference above "
        "0, and does not where it rises, the interval not above 0; action variance of 20 starts is higher there, the "
        "interval above 0",
        holds=gain.low > 0 and loss.low <= 0 and loss.estimate <= 0 and rise.low > 0,
        intervals={
            "gain by starts, steady": (gain.low, gain.high),
            "gain by starts, rising": (loss.low, loss.high),
            "rise of action variance": (rise.low, rise.high),
        },
        note="20 demonstrations of a point mass; the policy takes the mean force of the five nearest recorded states, "
        "as linear ones, which were tried first, lose by other starts in either case. "
        "The noise is of the records: 0.25, and 0.25, 0.5 and 1.",
    )


@claim(
    "Without the demonstrations whose actions differ most, cloning is better.",
    kind="ours",
    baseline="all of them, and as many by chance",
    cost="slow",
)
def curation() -> Finding:
    fitted: dict[str, list[LoggedTransitions]] = {"kept": [], "all": [], "by chance": []}
    clean = []
    for seed in range(240):
        draw = np.random.default_rng(seed)
        good, bad = demonstrate(1, draw, system=0.05), demonstrate(1, draw, system=0.05, label=16.0, demonstrations=8)
        states, forces = (np.concatenate([x[0], y[0]]) for x, y in zip(good, bad, strict=True))
        data = as_data(states, forces)
        chance = data[np.flatnonzero(np.isin(data.number, draw.permutation(28)[:20]))]
        kept = consistent_demonstrations(data, keep=20 / 28)
        clean.append(np.mean([int(name) < 20 for name in set(kept.episode.tolist())]))
        for name, part in (("kept", kept), ("all", data), ("by chance", chance)):
            fitted[name].append(part)
    scores = {
        name: success(np.stack([x.state for x in parts]), np.stack([x.action for x in parts]), 0)
        for name, parts in fitted.items()
    }
    found = {name: t_interval(scores["kept"] - scores[name]) for name in ("all", "by chance")}
    return Finding(
        measured={f"gain over {name}": x.estimate for name, x in found.items()}
        | {"kept that are not noisy": float(np.mean(clean))},
        criterion="both 95 % intervals of the gain of success, over 240 data sets, above 0",
        holds=min(x.low for x in found.values()) > 0,
        intervals={f"gain over {name}": (x.low, x.high) for name, x in found.items()},
        note="20 demonstrations without noise and 8 with noise 16 of the records; 20 are kept.",
    )


@claim(
    "At equal states action variance is the actions' own; copies, units and a demonstration's own states do not count.",
    kind="identity",
    baseline="exact values",
)
def exact() -> Finding:
    draw = np.random.default_rng(0)
    n, T = 6, 4
    actions = draw.normal(size=n)
    data = LoggedTransitions(
        episode=np.repeat(np.arange(n).astype(str), T),
        step=np.tile(np.arange(T), n),
        state=np.tile([[0.0, 0.0], [0.0, 0.001], [1.0, 0.0], [2.0, 1.0]], (n, 1)),
        action=np.repeat(actions, T),
    )
    twice = joined([data, dataclasses.replace(data, episode=np.char.add("copy ", data.episode))])
    scaled = dataclasses.replace(data, state=data.state * [1.0, 1000.0], action=7 * data.action + 3)
    metric = il_data_quality(radius=0.01)
    one, two, three = (metric(x).values["action variance"] for x in (data, twice, scaled))
    # Standardised actions have variance 1 over n, and so n / (n - 1) unbiased.
    truth = n / (n - 1)
    return Finding(
        measured={"action variance": one, "with copies": two, "other units": three},
        criterion=f"{truth:g} to 1e-9 in all three",
        holds=max(abs(x - truth) for x in (one, two, three)) < 1e-9,
    )


@mutation("A demonstration's own states are neighbours, as each is taken for one of another.", kills=exact)
def own_states(replace: Replace) -> None:
    found = here.neighbourhoods

    def mixed(
        states: np.ndarray, actions: np.ndarray, episode: np.ndarray, copies: np.ndarray, radius: float
    ) -> here.Neighbourhoods:
        return found(states, actions, np.arange(len(states)) % len(copies), copies, radius)

    replace(here, "neighbourhoods", mixed)


@mutation("A copy is another demonstration.", kills=exact)
def copies_count(replace: Replace) -> None:
    replace(DemonstrationQuality, "copies", lambda self, data, states: np.arange(len(data.lengths)))


@mutation("Actions are in the file's units.", kills=exact)
def raw_units(replace: Replace) -> None:
    standardised = DemonstrationQuality.standardised

    def raw(self: DemonstrationQuality, data: LoggedTransitions) -> tuple[np.ndarray, np.ndarray]:
        return standardised(self, data)[0], data.action

    replace(DemonstrationQuality, "standardised", raw)


def use_states(replace: Replace) -> None:
    """Plants that actions are states."""
    standardised = DemonstrationQuality.standardised

    def states_twice(self: DemonstrationQuality, data: LoggedTransitions) -> tuple[np.ndarray, np.ndarray]:
        states, _ = standardised(self, data)
        return states, states

    replace(DemonstrationQuality, "standardised", states_twice)


@mutation("Action variance is of states.", kills=starts)
def variance_of_states(replace: Replace) -> None:
    use_states(replace)


@mutation("Demonstrations are ranked by where they are, not by what they do.", kills=ranks)
def states_for_actions(replace: Replace) -> None:
    use_states(replace)
