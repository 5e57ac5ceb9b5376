"""Policy cliff: optimal policies are discontinuous where rewards tie; with an entropy bonus they are continuous."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.rloo import rloo
from polopt.rewards import OutcomeReward, SumOfRewards
from polopt.rewards.parts import Reward


@method(
    paper=Paper(
        title="The Policy Cliff: A Theoretical Analysis of Reward-Policy Maps in Large Language Models",
        authors="Xu, Xingcheng",
        year=2025,
        arxiv="2507.20150",
    ),
    changes="RLOO on outcome plus alpha times the answer's surprise: entropy that makes the best policy continuous.",
    room="rewards",
    tier="reading",
)
def policy_cliff(*, group: int = 4, alpha: float = 0.01) -> Algorithm:
    """R_i = outcome_i - alpha sum_t logp_it, without gradient, A_i = R_i - mean of the group's others, and
    L = -(1/B) sum_i A_i sum_t logp_it. Its expected gradient is that of J + alpha H, H the entropy of whole answers,
    and its one best policy is softmax(outcome / alpha).

    The paper's are the theorems: the set of best policies moves continuously where one action is best by a margin and
    jumps where several tie; what a mix of rewards does follows the ties of their weighted sum; an entropy bonus
    restores continuity and costs randomness. It gives no training objective and no alpha. Ours are this algorithm, its
    default and the constants: `metrics.policy_stability` measures both kinds of policy, and the bound
    tanh(|dR| / (2 alpha)) on the total variation between the soft ones of one step, with |dR| / (1 - discount) in
    place of |dR| for many.

    Nothing is divided by the group's standard deviation: that makes any tie-breaker a reward of size 1.
    """
    return rloo(group=group, kl=0).but(
        reward=SumOfRewards(terms=[OutcomeReward(), SurprisalPenalty(coefficient=alpha)])
    )


class SurprisalPenalty(Reward):
    """Reward -coefficient * rollout_logp of the behaviour policy, on each decision.

    Its expectation is coefficient times the entropy of whole rows, and so is, on policy, its policy gradient. Outcome
    plus this reward has one optimal policy, the softmax of outcome / coefficient, which is continuous in the outcome.
    Unlike an entropy bonus in the loss, which credits each decision with its own entropy alone, the reward also credits
    a decision with the entropy of later ones. `KLPenalty` with k1 and a uniform reference is the same up to a constant
    for each decision.
    """

    coefficient: float = 0.01

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience) -> Tensor:
        return -self.coefficient * torch.where(experience.mask, experience.rollout_logp, 0)
