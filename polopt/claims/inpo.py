"""These programs measure what the paper of INPO claims."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.games import duality_gaps, random_games
from polopt.methods.inpo import inpo
from polopt.problems import PreferenceGame, preference_game
from polopt.solvers import Opponent, OwnMixture


@claim(
    "With a constant step size the last policy reaches the equilibrium.",
    kind="headline",
    baseline="Nash-MD, the same step against the policy mixed with the reference",
)
def reaches() -> Finding:
    games = [preference_game(), *random_games(6)]
    ours = [duality_gaps(inpo(), game, [300])[0] for game in games]
    mixture = [duality_gaps(inpo().but(opponent=OwnMixture()), game, [300])[0] for game in games]
    return Finding(
        measured={"largest gap": max(ours), "of Nash-MD, least": min(mixture), "of Nash-MD, largest": max(mixture)},
        criterion="after 300 iterations with eta = 1 gap < 1e-9 in 7 games, Nash-MD's > 1e-6 in all",
        holds=max(ours) < 1e-9 and min(mixture) > 1e-6,
    )


@claim(
    "The least of the loss on preference labels is the step of mirror descent.",
    kind="identity",
    baseline="the policy before the step, and the loss without the reference",
)
def regression() -> Finding:
    off = {"of the labels' loss": 0.0, "of the policy before": float("inf"), "of tau = 0": float("inf")}
    for game in random_games(3):
        solver = inpo(eta=0.7)
        state = solver.iterate(game, solver.begin(game))
        exact = solver.iterate(game, state)["log_policy"].exp()
        pairs = {name: _labels_minimiser(game, state["log_policy"], 0.7, t) for name, t in (("1", game.tau), ("0", 0))}
        off["of the labels' loss"] = max(off["of the labels' loss"], float((pairs["1"] - exact).abs().max()))
        before = float((state["log_policy"].exp() - exact).abs().max())
        off["of the policy before"] = min(off["of the policy before"], before)
        off["of tau = 0"] = min(off["of tau = 0"], float((pairs["0"] - exact).abs().max()))
    return Finding(
        measured={f"distance {name}": value for name, value in off.items()},
        criterion="distance < 1e-9 in 3 games; of the policy before and without the reference > 1e-3",
        holds=off["of the labels' loss"] < 1e-9 and min(off["of the policy before"], off["of tau = 0"]) > 1e-3,
    )


def _labels_minimiser(game: PreferenceGame, log: Tensor, eta: float, tau: float) -> Tensor:
    """Returns the policy that minimises E (h(y, y') - sign / (2 eta))^2 over pairs of the policy `log`, where the label
    is of a preference between y and y': least squares for log pi', as h is linear in it."""
    N = len(log)
    rows, targets, weights = [], [], []
    base = (tau / eta) * game.reference.log() + (1 - tau / eta) * log
    for i in range(N):
        for j in range(N):
            row = torch.zeros(N, dtype=torch.double)
            row[i] += 1
            row[j] -= 1
            for sign, odds in ((1.0, game.preference[i, j]), (-1.0, game.preference[j, i])):
                rows.append(row)
                targets.append(base[i] - base[j] + sign / (2 * eta))
                weights.append(((log[i] + log[j]).exp() * odds).sqrt())
    scale = torch.stack(weights)
    a, b = torch.stack(rows) * scale[:, None], torch.stack(targets) * scale
    return torch.linalg.lstsq(a, b[:, None], driver="gelsd").solution[:, 0].softmax(0)


@claim(
    "With eta = tau the step forgets the previous policy but as an opponent.",
    kind="identity",
    baseline="a larger eta",
)
def forgets() -> Finding:
    off = {}
    for name, eta in (("eta = tau", 0.1), ("eta = 10 tau", 1.0)):
        game, solver = preference_game(tau=0.1), inpo(eta=eta)
        state = solver.iterate(game, solver.begin(game))
        closed = (game.reference.log() + game.win_rates(state["log_policy"].exp()) / 0.1).softmax(0)
        off[name] = float((solver.iterate(game, state)["log_policy"].exp() - closed).abs().max())
    return Finding(
        measured={f"distance from reference exp(P / tau), {name}": value for name, value in off.items()},
        criterion="distance < 1e-12; of eta = 10 tau > 1e-2",
        holds=off["eta = tau"] < 1e-12 and off["eta = 10 tau"] > 1e-2,
    )


@mutation("The win rates are against the policy mixed with the reference, as in Nash-MD.", kills=reaches)
def mixed_opponent(replace: Replace) -> None:
    replace(Opponent, "forward", lambda self, mixture, policy, memory: mixture)
