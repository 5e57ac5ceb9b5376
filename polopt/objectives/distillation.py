"""Distillation towards a teacher's probabilities."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import SurrogateTerm


class Distillation(SurrogateTerm):
    """Divergence between the policy p and the teacher q at each decision, over the candidates that the teacher was
    evaluated on, `extras["candidates"]` [B, T, K]; neither ratio nor advantage enters.

        alpha KL(q || m) + (1 - alpha) KL(p || m),  m = (1 - alpha) p + alpha q;  0: KL(q || p), 1: KL(p || q)

    rest: the treatment of the other choices. "bucket" counts them as one more, log(1 - sum of the candidates);
    "renormalise" leaves them out of both distributions. Rows without a teacher's signal have terms of 0; a branch for
    them keeps them out of the denominator. Source: SDPO, arXiv:2601.20802.
    """

    tags = frozenset({"update_rule=distillation"})

    alpha: float = 0.5
    rest: Literal["bucket", "renormalise"] = "bucket"

    reads = frozenset({"extras.has_teacher_signal", "extras.candidates", "extras.teacher_candidate_logp"})
    policy_outputs = frozenset({"extras.candidate_logp"})

    def setup(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"objectives.Distillation: alpha must be in [0, 1], found {self.alpha}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        has_signal = experience.mask & experience.extras["has_teacher_signal"][:, None]
        candidate_logps = (evaluation.extras["candidate_logp"], experience.extras["teacher_candidate_logp"])
        # Without a teacher's signal any distribution with a finite gradient will do.
        p, q = (torch.where(has_signal[..., None], logp, -ops.LIMIT) for logp in candidate_logps)
        if self.rest == "bucket":
            p, q = ops.with_rest(p), ops.with_rest(q)
        else:
            p, q = p.log_softmax(-1), q.log_softmax(-1)
        terms = torch.where(has_signal, ops.jensen_shannon(p, q, self.alpha), 0)
        return terms, torch.zeros_like(terms)


class SampledDistillation(SurrogateTerm):
    """KL(p || q) to the teacher, estimated by the decisions alone: sg(logp_t - log q_t) logp_t, which is REINFORCE with
    the advantage log q_t - logp_t on each decision. Rows without a teacher's signal have terms of 0.

    Source: SDPO, arXiv:2601.20802; on-policy distillation.
    """

    tags = frozenset({"update_rule=distillation"})
    reads = frozenset({"extras.has_teacher_signal", "extras.teacher_logp"})

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        has_signal = experience.mask & experience.extras["has_teacher_signal"][:, None]
        gap = torch.where(has_signal, evaluation.logp - experience.extras["teacher_logp"], 0).detach()
        return gap * evaluation.logp, torch.zeros_like(gap)
