"""HNPG: TRPO with a critic of returns and logged transitions, whose steps also improve on it in logged states."""

from typing import Literal

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.trpo import trpo
from polopt.networks import LearnedNetwork, QNetwork, Relabel
from polopt.objectives import Backup, ExpectedActionValue, NetworkRegression, OldPolicyRatio, Regulariser
from polopt.objectives.targets import EVERY_LOGP, evaluated
from polopt.outputs import NetworkOutput, Proposal
from polopt.sampling import FragmentsAndLog


@method(
    paper=Paper(
        title="Offline Data Enhanced On-Policy Policy Gradient with Provable Guarantees",
        authors="Zhou, Yifei and Sekhari, Ayush and Song, Yuda and Sun, Wen",
        year=2023,
        arxiv="2311.08384",
    ),
    changes="TRPO in played and logged states, with one critic of played returns and logged transitions.",
    room="objectives",
    tier="proven",
)
def hnpg(
    *,
    logged_per_played: float = 1.0,
    advantage: Literal["return", "critic"] = "return",
    radius: float = 0.01,
    damping: float = 0.1,
    iterations: int = 10,
    steps: int = 128,
    gamma: float = 0.99,
    tau: float = 0.05,
    critic_lr: float = 3e-4,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With played decisions D_on, of returns R, and c = `logged_per_played` times as many logged transitions D_off,

        V(s) = sum_a pi_old(a | s) f(s, a)
        L_f = E_on (R - f(s, a))^2 + c E_off (r + gamma V_slow(s_next) - f(s, a))^2
        L_pi = -E_on[pi(a | s) / pi_old(a | s) (R - V(s))] - c E_off[sum_a pi(a | s) (f(s, a) - V(s))]

    and V_slow of a slow copy of f, both with one factor 1 / (1 + c). f learns from the stage's minibatches, in all of
    its epochs; then the policy takes TRPO's step on L_pi, its divergence a mean over both kinds of states. c = 0 is
    TRPO with f as its critic. advantage: "critic" takes f(s, a) - V(s) in played states, too, as the theory does.
    radius, damping, iterations: as in `trpo`. steps: decisions of each environment. tau: the step of f_slow. critic_lr:
    of f. A return is cut at the fragment's end, where V_slow stands in for the rest. The log is the recipe's
    `transitions`; actions are choices.

    The paper has an f and a policy for each step of an episode, fitted from the last one backwards, where here one of
    each reads the observation, and a slow copy stands for the next step's f. In a logged state its code draws one
    choice, where the sum is over all; in played states it has GAE, of which R - V is that with lam = 1.
    """
    target = Backup(gamma=None, next=ExpectedActionValue())
    critic = LearnedNetwork(
        name="critic",
        network=QNetwork(heads=1, hidden=hidden),
        objective=NetworkRegression(target=target),
        lr=critic_lr,
        target_tau=tau,
    )
    return trpo(radius=radius, damping=damping, iterations=iterations).but(
        {
            "objective.ratio": OldPolicyRatio(),
            "objective.regularise": [ExpectedAdvantage()],
            "update.after_minibatches": True,
        },
        sampling=FragmentsAndLog(steps=steps, logged_per_played=logged_per_played, gamma=gamma),
        credit=ConstantAdvantage(value=0.0),
        networks=[critic],
        relabel=[HybridAdvantage(target=target, played=advantage)],
    )


EVERY = NetworkOutput("critic", proposal=Proposal(of="every"))


class HybridAdvantage(Relabel):
    """Gives each decision its advantage, and each state that of every choice, `extras.choice_advantage` [B, T, n]:

        A_every(s, a) = f(s, a) - V(s) in logged states, 0 in played ones
        A = target - V(s) of played decisions, 0 of logged ones

    with V(s) = sum_a pi(a | s) f(s, a). played: "critic" takes A_every in played states, too, and A = 0.
    target: of a played decision's return.
    """

    target: Backup
    played: Literal["return", "critic"] = "return"

    reads = frozenset({"extras.logged"})
    writes = frozenset({"advantage", "extras.choice_advantage"})
    policy_outputs = frozenset({EVERY.name, EVERY_LOGP.name})

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        values = evaluated(evaluation, EVERY).mean(-1)
        mean = (evaluated(evaluation, EVERY_LOGP).exp() * values).sum(-1)
        every = values - mean[..., None]
        own = torch.zeros_like(mean)
        if self.played == "return":
            logged = experience.extras["logged"]
            every = torch.where(logged[..., None], every, 0)
            own = torch.where(logged, 0, self.target(experience, evaluation) - mean)
        return experience.replace(advantage=own, extras={**experience.extras, "choice_advantage": every})


class ExpectedAdvantage(Regulariser):
    """-sum_a pi(a | s) A(s, a), with the advantages `extras.choice_advantage` [B, T, n] of every choice."""

    reads = frozenset({"extras.choice_advantage"})
    policy_outputs = frozenset({EVERY_LOGP.name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        chance = evaluated(evaluation, EVERY_LOGP).exp()
        advantage = experience.extras["choice_advantage"].masked_fill(~experience.mask[..., None], 0)
        return -(chance * advantage.to(chance)).sum(-1)
