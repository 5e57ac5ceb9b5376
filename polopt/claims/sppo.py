"""These programs measure what the paper of SPPO claims."""

import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import duality_gaps, random_games
from polopt.methods.sppo import sppo
from polopt.problems import preference_game
from polopt.solvers import IterationWeight, Opponent


@claim(
    "The mean of all policies approaches the equilibrium; the last one does not, if preferences are not transitive.",
    kind="headline",
    baseline="the last policy, which is what is deployed; the reference policy",
)
def approaches() -> Finding:
    game = preference_game(tau=0.0)
    mean = duality_gaps(sppo().but(average=IterationWeight()), game, [200, 2000])
    last, first = duality_gaps(sppo(), game, [2000])[0], game.duality_gap(game.reference)
    return Finding(
        measured={"gap of the mean": mean[1], "after 200": mean[0], "of the last policy": last, "at first": first},
        criterion="after 2,000 steps gap of the mean < 0.03 and < 0.2 of that after 200; the last's > 10 x the mean's",
        holds=mean[1] < 0.03 and mean[1] < 0.2 * mean[0] and last > 10 * mean[1],
    )


@claim(
    "Where preferences are transitive, the last policy takes the best answer.",
    kind="part",
    baseline="the same number of steps where they are not",
)
def takes_the_best() -> Finding:
    ends = {}
    for name, transitive in (("transitive", 1.0), ("not transitive", 0.0)):
        gaps = [
            duality_gaps(sppo(eta=1.0), game, [1000])[0] for game in random_games(5, tau=0.0, transitive=transitive)
        ]
        ends[name] = gaps
    return Finding(
        measured={
            "largest gap, transitive": max(ends["transitive"]),
            "mean gap, not transitive": sum(ends["not transitive"]) / 5,
        },
        criterion="1,000 steps with eta = 1: gap < 0.01 in 5 Bradley-Terry games; mean > 0.1 where not transitive",
        holds=max(ends["transitive"]) < 0.01 and sum(ends["not transitive"]) / 5 > 0.1,
    )


@claim(
    "The target eta (P(y > pi) - 1/2) of the square loss is the step, to second order in eta.",
    kind="identity",
    baseline="the target eta P(y > pi), without the mean 1/2",
)
def regression() -> Finding:
    game, off, plain = random_games(1)[0], {}, 0.0
    for eta in (0.02, 0.01):
        solver = sppo(eta=eta)
        state = solver.begin(game)
        ratio = solver.iterate(game, state)["log_policy"] - state["log_policy"]
        wins = game.win_rates(state["log_policy"].exp())
        off[eta] = float((ratio - eta * (wins - 0.5)).abs().max())
        plain = float((ratio - eta * wins).abs().max())
    order = off[0.02] / off[0.01]
    return Finding(
        measured={"error at eta = 0.01": off[0.01], "ratio of errors, 0.02 to 0.01": order, "without the mean": plain},
        criterion="ratio of errors within 3.8 and 4.2, error < 1e-4; without the mean > 1e-3",
        holds=3.8 < order < 4.2 and off[0.01] < 1e-4 and plain > 1e-3,
    )


@mutation("The win rates are those against a uniform opponent.", kills=approaches)
def uniform_opponent(replace: Replace) -> None:
    replace(Opponent, "forward", lambda self, mixture, policy, memory: torch.full_like(policy, 1 / len(policy)))


@mutation("The opponent takes the answers in the opposite order.", kills=regression)
def opponent_in_the_opposite_order(replace: Replace) -> None:
    replace(Opponent, "forward", lambda self, mixture, policy, memory: policy.flip(0))
