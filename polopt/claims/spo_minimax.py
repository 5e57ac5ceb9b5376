"""These programs measure what the paper of SPO, the minimax winner by self-play, claims."""

import math

import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import duality_gaps, random_games
from polopt.methods.spo_minimax import spo_minimax
from polopt.problems import PreferenceGame, preference_game
from polopt.solvers import Opponent, PreferenceMirrorDescent


@claim(
    "It finds the minimax winner of preferences that no reward can explain.",
    kind="headline",
    baseline="the best answer by a Bradley-Terry reward that is fitted to uniform pairs; the uniform policy",
)
def wins() -> Finding:
    games = [preference_game(tau=0.0), *random_games(6, tau=0.0)]
    ours = [duality_gaps(spo_minimax(lr=0.05), game, [4000])[0] for game in games]
    # Fitted to uniform pairs, a Bradley-Terry reward has the order of the sums.
    rewards = [game.preference.sum(1) for game in games]
    best = [
        game.duality_gap(torch.nn.functional.one_hot(reward.argmax(), len(reward)).double())
        for game, reward in zip(games, rewards, strict=True)
    ]
    return Finding(
        measured={
            "largest gap": max(ours),
            "of the reward's best answer, mean": sum(best) / len(games),
            "of that in the game of three answers": best[0],
        },
        criterion="after 4,000 steps gap < 0.05 in 7 games; the mean of the reward's best answer > 0.2",
        holds=max(ours) < 0.05 and sum(best) / len(games) > 0.2,
    )


@claim(
    "The gap of the mean is within twice the regret bound, log(N) / (lr T) + lr / 8.",
    kind="theory",
    baseline="the gap of the last policy, which is not",
)
def regret() -> Finding:
    excess, last = -math.inf, -math.inf
    for game in [preference_game(tau=0.0), *random_games(4, tau=0.0)]:
        uniform = torch.full_like(game.reference, 1 / len(game.reference))
        start = PreferenceGame(game.preference, uniform)
        for lr in (0.05, 0.3):
            bound = 2 * (math.log(len(uniform)) / (lr * 1000) + lr / 8)
            excess = max(excess, duality_gaps(spo_minimax(lr=lr), start, [1000])[0] - bound)
            last = max(last, duality_gaps(spo_minimax(lr=lr).but(average=None), start, [1000])[0] - bound)
    return Finding(
        measured={"largest excess over the bound": excess, "of the last policy": last},
        criterion="no excess after 1,000 steps in 5 games with lr of 0.05 and 0.3; the last policy has one",
        holds=excess <= 0 < last,
    )


@claim(
    "One learner that plays against itself takes the steps of two learners that duel.",
    kind="identity",
    baseline="two learners that begin apart",
)
def symmetric() -> Finding:
    game, solver = preference_game(tau=0.0), spo_minimax()
    state = solver.begin(game)
    duel = {
        "alike": [game.reference.log(), game.reference.log()],
        "apart": [game.reference.log(), torch.zeros(3).double()],
    }
    for _ in range(50):
        state = solver.iterate(game, state)
        for name, (one, two) in duel.items():
            duel[name] = [
                (one + 0.1 * game.preference @ two.softmax(0)).log_softmax(0),
                (two + 0.1 * game.preference @ one.softmax(0)).log_softmax(0),
            ]
    own = state["log_policy"].exp()
    off = {name: max(float((log.softmax(0) - own).abs().max()) for log in logs) for name, logs in duel.items()}
    return Finding(
        measured={f"distance, beginning {name}": value for name, value in off.items()},
        criterion="after 50 steps distance < 1e-12; beginning apart > 1e-2",
        holds=off["alike"] < 1e-12 and off["apart"] > 1e-2,
    )


@mutation("The solution is the last policy.", kills=regret)
def last_policy(replace: Replace) -> None:
    replace(PreferenceMirrorDescent, "solution", lambda self, problem, state: state["log_policy"].exp())


@mutation("The opponent is uniform.", kills=symmetric)
def uniform_opponent(replace: Replace) -> None:
    replace(Opponent, "forward", lambda self, mixture, policy, memory: torch.full_like(policy, 1 / len(policy)))
