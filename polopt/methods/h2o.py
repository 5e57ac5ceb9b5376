"""H2O: SAC from a log of the real system and from a simulator, trusted as far as two classifiers cannot tell them
apart."""

import torch
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.sac import sac
from polopt.networks import LearnedNetwork, Relabel, VectorNetwork
from polopt.objectives import Aggregate, Regulariser, SquaredError, TokenMean, Weight
from polopt.objectives.network_losses import NetworkObjective
from polopt.objectives.targets import evaluated
from polopt.outputs import NetworkOutput


@method(
    paper=Paper(
        title="When to Trust Your Simulator: Dynamics-Aware Hybrid Offline-and-Online Reinforcement Learning",
        authors="Niu, Haoyi and Sharma, Shubham and Qiu, Yiwen and Li, Ming and Zhou, Guyue and Hu, Jianming and "
        "Zhan, Xianyuan",
        year=2022,
        arxiv="2206.13464",
    ),
    changes="Simulated transitions count as far as reality would make them, and have lower values where it would not.",
    room="objectives",
    tier="proven",
)
def h2o(
    *,
    beta: float = 0.01,
    logged: float = 0.5,
    limit: float = 4.0,
    least: float = 1e-5,
    largest_gap: float = 10.0,
    gamma: float = 0.99,
    tau: float = 0.005,
    entropy: float | None = None,
    temperature: float = 1.0,
    batch: int = 256,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With real transitions D, the recipe's `transitions`, and simulated ones B, those of its environment,

        f(s, a) = log odds that (s, a) is simulated
        w = f(s, a, s_next) - f(s, a), which estimates log(P_sim(s_next | s, a) / P_real(s_next | s, a))
        L_TD = mean_D (Q - y)^2 + mean_B clip(exp(-w), least, 1) (Q - y)^2
        L_Q = L_TD + beta (log sum_B u exp Q - mean_D Q)

    for each of two critics, y = r + gamma min_j Q_slow_j(s_next, a_next) without an entropy, u = clip(w, 1e-8,
    largest_gap), and the policy of SAC on D and B. f(s, a, s_next) is the sum of two networks, both learned by
    cross-entropy. beta: price of simulated values. logged: share of D in a batch. limit: of |w|. least: of a simulated
    transition's weight. gamma, tau, entropy, temperature, start, capacity, steps: as in `sac`. batch: the rows of a
    minibatch, of which a batch is one.

    The losses here are means over both kinds of rows: half of these at logged = 1/2. u reads the one s_next that the
    simulator gave, where the paper's program averages over ten with noise around it; the classifiers' inputs have no
    noise, either. The program limits f(s, a) as w, which then takes up what f may not say where D has no such (s, a).
    """
    replay = {"batch": batch, "start": start, "capacity": capacity, "steps": steps}
    parent = sac(gamma=gamma, tau=tau, entropy=entropy, temperature=temperature, hidden=hidden, **replay)
    before, after = ("observation", "action"), ("observation", "action", "next_observation")
    networks = [
        LearnedNetwork(
            name="transition_odds",
            network=VectorNetwork(outputs=1, reads_from=after, hidden=hidden, limit=limit),
            objective=SimulatedOddsLoss(),
            together_with=("action_odds",),
        ),
        LearnedNetwork(
            name="action_odds",
            network=VectorNetwork(outputs=1, reads_from=before, hidden=hidden),
            objective=None,
        ),
    ]
    changes = {
        "sampling.logged": logged,
        "sampling.group": batch,
        "networks.0.objective.error": SquaredError(),
        "networks.0.objective.target.next.temperature": 0.0,
        "networks.0.objective.weights": [RealTransitionWeight(least=least)],
        "networks.0.objective.regularise": [SimulatedValuePenalty(coefficient=beta / 2, largest=largest_gap)],
    }
    made = parent.but(changes, relabel=[DynamicsGap()])
    return made.but(networks=[*networks, *made.networks])


TRANSITION, ACTION = NetworkOutput("transition_odds"), NetworkOutput("action_odds")
GAP = "extras.dynamics_gap"


class SimulatedOddsLoss(NetworkObjective):
    """aggregate( CE(f(s, a)) + CE(f(s, a) + w(s, a, s_next)) ), the cross-entropies of two log odds that a row is
    simulated, of `networks` action_odds for f and transition_odds for w."""

    aggregate: Aggregate = TokenMean()

    tags = frozenset({"update_rule=regression"})
    reads = frozenset({"extras.logged"})
    policy_outputs = frozenset({TRANSITION.name, ACTION.name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation = evaluation.zero_masked(experience.mask)
        gap, odds = (evaluated(evaluation, output)[..., 0] for output in (TRANSITION, ACTION))
        simulated = (~experience.extras["logged"]).to(gap)
        errors = [binary_cross_entropy_with_logits(found, simulated, reduction="none") for found in (odds, odds + gap)]
        right = ((odds + gap > 0) == (simulated > 0)).to(gap)
        metrics = {"right": self.aggregate(experience, right)}
        return Loss(self.aggregate(experience, errors[0] + errors[1]), metrics)


class DynamicsGap(Relabel):
    """Gives each row `extras.dynamics_gap` [B, T]: w = f(s, a, s_next) - f(s, a), by the network transition_odds."""

    writes = frozenset({GAP})
    policy_outputs = frozenset({TRANSITION.name})

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        gap = evaluated(evaluation, TRANSITION)[..., 0]
        return experience.replace(extras={**experience.extras, "dynamics_gap": gap})


class RealTransitionWeight(Weight):
    """clip(exp(-w), least, 1) of a simulated row, an estimate of P_real / P_sim; 1 of a logged one.

    least: the smallest weight.
    """

    least: float = 1e-5

    reads = frozenset({GAP, "extras.logged"})

    def setup(self) -> None:
        if not 0 <= self.least <= 1:
            raise ValueError(f"methods.h2o.RealTransitionWeight: least must be in [0, 1], found {self.least}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        ratio = (-experience.extras["dynamics_gap"]).exp().clamp(self.least, 1)
        return torch.where(experience.extras["logged"], 1.0, ratio)


class SimulatedValuePenalty(Regulariser):
    """sum_h (log sum_B u exp Q_h - mean_D Q_h), the same for all rows of a group: the values of simulated rows B, most
    of all where u = clip(w, 1e-8, largest) says that reality goes elsewhere, are lowered against those of logged rows
    D. A sum or mean of no rows is left out.

    largest: of u.
    """

    coefficient: float = 0.005
    largest: float = 10.0

    binds = "group"
    reads = frozenset({GAP, "extras.logged", "group"})
    policy_outputs = frozenset({NetworkOutput("critic").name})

    def setup(self) -> None:
        if not self.largest > 1e-8:
            raise ValueError(f"methods.h2o.SimulatedValuePenalty: largest must be > 1e-8, found {self.largest}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        mask, logged = experience.mask, experience.extras["logged"]
        values = evaluated(evaluation, NetworkOutput("critic"))
        weight = experience.extras["dynamics_gap"].clamp(1e-8, self.largest).log().to(values)
        groups = experience.group[:, None].expand(mask.shape)
        terms = torch.zeros(mask.shape, dtype=values.dtype, device=values.device)
        for group in experience.group.unique():
            own = mask & (groups == group)
            simulated, real = own & ~logged, own & logged
            penalty = values.new_zeros(())
            if simulated.any():
                penalty = penalty + (values[simulated] + weight[simulated][:, None]).logsumexp(0).sum()
            if real.any():
                penalty = penalty - values[real].mean(0).sum()
            terms = torch.where(own, penalty, terms)
        return terms
