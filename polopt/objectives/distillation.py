"""Distillation towards a teacher's distribution."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import ExperienceError, describe
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.parts import Aggregate, Objective, SurrogateTerm


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


class GaussianDistillation(Objective):
    """aggregate( mean_d D_d ): the divergence between a teacher's normal distributions N(m, s^2) and those of the
    policy, N(mu, sigma^2), a mean over the dimensions d of an action:

        forward:  D = KL(teacher || policy) = log(sigma / s) + (s^2 + (m - mu)^2) / (2 sigma^2) - 1/2
        squared:  D = (m - mu)^2

    dimensions: those that count, None for all. The batch has m and log s as `extras["teacher_mean"]` and
    `extras["teacher_log_std"]` [B, T, A]. Metrics are means over decisions and the dimensions that count:
    `distillation/mean_error`, |m - mu|, and `distillation/log_std_error`, |log s - log sigma|. Source: COMPASS,
    arXiv:2502.16372.

    Raises:
        ValueError: a dimension that the teacher's actions have not.
    """

    tags = frozenset({"update_rule=distillation"})
    reads_logp: ClassVar[bool] = False

    divergence: Literal["forward", "squared"] = "forward"
    dimensions: tuple[int, ...] | None = None
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"extras.teacher_mean", "extras.teacher_log_std"})
    policy_outputs = frozenset({"extras.mean", "extras.log_std"})

    def setup(self) -> None:
        if self.dimensions is not None and (not self.dimensions or min(self.dimensions) < 0):
            raise ValueError(
                f"objectives.GaussianDistillation: dimensions must be numbers >= 0 or None, found {self.dimensions}"
            )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        names = ("mean", "log_std")
        own = [evaluation.extras[name] for name in names]
        teacher = [experience.extras[f"teacher_{name}"].detach().to(own[0]) for name in names]
        if wrong := [each for each in teacher if each.shape != own[0].shape]:
            raise ExperienceError(
                "objectives.GaussianDistillation: the teacher's mean and log_std must have the shape of the policy's, "
                f"{[*own[0].shape]}, found {describe(wrong[0])}"
            )
        count = own[0].shape[-1]
        if self.dimensions is not None and max(self.dimensions) >= count:
            raise ValueError(
                f"objectives.GaussianDistillation: dimensions = {self.dimensions}, and actions have {count} dimensions"
            )
        kept = slice(None) if self.dimensions is None else list(self.dimensions)
        (mean, log_std), (m, log_s) = ([each[..., kept] for each in side] for side in (own, teacher))
        terms = (m - mean).square()
        if self.divergence == "forward":
            spread = (2 * (log_s - log_std)).exp() + terms * (-2 * log_std).exp()
            terms = log_std - log_s + (spread - 1) / 2
        with torch.no_grad():
            errors = {"mean_error": (m - mean).abs(), "log_std_error": (log_s - log_std).abs()}
            metrics = {f"distillation/{k}": self.aggregate(experience, v.mean(-1)) for k, v in errors.items()}
        return Loss(self.aggregate(experience, terms.mean(-1)), metrics)
