"""Credit that depends on the ranks of the returns alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SamePrompt, single_row_groups
from polopt.situation import Situation


class NormalScores(Credit):
    """Each row's rank in its group as a quantile of N(0, 1): A_i = Phi^-1((rank_i - 1/2) / n); see `ops.normal_scores`.

    Equal returns share the mean of their quantiles. The scores are invariant under increasing transformations of the
    returns, and an outlier scores no more than the best of n. within: groupings in order; the scores within the first
    are ranked again within the second, and so on. A group of one, or all equal, scores 0 within the first; ranked
    again, its score may have either sign, if the other scores are not symmetric.

    Source: Gaussian GRPO, arXiv:2604.08539.
    """

    within: Sequence[Grouping] = (SamePrompt(),)

    reads = frozenset({"reward"})

    def setup(self) -> None:
        if not len(self.within):
            raise ValueError("credit.NormalScores: within needs at least one grouping, found none")

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within[0], situation)

    def forward(self, experience: Experience) -> Tensor:
        scores = experience.returns().detach()
        for grouping in self.within:
            scores = ops.normal_scores(scores, grouping(experience))
        return torch.where(experience.mask, scores[:, None], 0)
