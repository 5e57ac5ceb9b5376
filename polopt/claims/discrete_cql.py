"""This program measures what the paper of CQL claims, of choices."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.transitions import Log, learned_from
from polopt.methods.discrete_cql import discrete_cql
from polopt.objectives import ConservativeChoicePenalty

SEEDS = range(41, 44)


def costly(seed: int, count: int = 2000) -> Log:
    """Returns a log of single decisions among four choices, of which the last is logged once in 500, when its reward
    happened to be 1; on average it is -5. That of the others is -1 and, of the first where s > 0, -0.5."""
    draw = torch.Generator().manual_seed(seed)
    state = 2 * torch.rand(count, generator=draw) - 1
    action = torch.randint(3, (count,), generator=draw)
    action[:: count // 4] = 3
    reward = torch.where((action == 0) & (state > 0), -0.5, -1.0)
    return {
        "observation": state[:, None],
        "next_observation": state[:, None],
        "action": action,
        "reward": torch.where(action == 3, 1.0, reward),
        "terminated": torch.ones(count, dtype=torch.bool),
        "truncated": torch.zeros(count, dtype=torch.bool),
    }


def rare_and_right(alpha: float, seed: int) -> tuple[float, float]:
    """Returns the shares of states with the rare choice, and, among s > 0, with the best of the others."""
    algorithm = discrete_cql(alpha=alpha, target_every=20)
    policy, _ = learned_from(costly(seed), algorithm, head="action_values", steps=500, seed=seed)
    states = torch.linspace(-1, 1, 200)[:, None]
    choice = policy.act(states, torch.Generator(), greedy=True).action
    return float((choice == 3).float().mean()), float((choice[states[:, 0] > 0.2] == 0).float().mean())


@claim(
    "It does not take a choice that was rarely logged, and still tells the good from the bad among the others.",
    kind="headline",
    cost="slow",
    baseline="alpha = 0: double DQN on the same log",
)
def stays_with_the_log() -> Finding:
    own, free = ([rare_and_right(alpha, seed) for seed in SEEDS] for alpha in (0.5, 0.0))
    return Finding(
        measured={
            "largest share of the rare choice": max(rare for rare, _ in own),
            "least share of the best": min(right for _, right in own),
            "least share of the rare choice, of DQN": min(rare for rare, _ in free),
        },
        criterion="3 seeds: the rare choice in < 5 % of the states and the best in > 80 % of s > 0.2; DQN takes the "
        "rare one in > 50 %",
        holds=max(rare for rare, _ in own) < 0.05
        and min(right for _, right in own) > 0.8
        and min(rare for rare, _ in free) > 0.5,
    )


@mutation("no price on the other choices", kills=stays_with_the_log)
def no_price(replace: Replace) -> None:
    def forward(self: ConservativeChoicePenalty, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.zeros_like(evaluation.logp)

    replace(ConservativeChoicePenalty, "forward", forward)
