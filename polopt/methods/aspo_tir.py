"""ASPO: right answers that call a tool early have more advantage than those that call it late."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import ModulatedAdvantage
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature, RowMask, TokenFeature
from polopt.features.groupings import SamePrompt
from polopt.features.masks import IsCorrect
from polopt.features.rows import DecisionCount
from polopt.method import Paper, method
from polopt.methods.dapo import dapo


@method(
    paper=Paper(
        title="Understanding Tool-Integrated Reasoning",
        authors="Lin, Heng and Xu, Zhongwen",
        year=2025,
        arxiv="2508.19201",
    ),
    changes="DAPO whose right answers are shifted by how early they call a tool, by less than their own advantage.",
    room="credit",
    tier="proven",
)
def aspo_tir(
    *, group: int = 8, delta: float = -2.0, k: float = 0.7, low: float = 0.2, high: float = 0.28, refills: int = 9
) -> Algorithm:
    """For the right rows E of a prompt that call a tool, with p_i the position of the first call and L_i the length,

        A_i = A_c + clip(delta (p_i - mean_E p) / mean_E L, -k |A_c|, k |A_c|)

    and A_i = A_c for the others, on every decision of the row; A_c is DAPO's advantage. Below k = 1 no right answer
    loses its sign, which a bonus on the reward would take from it where all are right, as GRPO's z-score blows it up.

    delta: < 0 rewards early calls; k: of the clip; the paper's bold pair is -2.5 and 0.9.

    The position is the number of decisions up to the end of the turn that calls first, of `turn` and
    `extras["signal_first_call"]`, which worlds with tools tell; the paper counts tokens up to the call, in one text.
    The paper's bound has A_c itself, which is positive for a right answer; where A_c is 0, in groups that are all right
    and that DAPO leaves out, nothing moves. It shapes no potential: where a call is not needed, earlier is still
    better. The measure of what tools add to pass@k is `metrics.capability_flow`.
    """
    base = dapo(group=group, low=low, high=high, refills=refills)
    return base.but(credit=ModulatedAdvantage(credit=base.credit, plus=EarlyCall(delta=delta), limit=k))


class FirstCall(RowFeature):
    """The decisions of a row up to the end of the turn that first calls a tool, `extras["signal_first_call"]` [B]; NaN
    for a row without a call, where that is -1."""

    reads = frozenset({"turn", "extras.signal_first_call"})

    def forward(self, experience: Experience) -> Tensor:
        first = experience.extras["signal_first_call"].double()
        before = experience.mask & (experience.turn <= first[:, None])
        return torch.where(first < 0, torch.nan, before.sum(1))


class EarlyCall(TokenFeature):
    """delta (p - mean_E p) / mean_E L at each decision of a row in E, and 0 elsewhere: E are the eligible rows of a
    group with a position p, which is not NaN, and L their lengths."""

    delta: float = -2.0
    position: RowFeature = FirstCall()
    length: RowFeature = DecisionCount()
    eligible: RowMask = IsCorrect()
    within: Grouping = SamePrompt()

    reads_batch = True

    def forward(self, experience: Experience) -> Tensor:
        position, length = self.position(experience).double(), self.length(experience).double()
        chosen, group = self.eligible(experience) & ~position.isnan(), self.within(experience)
        count, places, lengths = (
            ops.group_sum(torch.where(chosen, x, 0), group) for x in (torch.ones_like(length), position, length)
        )
        shift = self.delta * (position * count - places) / lengths.clamp(min=1)
        return torch.where(chosen, shift, 0)[:, None].expand(experience.mask.shape)
