"""On-policy distillation: losses towards a teacher evaluated on the policy's own decisions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import SurrogateTerm, Weight


def with_rest(logp: Tensor) -> Tensor:
    """Appends to log-probabilities [..., K] of some choices that of all others together, [..., K + 1]."""
    return torch.cat([logp, ops.log1mexp(logp.logsumexp(-1, keepdim=True))], -1)


class Distillation(SurrogateTerm):
    """Divergence between the policy p and the teacher q at each decision, over the candidates that the teacher was
    evaluated on, `extras["candidates"]` [B, T, K]; neither ratio nor advantage enters.

        alpha KL(q || m) + (1 - alpha) KL(p || m),  m = (1 - alpha) p + alpha q;  0: KL(q || p), 1: KL(p || q)

    rest: the treatment of the other choices. "bucket" counts them as one more, log(1 - sum of the candidates);
    "renormalise" leaves them out of both distributions. Rows without a teacher's signal have terms of 0; a branch for
    them keeps them out of the denominator. Source: SDPO, arXiv:2601.20802.
    """

    alpha: float = 0.5
    rest: Literal["bucket", "renormalise"] = "bucket"

    reads = frozenset({"extras.has_teacher_signal", "extras.candidates", "extras.teacher_candidate_logp"})
    policy_outputs = frozenset({"extras.candidate_logp"})

    def setup(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"objectives.Distillation: alpha must be in [0, 1], found {self.alpha}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        taught = experience.mask & experience.extras["has_teacher_signal"][:, None]
        laws = (evaluation.extras["candidate_logp"], experience.extras["teacher_candidate_logp"])
        # Without a teacher's signal any distribution with a finite gradient will do.
        p, q = (torch.where(taught[..., None], law, -ops.LIMIT) for law in laws)
        if self.rest == "bucket":
            p, q = with_rest(p), with_rest(q)
        else:
            p, q = p.log_softmax(-1), q.log_softmax(-1)
        terms = torch.where(taught, ops.jensen_shannon(p, q, self.alpha), 0)
        return terms, torch.zeros_like(terms)


class SampledDistillation(SurrogateTerm):
    """KL(p || q) to the teacher, estimated by the decisions alone: sg(logp_t - log q_t) logp_t, which is REINFORCE with
    the advantage log q_t - logp_t on each decision. Rows without a teacher's signal have terms of 0.

    Source: SDPO, arXiv:2601.20802; on-policy distillation.
    """

    reads = frozenset({"extras.has_teacher_signal", "extras.teacher_logp"})

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        taught = experience.mask & experience.extras["has_teacher_signal"][:, None]
        gap = torch.where(taught, evaluation.logp - experience.extras["teacher_logp"], 0).detach()
        return gap * evaluation.logp, torch.zeros_like(gap)


class TeacherCertainty(Weight):
    """w_t = exp(-beta H_t) / mean exp(-beta H): decisions at which the teacher's entropy is low count more.

    H_t is the teacher's entropy in nats, the mean over all decisions of the optimiser batch with a teacher's signal (on
    a branch: over its own), so that w is 1 on average. Source: SRPO, arXiv:2604.02288.
    """

    beta: float = 1.0

    reads = frozenset({"extras.has_teacher_signal", "extras.teacher_entropy"})

    def setup(self) -> None:
        if self.beta < 0:
            raise ValueError(f"objectives.TeacherCertainty: beta must be >= 0, found {self.beta}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        entropy, taught = self._doubt(experience.full_batch)
        # Relative to the decision of lowest entropy: no large entropy makes all weights 0.
        least = torch.where(taught.any(), torch.where(taught, entropy, torch.inf).amin(), 0)
        sure = lambda entropy, taught: torch.where(taught, (-self.beta * (entropy - least)).exp(), 0)  # noqa: E731
        mean = sure(entropy, taught).sum() / taught.sum().clamp(min=1)
        return sure(*self._doubt(experience)) / torch.where(mean > 0, mean, 1)

    def _doubt(self, experience: Experience) -> tuple[Tensor, Tensor]:
        """Returns the teacher's entropy [B, T], and the mask of decisions with a teacher's signal."""
        taught = experience.mask & experience.extras["has_teacher_signal"][:, None]
        return torch.where(taught, experience.extras["teacher_entropy"], 0), taught
