"""SRPO: GRPO on most rows, and self-distillation on wrong rows with a right sibling."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.masks import HasTeacher
from polopt.method import Paper, method
from polopt.objectives import Branch, BranchedObjective, Clip, Distillation, Surrogate, TokenMean, TokenRatio
from polopt.objectives.parts import Weight
from polopt.sampling import Rollouts
from polopt.teachers import SelfTeacher, Sibling


@method(
    paper=Paper(
        title="Unifying Group-Relative and Self-Distillation Policy Optimization via Sample Routing",
        authors="Li, Gengsheng and others",
        year=2026,
        arxiv="2604.02288",
    ),
    changes="GRPO, but a wrong answer with a right sibling is distilled from the policy that has seen the sibling.",
    room="objectives",
    tier="reading",
)
def srpo_routing(
    *,
    group: int = 8,
    low: float = 0.2,
    high: float = 0.28,
    dual: float = 3.0,
    alpha: float = 0.5,
    beta: float = 1.0,
    top: int = 100,
    rate: float = 0.05,
) -> Algorithm:
    """Loss of two branches: SDPO's divergence D, weighted by the teacher's certainty, on wrong rows with a right
    sibling; GRPO on all others, wrong ones without a right sibling included, with their advantage in the full group:

        L = (sum_GRPO clipped terms + sum_SDPO w_it D_alpha(q_it, p_it)) / (all decisions)

    w_it = exp(-beta H_it) / mean exp(-beta H) with H the teacher's entropy, q the averaged policy that has seen the
    sibling. See sdpo for q and D. The routing and the weights are those of two independent implementations; beta and
    the dual clip's 3 come from these, not from the paper.
    """
    rewarded = Surrogate(ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=TokenMean())
    distilled = Surrogate(
        ratio=None, trust=Distillation(alpha=alpha), weights=[TeacherCertainty(beta=beta)], aggregate=TokenMean()
    )
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=BranchedObjective(
            routes=[
                Branch(objective=rewarded, rows=HasTeacher(below=1.0, invert=True)),
                Branch(objective=distilled, rows=HasTeacher(below=1.0)),
            ],
            count="all",
        ),
        teacher=SelfTeacher(hint=Sibling(rows="wrong"), rate=rate, top=top),
    )


class TeacherCertainty(Weight):
    """w_t = exp(-beta H_t) / mean exp(-beta H): decisions at which the teacher's entropy is low count more.

    H_t is the teacher's entropy in nats, the mean over all decisions of the optimiser batch with a teacher's signal (on
    a branch: over its own), so that w is 1 on average. Source: SRPO, arXiv:2604.02288.
    """

    beta: float = 1.0

    reads = frozenset({"extras.has_teacher_signal", "extras.teacher_entropy"})

    def setup(self) -> None:
        if self.beta < 0:
            raise ValueError(f"methods.srpo_routing.TeacherCertainty: beta must be >= 0, found {self.beta}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        entropy, has_signal = self._doubt(experience.full_batch)
        # Relative to the decision of lowest entropy: no large entropy makes all weights 0.
        least = torch.where(has_signal.any(), torch.where(has_signal, entropy, torch.inf).amin(), 0)
        sure = lambda entropy, has_signal: torch.where(has_signal, (-self.beta * (entropy - least)).exp(), 0)  # noqa: E731
        mean = sure(entropy, has_signal).sum() / has_signal.sum().clamp(min=1)
        return sure(*self._doubt(experience)) / torch.where(mean > 0, mean, 1)

    def _doubt(self, experience: Experience) -> tuple[Tensor, Tensor]:
        """Returns the teacher's entropy [B, T], and the mask of decisions with a teacher's signal."""
        has_signal = experience.mask & experience.extras["has_teacher_signal"][:, None]
        return torch.where(has_signal, experience.extras["teacher_entropy"], 0), has_signal
