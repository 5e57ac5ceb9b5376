"""The reward that a policy implies for each row, as preference losses compare it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.anchor import anchor_logp, check_anchor
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import policy_field
from polopt.part import Part

Decisions = Literal["sum", "mean"]


class ImplicitReward(Part):
    """`implicit(experience, evaluation) -> [B]` reward of each row that the policy implies, with gradient.

    ranks_by: "sum" or "mean" if the margin of a pair's rewards orders its answers by the sums or means of their
    log-probabilities: with m the difference of these and c that under the reference, m >= 0 exactly where the margin is
    at least -k c. None if the margin depends on more. reference_scale: k >= 0, 0 for a reward without a reference.
    """

    @property
    def ranks_by(self) -> Decisions | None:
        return None

    @property
    def reference_scale(self) -> float:
        return 0.0

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


def _over_decisions(x: Tensor, mask: Tensor, decisions: Decisions) -> Tensor:
    """Sum or mean over each row's decisions, [B]; 0 for a row without decisions."""
    total = torch.where(mask, x, 0).sum(1)
    return total if decisions == "sum" else total / mask.sum(1).clamp(min=1)


def _check_scale(part: Part, scale: float) -> None:
    if scale <= 0:
        raise ValueError(f"objectives.{type(part).__name__}: scale must be > 0, found {scale}")


class LogRatioReward(ImplicitReward):
    """r_i = scale sum_t (logp_t - ref_logp_t), which is, up to a constant of each prompt, the reward whose
    KL-regularised optimum with strength `scale` the policy is.

    scale (> 0): beta. decisions: "sum" adds up a row's decisions, "mean" takes their mean, as TRL's IPO does. anchor:
    the policy in the reference's place, of those that `fields.policy_field` lists: reference, previous, sampler, old,
    or the name of another one. Source: DPO, arXiv:2305.18290.
    """

    scale: float = 0.1
    decisions: Decisions = "sum"
    anchor: str = "reference"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.anchor)})

    @property
    def ranks_by(self) -> Decisions | None:
        return self.decisions if self.anchor == "reference" else None

    @property
    def reference_scale(self) -> float:
        return self.scale

    def setup(self) -> None:
        _check_scale(self, self.scale)
        check_anchor(self, self.anchor)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        base = anchor_logp(experience, self.anchor)
        return self.scale * _over_decisions(evaluation.logp - base, experience.mask, self.decisions)


class LogProbReward(ImplicitReward):
    """r_i = scale mean_t logp_t, without a reference.

    scale (> 0): beta. decisions: "mean" normalises by length, as SimPO; "sum" does not. Source: SimPO,
    arXiv:2405.14734.
    """

    scale: float = 2.0
    decisions: Decisions = "mean"

    @property
    def ranks_by(self) -> Decisions | None:
        return self.decisions

    def setup(self) -> None:
        _check_scale(self, self.scale)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return self.scale * _over_decisions(evaluation.logp, experience.mask, self.decisions)


class DenoisingReward(ImplicitReward):
    """r_i = -scale mean over draws t and dimensions of (|e_t - e(x_t)|^2 - |e_t - e_ref(x_t)|^2): how much better than
    a reference a generative policy denoises the row's point.

    Log-probabilities of draws are those of unit normals, so the difference of squares is -2 (logp_t - ref_logp_t).

    scale (> 0): beta T / 2 of Diffusion-DPO. of: the errors that are compared: of the predicted noise, which is (1 - t)
    times that of the velocity at the noise level t of a rectified flow, or of the "velocity". anchor: as
    `LogRatioReward`'s. Source: Diffusion-DPO, arXiv:2311.12908.
    """

    scale: float = 1000.0
    of: Literal["noise", "velocity"] = "noise"
    anchor: str = "reference"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.anchor), "extras.point", "extras.noise_level"})

    def setup(self) -> None:
        _check_scale(self, self.scale)
        check_anchor(self, self.anchor)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        gain = 2 * (evaluation.logp - anchor_logp(experience, self.anchor)) / experience.extras["point"].shape[1]
        if self.of == "noise":
            gain = gain * (1 - ops.cleared(experience.extras["noise_level"], experience.mask)).square()
        return self.scale * _over_decisions(gain, experience.mask, "mean")


