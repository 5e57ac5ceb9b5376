"""AlignDistil: distillation, token by token, from a teacher beyond a DPO policy."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import Distillation, SequenceMean, Surrogate, Weight
from polopt.sampling import Demonstrations, Rollouts
from polopt.teachers import ContrastTeacher


@method(
    paper=Paper(
        title="AlignDistil: Token-Level Language Model Alignment as Adaptive Policy Distillation",
        authors="Zhang, Songming and Zhang, Xue and Zhang, Tong and Hu, Bojie and Chen, Yufeng and Xu, Jinan",
        year=2025,
        arxiv="2503.02832",
    ),
    changes="Each token is distilled from a DPO policy, extrapolated away from one that was trained on swapped pairs, "
    "the further the more the two differ there.",
    room="objectives",
    tier="proven",
)
def aligndistil(
    *,
    beta: float = 0.1,
    kappa: float | None = None,
    floor: float = 1e-3,
    contrast: str = "reverse",
    offline: bool = False,
    top: int = 100,
) -> Algorithm:
    """log q_t = log dpo_t + w_t (log dpo_t - log rev_t) - log Z_t,    w_t = kappa D_t + floor,    D_t = sum_a
    |dpo_t(a) - rev_t(a)|,

        L = mean_i (1 / |y_i|) sum_t (beta / w_t) KL(pi_t || q_t),

    on the policy's own answers y, over whole distributions at every token: no reward and no advantage is read. The DPO
    policy and the reverse one, DPO on the same pairs with preferred and rejected answer swapped, are frozen, and the
    stage names them, as `policies: {dpo: {stage: dpo}, reverse: {stage: reverse}}`. A stage swaps the pairs of its
    tasks by their fields, `tasks: {kind: pairs, chosen: rejected, rejected: chosen}`.

    With contrast="reference" and kappa=0 it is the paper's first form: q_t is proportional to ref (dpo / ref)^(1 +
    floor), the token's optimum of DPO's reward with a KL penalty of strength beta / (1 + floor). The paper calls that
    equivalent to the optimum over answers; it leaves out how the rest of the answer depends on the token, and is exact
    at weight 1 alone (see the claim `nearly`).

    beta: of both DPO stages.
    kappa: the slope of the weight; None is 15 on the policy's own answers and 10 on preferred ones.
    floor: the least weight.
    contrast: the name of the reverse policy.
    offline: learns on the preferred answers of pairs, or on demonstrations, in place of the policy's own.
    top: the number of candidates of a distribution, the DPO policy's likeliest; all others count as one. The paper
        takes the whole vocabulary.

    The paper's code takes D_t without the factor 1/2 of a total variation, as here, and a learning rate of 1e-6.
    """
    slope = kappa if kappa is not None else 10.0 if offline else 15.0
    return Algorithm(
        sampling=Demonstrations() if offline else Rollouts(group=1),
        credit=ConstantAdvantage(value=0.0),
        objective=Surrogate(
            ratio=None,
            trust=Distillation(alpha=1.0),
            weights=[ExtrapolationWeight(beta=beta)],
            aggregate=SequenceMean(),
        ),
        teacher=ContrastTeacher(contrast=contrast, kappa=slope, floor=floor, top=top),
    )


class ExtrapolationWeight(Weight):
    """beta / w_t, with w_t the weight of the teacher's contrast, `extras["extrapolation"]`: the strength of the KL
    penalty under which the teacher is optimal. Source: AlignDistil, arXiv:2503.02832.

    beta (> 0): of the DPO policy.
    """

    beta: float = 0.1

    reads = frozenset({"extras.extrapolation"})

    def setup(self) -> None:
        if self.beta <= 0:
            raise ValueError(f"methods.aligndistil.ExtrapolationWeight: beta must be > 0, found {self.beta}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return self.beta / torch.where(experience.mask, experience.extras["extrapolation"], 1)
