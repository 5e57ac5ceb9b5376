"""FamO2O: IQL for every balance between improvement and imitation, of which a model chooses one in each state."""

import torch
from torch import Generator

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.iql import iql
from polopt.networks import BALANCE, BalanceFamily, LearnedNetwork, Relabel, Temperature
from polopt.objectives import Branch, BranchedObjective, NetworkAdvantageWeight, TemperatureLoss, ValueAscent
from polopt.objectives.targets import evaluated
from polopt.outputs import NetworkOutput


@method(
    paper=Paper(
        title="Train Once, Get a Family: State-Adaptive Balances for Offline-to-Online Reinforcement Learning",
        authors="Wang, Shenzhi and Yang, Qisen and Gao, Jiawei and Lin, Matthieu Gaetan and Chen, Hao and Wu, Liwei "
        "and Jia, Ning and Song, Shiji and Huang, Gao",
        year=2023,
        arxiv="2310.17966",
    ),
    changes="The policy is learned for every inverse temperature of its weights, and a model that climbs the critics' "
    "value chooses one by state.",
    room="objectives",
    tier="reading",
)
def famo2o(
    *,
    low: float = 1.0,
    high: float = 5.0,
    adaptive: bool = False,
    logged: float = 1.0,
    entropy: float = -0.5,
    temperature: float = 1.0,
    expectile: float = 0.8,
    cap: float = 100.0,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 256,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With the critics of IQL, u = min_j Q_slow_j(s, a) - V(s), a policy pi_u and a balance model pi_b,

        L_u = -min(exp(beta u), cap) log pi_u(a | s, e(beta)),  beta ~ U[low, high], or pi_b(. | s) if `adaptive`
        L_b = T log pi_b(beta_b | s) - min_j Q_j(s, a_u),  beta_b ~ pi_b(. | s), a_u ~ pi_u(. | s, e(beta_b))
        L_T = -log T (log pi_b(beta_b | s) + H)

    where L_b changes pi_b alone. It acts with the most likely beta of pi_b. Offline it learns as it stands; online set
    `adaptive`, and `logged` below 1. low, high: bounds of beta. logged: the share of logged transitions in a batch.
    entropy: H in nats, of beta scaled to [-1, 1]. temperature: T at the beginning. expectile, cap, gamma, tau, batch,
    hidden: as in `iql`. The paper's bounds are 8 and 14 with an expectile of 0.9 in mazes.

    With exact values and a policy that can be any distribution, the value grows with beta in every state, so that pi_b
    goes to `high`; it has to choose where `cap`, the policy's family or its fit to few data make a smaller beta better.

    Deviations. The authors' program squashes the mean of pi_u, reads Q_slow in L_b, draws a_u with the noise that drew
    beta_b, and has T in the place of log T; online it draws from one store of logged and played transitions.
    """
    weight = NetworkAdvantageWeight(beta=BALANCE, cap=cap)
    parent = iql(expectile=expectile, cap=cap, gamma=gamma, tau=tau, batch=batch, hidden=hidden)
    imitation = parent.objective.but({"weights": [weight]})
    price = TemperatureLoss(target=entropy, of="balance")
    made = parent.but(
        {"sampling.logged": logged},
        objective=BranchedObjective(routes=[Branch(objective=imitation), Branch(objective=BalanceAscent())]),
        relabel=[DrawnBalance(chosen=adaptive, low=low, high=high)],
        trunk=BalanceFamily(low=low, high=high, hidden=hidden),
    )
    alpha = LearnedNetwork(name="temperature", network=Temperature(initial=temperature), objective=price)
    return made.but(networks=[*made.networks, alpha])


CHOSEN = NetworkOutput(BALANCE)


class DrawnBalance(Relabel):
    """Gives each decision the balance `extras.balance` [B, T, 1] at which the policy learns from it.

    chosen: whether by the policy's balance model, a sample of it; otherwise uniform in [low, high].
    """

    chosen: bool = False
    low: float = 1.0
    high: float = 5.0

    writes = frozenset({f"extras.{BALANCE}"})

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({CHOSEN.name} if self.chosen else set[str]())

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        if self.chosen:
            balance = evaluated(evaluation, CHOSEN)
        else:
            share = torch.rand(*experience.mask.shape, 1, generator=generator)
            balance = (self.low + (self.high - self.low) * share).to(experience.extras["observation"])
        return experience.replace(extras={**experience.extras, BALANCE: balance})


class BalanceAscent(ValueAscent):
    """aggregate( T log pi_b(beta | s) - min_h Q_h(s, a) ), with a an action of the policy at the balance beta that it
    chooses, and a gradient in the choice alone. Its metrics have the mean of balances and that of their squares.
    """

    temperature: str | float = "temperature"
    of: str = "balance"  # type: ignore[assignment]

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return super().policy_outputs | {CHOSEN.name}

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        loss, metrics = super().forward(experience, evaluation)
        balance = torch.where(experience.mask, evaluated(evaluation, CHOSEN)[..., 0], 0)
        means = {"balance": balance, "balance/square": balance.square()}
        return Loss(loss, metrics | {name: self.aggregate(experience, value) for name, value in means.items()})
