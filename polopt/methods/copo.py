"""COPO: GRPO blended with an advantage between prompts, which replaces it where a group's answers agree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage, WeightedAdvantage
from polopt.credit.parts import Credit
from polopt.credit.wrappers import WeightedSum
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt
from polopt.features.rows import AnswerEntropy, Logistic
from polopt.method import Paper, method
from polopt.objectives import Clip, SequenceMean, Surrogate, TokenRatio
from polopt.objectives.parts import SurrogateTerm
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="COPO: Consistency-Aware Policy Optimization",
        authors="Han, Jinghang and others",
        year=2025,
        arxiv="2508.04138",
    ),
    changes="GRPO blended, by the entropy of each group's answers, with an advantage of the prompt over other prompts.",
    room="credit",
    tier="faithful",
)
def copo(
    *, group: int = 6, slope: float = 20.0, centre: float = 1.5, clip: float = 0.2, dual: float | None = 3.0
) -> Algorithm:
    """Each token's loss is w L(A_local) + (1 - w) L(A_global), with L PPO's clipped term and

        A_local = (R_i - mean_g R) / (std_g R + eps)        A_global = (m_g - mean m) / (std m + eps)
        w = sigmoid(slope (H - centre))                     H = -sum_c f_c log2 f_c

    m_g the group's mean return and f_c the share of its answers equal to c. Each advantage is clipped by itself: one
    blended advantage would be another loss wherever the two have opposite signs. Mean over each answer's tokens.

    H is in bits, as in the authors' code, and at most log2(group): a centre near it leaves the global term alone. 20
    and 1.5 are the paper's. The released script has 5 and 1, and gives rows of return 0 to the global term whatever H;
    another mode of it weighs m_g by how much the answers agree. Neither is offered here. Answers are alike if their
    texts are; a group of one has A_local = 0 (there: R).
    """
    entropy = AnswerEntropy(base=2)
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=MultiAdvantage(
            shares=[
                WeightedAdvantage(credit=RelativeAdvantage(), weight=Logistic(of=entropy, slope=slope, centre=centre)),
                WeightedAdvantage(
                    credit=AcrossGroups(), weight=Logistic(of=entropy.but(), slope=-slope, centre=centre)
                ),
            ]
        ),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=PerAdvantageSurrogate(trust=Clip(low=clip, high=clip, dual=dual)),
            aggregate=SequenceMean(),
        ),
    )


class AcrossGroups(Credit):
    """A_i = (m_g - mean m) / (std m + eps), m_g the mean return of row i's group, each group counted once.

    All rows of a group share it, so that a unanimous group has an advantage, too: negative if all rows are wrong,
    positive if all are right. std is the sample's. One group, or groups that are all equal, have advantage 0.
    within: the grouping.

    The baseline compares prompts, not answers to one prompt: easy prompts get positive advantages for being easy.
    """

    eps: float = 1e-6
    within: Grouping = SamePrompt()

    reads = frozenset({"reward"})

    def setup(self) -> None:
        if self.eps <= 0:
            raise ValueError(f"methods.copo.AcrossGroups: eps must be > 0, found {self.eps}")

    def forward(self, experience: Experience) -> Tensor:
        returns, group = experience.returns().detach(), self.within(experience)
        index, count = ops.group_index(group)
        means = returns.new_zeros(len(count)).index_copy(0, index, ops.group_mean(returns, group))
        one = torch.zeros_like(count)
        score = (means - ops.group_mean(means, one)) / (ops.group_std(means, one) + self.eps)
        return torch.where(experience.mask, score[index][:, None], 0)


class PerAdvantageSurrogate(SurrogateTerm):
    """sum_k trust(ratio, A_k) over the advantages of `extras["advantages"]` [B, T, K], which
    `methods.copo.MultiAdvantage` writes.

    For terms that scale with a positive advantage's size, as those of every clip do, weights inside the A_k are
    weights of the terms: w trust(A) = trust(w A). The clip indicator is the mean over the advantages. `trust` must
    treat each decision independently.
    """

    trust: SurrogateTerm = Clip()

    reads = frozenset({"extras.advantages"})

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        advantages = torch.where(experience.mask[..., None], experience.extras["advantages"], 0).unbind(-1)
        found = [self.trust(log_ratio, experience.replace(advantage=one), evaluation) for one in advantages]
        terms, clipped = (torch.stack(values) for values in zip(*found, strict=True))
        return terms.sum(0), clipped.mean(0)


class MultiAdvantage(WeightedSum):
    """A `WeightedSum` that also keeps its terms apart, in `extras["advantages"]` [B, T, K], for a trust region of each
    (`methods.copo.PerAdvantageSurrogate`).

    The clip of a sum of advantages of opposite signs is not the sum of their clips.
    """

    shares: Sequence[WeightedAdvantage]

    writes = frozenset({"extras.advantages"})

    def credited(self, experience: Experience) -> Experience:
        advantages = self.advantages(experience)
        return self._with_target(experience.replace(advantage=advantages.sum(-1), extras={"advantages": advantages}))
