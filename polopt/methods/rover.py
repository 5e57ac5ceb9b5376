"""ROVER: regression of the policy on the action values of the uniform policy."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupStd
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.dr_grpo import dr_grpo
from polopt.objectives import OldPolicyRatio, TokenMean
from polopt.objectives.parts import SurrogateTerm


@method(
    paper=Paper(
        title="Random Policy Valuation is Enough for LLM Reasoning with Verifiable Rewards",
        authors="He, Haoran and others",
        year=2025,
        arxiv="2509.24981",
    ),
    changes="No policy improvement: regress rho log(pi / pi_old) on the value of choosing uniformly from here on.",
    room="objectives",
    tier="proven",
)
def rover(*, group: int = 8, rho: float = 1.0, std: bool = False) -> Algorithm:
    """Q_it = rho (logp_it - old_logp_it), r_i = R_i - mean_g R (over std_g R if `std`), and

        L = (1 / sum_i |y_i|) sum_it (Q_it - sg(r_i + rho mean_a [log pi(a | s_next) - log pi_old(a | s_next)]))^2

    with the mean over the whole vocabulary at the answer's next decision, 0 at its last. In a deterministic tree with
    rewards 0 and 1 the values of the uniform policy are positive exactly where a right answer is still ahead. No
    clip, no critic, no reference. The authors' Countdown runs have groups of 5 and no std, their mathematics groups of
    8, temperature 0.6 and std. Q starts anew at each batch, being measured from pi_old. On its first step the gradient
    is that of Dr. GRPO with a mean over tokens, times 2 rho. With top-k or top-p the mean is over what they leave.
    """
    return dr_grpo(group=group).but(
        {
            "credit.scale": GroupStd() if std else None,
            "objective.ratio": OldPolicyRatio(),
            "objective.trust": ValueRegression(rho=rho),
            "objective.aggregate": TokenMean(),
        }
    )


class ValueRegression(SurrogateTerm):
    """Regression of Q = rho log r on the value of the uniform policy from here on: (Q_t - sg(target_t))^2 with

        target_t = A_t + rho mean_a [log pi(a | s_next) - log pi_old(a | s_next)],

    the mean over the choices at the row's next decision, and no second term at its last one. The policy is
    softmax(Q / rho) relative to the old one, so at pi = pi_old the gradient is -2 rho A grad logp. Needs the ratio
    to `old_logp` (`OldPolicyRatio`), whose mean log-probability is recorded. Source: ROVER, arXiv:2509.24981.
    """

    rho: float = 1.0

    reads = frozenset({"extras.old_mean_logp"})
    policy_outputs = frozenset({"extras.mean_logp"})

    def setup(self) -> None:
        if self.rho <= 0:
            raise ValueError(f"methods.rover.ValueRegression: rho must be > 0, found {self.rho}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        gained = evaluation.extras["mean_logp"].detach() - experience.extras["old_mean_logp"]
        target = experience.advantage + self.rho * ops.next_decision(gained, experience.mask)
        return (self.rho * log_ratio - target).square(), torch.zeros_like(target)
