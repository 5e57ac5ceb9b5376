"""These programs measure what the paper of NLHF claims."""

import math

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import duality_gaps, random_games
from polopt.methods.nlhf import nlhf
from polopt.problems import PreferenceGame, preference_game
from polopt.solvers import HarmonicStepSize, Opponent, OwnMixture, PreferenceMirrorDescent, StepSize
from polopt.solvers.solver import State


def bradley_terry(game: PreferenceGame, steps: int = 2000) -> Tensor:
    """Returns the policy of reinforcement learning from a reward model: the reward of the Bradley-Terry model that fits
    the preferences of uniform pairs best, and the policy in proportion to reference exp(reward / tau)."""
    reward = torch.zeros_like(game.reference)
    for _ in range(steps):
        gap = game.preference - (reward[:, None] - reward).sigmoid()
        reward = reward + gap.mean(1)
    return (game.reference.log() + reward / game.tau).softmax(0)


@claim(
    "The last policy nears the equilibrium, also where preferences are not transitive.",
    kind="headline",
    baseline="reinforcement learning from a Bradley-Terry reward, regularised alike; self-play that is not regularised",
)
def nears() -> Finding:
    games = [preference_game(), *random_games(8)]
    selfplay = PreferenceMirrorDescent(regularised=False, opponent=Opponent())
    gaps: dict[str, list[float]] = {"Nash-MD": [], "reward model": [], "self-play": []}
    for game in games:
        gaps["Nash-MD"] += duality_gaps(nlhf(), game, [1000])
        gaps["self-play"] += duality_gaps(selfplay, game, [1000])
        gaps["reward model"].append(game.duality_gap(bradley_terry(game)))
    others = [min(a, b) for a, b in zip(gaps["reward model"], gaps["self-play"], strict=True)]
    return Finding(
        measured={
            "largest duality gap": max(gaps["Nash-MD"]),
            "of the reward model, mean": sum(gaps["reward model"]) / len(games),
            "of self-play, mean": sum(gaps["self-play"]) / len(games),
            "least of either in a game": min(others),
        },
        criterion="after 1,000 iterations gap < 1e-4 in 9 games; the others' means > 0.05",
        holds=max(gaps["Nash-MD"]) < 1e-4
        and min(sum(gaps["reward model"]), sum(gaps["self-play"])) > 0.05 * len(games),
    )


@claim(
    "Every step obeys KL(pi* | new) <= (1 - lr tau) KL(pi* | old) + 2 lr^2.",
    kind="theory",
    baseline="the same bound without the term 2 lr^2, which steps break",
)
def contracts() -> Finding:
    worst, without = -math.inf, -math.inf
    for game in random_games(4):
        equilibrium = game.reference
        for _ in range(400):  # mirror descent against itself has the equilibrium as its limit, without a bias
            equilibrium = _mirror(game, equilibrium)
        for lr in (0.1, 1.0, 5.0):
            solver = nlhf(lr=lr)
            state: State = solver.begin(game)
            for _ in range(40):
                after = solver.iterate(game, state)
                old, new = (_divergence(equilibrium, s["log_policy"]) for s in (state, after))
                worst = max(worst, new - (1 - lr * game.tau) * old - 2 * lr**2)
                without = max(without, new - (1 - lr * game.tau) * old)
                state = after
    return Finding(
        measured={"largest excess over the bound": worst, "over the bound without 2 lr^2": without},
        criterion="no excess in 480 steps on 4 random games, with lr of 0.1, 1 and 5; without 2 lr^2 there is",
        holds=worst <= 1e-12 and without > 1e-6,
    )


def _mirror(game: PreferenceGame, policy: Tensor, lr: float = 1.0) -> Tensor:
    pull = lr * game.tau
    return ((1 - pull) * policy.log() + pull * game.reference.log() + lr * game.win_rates(policy)).softmax(0)


def _divergence(policy: Tensor, log: Tensor) -> float:
    return float((policy * (policy.log() - log)).sum())


@claim(
    "A constant step size leaves a distance, which grows with it; one that decreases does not.",
    kind="limit",
    baseline="constant step sizes 0.1, 0.5 and 2, from as many iterations",
)
def leaves_a_distance() -> Finding:
    game = preference_game()
    gaps = [duality_gaps(nlhf(lr=lr), game, [1000])[0] for lr in (0.1, 0.5, 2.0)]
    decreasing = duality_gaps(nlhf(lr=10.0, decreasing=True), game, [1000])[0]
    return Finding(
        measured={"decreasing": decreasing, "0.1": gaps[0], "0.5": gaps[1], "2": gaps[2]},
        criterion="gaps after 1,000 iterations: decreasing < 0.1 x that of 0.1; each constant one > 10 x the last",
        holds=decreasing < 0.1 * gaps[0] and gaps[1] > 10 * gaps[0] and gaps[2] > 10 * gaps[1],
    )


@claim(
    "Nash-EMA, against averaged logits, nears the equilibrium as well.",
    kind="part",
    baseline="the same average without regularisation",
)
def averages() -> Finding:
    games = [preference_game(), *random_games(4)]
    solver = nlhf(opponent="average")
    gaps = [duality_gaps(solver, game, [1000])[0] for game in games]
    free = [duality_gaps(solver.but(regularised=False), game, [1000])[0] for game in games]
    return Finding(
        measured={"largest gap": max(gaps), "without regularisation, mean": sum(free) / len(games)},
        criterion="after 1,000 iterations gap < 1e-4 in 5 games; without regularisation the mean is > 0.05",
        holds=max(gaps) < 1e-4 and sum(free) > 0.05 * len(games),
    )


@mutation("The policy is drawn to the reference by lr, whatever tau.", kills=nears)
def drawn_by_the_step(replace: Replace) -> None:
    iterate = PreferenceMirrorDescent.iterate

    def changed(self: PreferenceMirrorDescent, problem: PreferenceGame, state: State) -> dict[str, Tensor]:
        return iterate(self, PreferenceGame(problem.preference, problem.reference, 1.0), state)

    replace(PreferenceMirrorDescent, "iterate", changed)


@mutation("The decreasing step size does not decrease.", kills=leaves_a_distance)
def never_decreases(replace: Replace) -> None:
    replace(HarmonicStepSize, "forward", StepSize.forward)


@mutation("The opponent is uniform.", kills=nears)
def fixed_opponent(replace: Replace) -> None:
    replace(OwnMixture, "forward", lambda self, mixture, policy, memory: torch.full_like(mixture, 1 / len(mixture)))
