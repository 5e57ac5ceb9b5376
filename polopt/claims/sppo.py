"""These programs measure what the paper of SPPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import ConstantBaseline
from polopt.lab.claims import descend
from polopt.lab.comparisons import TablePreference, compared_arms
from polopt.lab.effects import Less, effect
from polopt.lab.measure import train
from polopt.methods.rloo import rloo
from polopt.methods.sppo import sppo
from polopt.problems import preference_game
from polopt.rewards import WinRate


def self_play(eta: float) -> Algorithm:
    """SPPO on the answers of the game, with every answer learned from."""
    return sppo(group=3, eta=eta, preference=TablePreference()).but(select=[])


def step(eta: float) -> tuple[float, float]:
    """Returns the total variation from a step of multiplicative weights, of the policy fitted to all answers of the
    uniform policy, and of the uniform policy."""
    tree, policy = compared_arms()
    algorithm, start = self_play(eta), tree.log_probabilities(policy).detach()[0].exp()
    batch = tree.leaves().replace(rollout_logp=policy.evaluate(tree.leaves()).logp.detach())
    batch = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    descend(algorithm, batch, policy, steps=100)
    win_rates = preference_game().win_rates(start)
    target = (start.log() + eta * win_rates).softmax(0)
    reached = tree.log_probabilities(policy).detach()[0].exp()
    return tuple((law - target).abs().sum().item() / 2 for law in (reached, start))  # type: ignore[return-value]


@claim(
    "Fitted to all answers, it is a step of multiplicative weights, to second order in the step size.",
    kind="identity",
    baseline="no step",
)
def weights() -> Finding:
    (small, still), (double, _) = step(0.1), step(0.2)
    return Finding(
        measured={"distance at eta 0.1": small, "at 0.2": double, "no step, at 0.1": still},
        criterion="total variation < 1e-6 at eta 0.1, at least 4 times as much at 0.2; without a step > 1e-3",
        holds=small < 1e-6 and double > 4 * small and still > 1e-3,
    )


@effect(
    "Where preferences form a cycle, the policies of self-play, averaged, are beaten by no answer.",
    kind="headline",
    method=lambda: self_play(eta=1.0),
    controls={"a reward fitted to the comparisons": lambda: rloo(group=3, kl=0.0)},
    step_sizes=(0.03, 0.1, 0.3, 1.0),
    criteria=[Less("gap", times=0.5), Less("gap", by=-0.04)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="The duality gap, twice what the best answer wins above 1/2. The reward is the likeliest one for comparisons "
    "of every two answers. At its smallest steps the control stays at the uniform policy, whose gap is 0.067. "
    "The averaged policies are beaten by less, not by no answer: on twice ten fresh seeds the gap was 0.024, 0.40 and "
    "0.36 of the control's, with intervals up to 0.58 and 0.68.",
)
def nash(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = compared_arms()
    laws = list[torch.Tensor]()

    def watch() -> float:
        laws.append(tree.log_probabilities(policy).detach()[0].exp())
        return 0.0

    train(algorithm, tree, policy, steps=200, rate=step_size, rows=8, seed=seed, watch=watch)
    return {"gap": preference_game(tau=0.0).duality_gap(torch.stack(laws).mean(0))}


@mutation("Win rates are not taken from one half.", kills=weights)
def uncentred(replace: Replace) -> None:
    replace(ConstantBaseline, "forward", lambda self, experience, returns: torch.zeros_like(returns))


@mutation("An answer's tie with itself is left out of its win rate.", kills=weights)
def without_itself(replace: Replace) -> None:
    forward = WinRate.forward
    replace(WinRate, "forward", lambda self, experience: forward(self.but(own=False), experience))
