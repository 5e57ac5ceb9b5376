"""HPT: reinforcement learning on prompts that the policy can solve, imitation on the others."""

from __future__ import annotations

import torch

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import (
    EntropyBonus,
    SequenceSum,
    Surrogate,
    TokenRatio,
    Unclipped,
    with_imitation,
)
from polopt.sampling import Rollouts, WithSolutions
from polopt.sampling.parts import Select


@method(
    paper=Paper(
        title="Towards a Unified View of Large Language Model Post-Training",
        authors="Lv, Xingtai and others",
        year=2025,
        arxiv="2509.04419",
    ),
    changes="A prompt whose rollouts succeed too rarely is learned from its demonstration instead of from them.",
    room="sampling",
    tier="proven",
)
def unified_hpt(*, group: int = 8, gate: float = 0.0, sft: float = 1.0, entropy: float = 0.001) -> Algorithm:
    """With P the mean outcome of a prompt's rollouts, A_i = R_i - mean_g R and r the token ratio to the sampler,

        P > gate:   (1 / (B C)) sum_it [ -A_i r_it - entropy H ]        P <= gate:   -sft mean_t logp of its solution

    summed over both kinds. C is the batch's horizon, B the rollouts that are left; the likelihood is a mean over the
    demonstrated tokens of the batch. gate < 0 is Dr. GRPO without its clip, gate >= 1 is imitation alone. The paper's
    gate is 0, or 2 of 8 (0.25) for Llama-3.1-8B, and sft 0.3 for the 1.5B model. The rollouts of a replaced prompt are
    sampled, scored and reported, and then left out.

    Where all first rollouts fail the policy imitates, and its rollouts become the demonstration: groups that are all
    equal have no gradient, and training ends at the demonstration even if better answers exist.

    The reference code sums the RL term over each micro-batch's rows instead of averaging it, hence its gradient clip of
    80. Its second gate, which puts a demonstration among the rollouts as an off-policy row, is left out.

    The paper's unified estimator is 1_stable / pi_den A grad pi: a trust region, a denominator, an advantage, the
    likelihood's slope. In polopt the four are trust, ratio, credit and what `ratio=None` or a ratio differentiates.
    """
    regularise = [EntropyBonus(coefficient=entropy)] if entropy else []
    surrogate = Surrogate(ratio=TokenRatio(), trust=Unclipped(), aggregate=SequenceSum(), regularise=regularise)
    return Algorithm(
        sampling=Rollouts(group=group, mix=[WithSolutions(gate=gate)]),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=None),
        select=[ReplacedBySolutions()],
        objective=with_imitation(surrogate, sft),
    )


class ReplacedBySolutions(Select):
    """Drops the rollouts of every prompt that has a demonstrated solution (see `WithSolutions`), once credit is
    computed.

    Source: the switch of HPT, arXiv:2509.04419.
    """

    reads = frozenset({"group"})
    judges_demonstrations = True

    def forward(self, experience: Experience) -> Experience:
        index, count = ops.group_index(experience.group)
        helped = torch.zeros_like(count, dtype=torch.bool)
        helped[index[experience.is_demonstration]] = True
        return experience[experience.is_demonstration | ~helped[index]]
