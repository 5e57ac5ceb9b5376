"""SERL: RLPD for robots, whose reward is a classifier of success that learns from what the policy does."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.rlpd import rlpd
from polopt.networks import LearnedNetwork, Relabel, VectorNetwork
from polopt.objectives import Aggregate, TokenMean
from polopt.objectives.network_losses import NetworkObjective
from polopt.objectives.targets import evaluated
from polopt.outputs import NetworkOutput


@method(
    paper=Paper(
        title="SERL: A Software Suite for Sample-Efficient Robotic Reinforcement Learning",
        authors="Luo, Jianlan and Hu, Zheyuan and Xu, Charles and Tan, You Liang and Berg, Jacob and Sharma, Archit "
        "and Schaal, Stefan and Finn, Chelsea and Gupta, Abhishek and Levine, Sergey",
        year=2024,
        arxiv="2401.16013",
    ),
    changes="Replaces the reward by a classifier of success, whose failures are the states that the policy comes to.",
    room="rewards",
    tier="proven",
)
def serl(
    *,
    threshold: float = 0.5,
    smoothing: float = 0.2,
    heads: int = 10,
    target_heads: int = 2,
    updates: int = 4,
    logged: float = 0.5,
    gamma: float = 0.96,
    tau: float = 0.005,
    temperature: float = 0.01,
    entropy: float | None = None,
    batch: int = 1024,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With p a classifier of states, S the states after logged transitions whose reward is above 0, and B the states
    after played ones,

        r = 1[p(s_next) >= threshold]
        L_p = mean_S CE(1 - smoothing / 2, p) + mean_B CE(smoothing / 2, p)

    and RLPD on r, without an entropy in the target, from demonstrations in the recipe's `transitions`. threshold: of p.
    smoothing: of the labels. heads, target_heads, updates, logged, entropy, start, capacity, steps: as in `rlpd`.
    temperature: at first. batch: of all minibatches, of which a stage should have `updates`. The environment's own
    rewards are read in the log alone.

    The classifier of VICE, arXiv 1805.11686, in the authors' program also mixes pairs of states and has a penalty on
    its gradient; it reads images. Their critics have tanh for relu, and half of the entropy of `rlpd`'s default.
    Controllers, frames of the end effector and policies that undo the task are the environment's.
    """
    sizes: dict[str, Any] = {"batch": batch, "start": start, "capacity": capacity, "steps": steps, "hidden": hidden}
    made = rlpd(
        logged=logged,
        heads=heads,
        target_heads=target_heads,
        updates=updates,
        entropy=entropy,
        entropy_backup=False,
        gamma=gamma,
        tau=tau,
        **sizes,
    )
    network = VectorNetwork(outputs=1, reads_from=("next_observation",), hidden=hidden[:1], layer_norm=True)
    classifier = LearnedNetwork(name="success", network=network, objective=SuccessLoss(smoothing=smoothing))
    changes = {"sampling.group": max(1, batch // updates), "networks.1.network.initial": temperature}
    made = made.but(changes, relabel=[SuccessReward(threshold=threshold)])
    return made.but(networks=[classifier, *made.networks])


SUCCESS = NetworkOutput("success")


class SuccessReward(Relabel):
    """1 where the network `success` gives the state after the decision a probability of `threshold` or more, 0
    elsewhere; and `extras.succeeded` [B, T], the logged transitions whose own reward was above 0."""

    threshold: float = 0.5

    reads = frozenset({"reward", "extras.logged"})
    writes = frozenset({"reward", "extras.succeeded"})
    policy_outputs = frozenset({SUCCESS.name})

    def setup(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"methods.serl.SuccessReward: threshold must be in (0, 1), found {self.threshold}")

    def check_log(self, log: Mapping[str, Tensor]) -> None:
        if not (log["reward"] > 0).any():
            raise ValueError(
                f"none of its {len(log['reward'])} rewards is above 0, and successes are told by that; set the reward "
                "of the transitions that end in success to 1 and of all others to 0"
            )

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        reward = ops.per_decision_reward(experience.reward, experience.mask)
        succeeded = experience.extras["logged"] & (reward > 0)
        found = evaluated(evaluation, SUCCESS)[..., 0].sigmoid() >= self.threshold
        return experience.replace(
            reward=found.to(reward), extras={**experience.extras, "succeeded": succeeded & experience.mask}
        )


class SuccessLoss(NetworkObjective):
    """mean of CE(1 - smoothing / 2, p) over `extras.succeeded` and of CE(smoothing / 2, p) over the rows that are not
    logged, both within a group; other rows do not count, nor a mean of no rows. The metrics are shares of all rows.

    smoothing: of the labels.
    """

    smoothing: float = 0.2
    aggregate: Aggregate = TokenMean()

    tags = frozenset({"update_rule=regression"})
    binds = "group"
    reads = frozenset({"extras.logged", "extras.succeeded", "group"})
    policy_outputs = frozenset({SUCCESS.name})

    def setup(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"methods.serl.SuccessLoss: smoothing must be in [0, 1), found {self.smoothing}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        mask = experience.mask
        odds = evaluated(evaluation.zero_masked(mask), SUCCESS)[..., 0]
        succeeded = experience.extras["succeeded"] & mask
        sides = {"success": succeeded, "failure": ~experience.extras["logged"] & mask}
        groups = experience.group[:, None].expand(mask.shape)
        terms, metrics = 0 * odds, dict[str, Tensor]()
        for name, side in sides.items():
            label = abs(float(name == "success") - self.smoothing / 2)
            error = binary_cross_entropy_with_logits(odds, torch.full_like(odds, label), reduction="none")
            for group in experience.group.unique():
                own, rows = side & (groups == group), mask & (groups == group)
                if own.any():
                    terms = torch.where(rows, terms + error[own].mean(), terms)
            metrics[f"called_success/{name}"] = self.aggregate(experience, ((odds > 0) & side).to(odds))
        return Loss(self.aggregate(experience, terms), metrics)