class LogOddsReward(ImplicitReward):
    """r_i = log(p_i / (1 - p_i)), p_i = exp(mean_t logp_t): the log odds of an answer's geometric mean probability.

    Of an answer that is certain to rounding the odds are those of 1 - eps. Source: ORPO, arXiv:2403.07691.
    """

    @property
    def ranks_by(self) -> Decisions | None:
        return "mean"  # the odds rise with the mean

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        mean = _over_decisions(evaluation.logp, experience.mask, "mean")
        # A row without decisions is in no pair; its odds must be finite all the same.
        mean = torch.where(experience.mask.any(1), mean, -1.0).clamp(max=-torch.finfo(mean.dtype).eps)
        return mean - ops.log1mexp(mean)


class GuidedLogRatioReward(ImplicitReward):
    """r_i = scale sum_t max(0, 1 + s_i alpha g_t) (logp_t - ref_logp_t), with g_t = scale (guide_logp_t - ref_logp_t)
    the reward that another policy implies for each decision, and s_i = 1 for the rows of a group with outcomes above
    its mean, -1 below.

    Decisions that the guide likes move further in preferred rows, those that it dislikes further in the others. In a
    list of more than two rows the signs are relative to the mean.

    scale (> 0): beta. alpha (>= 0): weight of the guide; 0 is `LogRatioReward`. guide: name of the policy.
    Source: TGDPO, arXiv:2506.14574, whose weights may turn negative; here they stop at 0.
    """

    scale: float = 0.1
    alpha: float = 0.5
    guide: str = "guide"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"ref_logp", "outcome", "group", policy_field(self.guide)})

    def setup(self) -> None:
        _check_scale(self, self.scale)
        check_anchor(self, self.guide)
        if self.alpha < 0:
            raise ValueError(f"objectives.GuidedLogRatioReward: alpha must be >= 0, found {self.alpha}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        guided = self.scale * (anchor_logp(experience, self.guide) - experience.ref_logp)
        weight = (1 + self.alpha * preferred_sign(experience)[:, None] * guided).clamp(min=0)
        ratio = evaluation.logp - experience.ref_logp
        return self.scale * _over_decisions(weight.detach() * ratio, experience.mask, "sum")


def preferred_sign(experience: Experience) -> Tensor:
    """Returns 1 for the rows whose outcome is above the mean of their group in the optimiser batch, -1 for those below,
    0 for those at it, [B]."""
    full = experience.full_batch
    return experience.local_rows((full.outcome - ops.group_mean(full.outcome, full.group)).sign())


class SumOfImplicitRewards(ImplicitReward):
    """r_i = sum_k r_ki: several implicit rewards, each with its own scale.

    Two log-ratios with scales a and b are a log-ratio to the geometric mixture of their anchors, with shares a / (a +
    b) and b / (a + b), as in INPO (arXiv:2407.00617). A log-ratio with scale gamma beta and an unnormalised
    log-probability with (1 - gamma) beta attenuate the reference: beta (logp - gamma ref_logp), as in arXiv:2405.19534.
    """

    terms: Sequence[ImplicitReward]

    @property
    def ranks_by(self) -> Decisions | None:
        kinds = {term.ranks_by for term in self.terms}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def reference_scale(self) -> float:
        return sum(term.reference_scale for term in self.terms)

    def setup(self) -> None:
        if not len(self.terms):
            raise ValueError("objectives.SumOfImplicitRewards needs at least one term, found none")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.stack([term(experience, evaluation) for term in self.terms]).sum(0)
