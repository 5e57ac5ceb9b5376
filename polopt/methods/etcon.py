"""EtCon: knowledge editing by supervised fine-tuning within a trust region, then consolidation by GRPO."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.methods.sft import sft
from polopt.objectives import Clip, OldPolicyRatio
from polopt.rewards import (
    ConditionalReward,
    EtConCleanness,
    EtConConsistency,
    EtConCorrectness,
    EtConForm,
    OutcomeReward,
    PositiveReward,
    SumOfRewards,
)


@method(
    paper=Paper(
        title="EtCon: Edit-then-Consolidate for Reliable Knowledge Editing",
        authors="Li, Ruilin and others",
        year=2025,
        arxiv="2512.04753",
    ),
    changes="SFT with a clipped ratio to the policy before each batch, on a few layers; then GRPO on edited questions.",
    room="objectives",
    tier="reading",
)
def etcon(*, stage: int = 2, group: int = 5, clip: float = 0.2, kl: float = 0.01, bundle: bool = False) -> Algorithm:
    r"""Stage 1, on demonstrations of the new facts:

        L = -(1 / sum_i |y_i|) sum_it min(rho_it, clip(rho_it, 1 - clip, 1 + clip)),    rho = pi / pi_before

    with pi_before the policy before its first update on the batch: a token that has already moved by more than `clip`
    has no gradient, and the first step is SFT's. Only several epochs on a batch differ from SFT. Which layers
    learn is the stage's `train:` in the recipe; the paper takes some feed-forward layers, and answers that reason
    first. Stage 2 is GRPO on questions about the new facts. bundle=True is the paper's reward for it,

        0.7 correct + 0.05 form + 0.15 clean + 0.1 consistent, 0 without form,

    for answers in <answer>\boxed{...}</answer>; without, the environment's reward. See `rewards.EtConCorrectness` and
    the other terms.

    Only the second stage's code is public. The clipped loss is that of proximal SFT (arXiv:2508.17784), which the paper
    builds on; how often pi_before is renewed is our reading. The reward is the code's, without its model of
    meaning; words that call the old fact wrong or right count as whole words here, and not inside the fact itself.
    """
    if stage not in (1, 2):
        raise ValueError(f"etcon: stage must be 1 or 2, found {stage}")
    if stage == 1:
        return sft().but(**{"objective.ratio": OldPolicyRatio(), "objective.trust": Clip(low=clip, high=clip)})
    form = EtConForm()
    terms = [EtConCorrectness(), EtConForm(), EtConCleanness(), EtConConsistency()]
    whole = ConditionalReward(
        reward=SumOfRewards(terms=terms, weights=[0.7, 0.05, 0.15, 0.1]), when=PositiveReward(reward=form)
    )
    return grpo(group=group, kl=kl).but(reward=whole if bundle else OutcomeReward())
