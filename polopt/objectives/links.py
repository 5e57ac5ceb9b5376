"""Links: the loss of a pair as a function of its margin of implicit rewards."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.part import Part


class PairLink(Part):
    """`link(margin [pairs], gap [pairs]) -> [pairs]`: loss of each pair, with margin the implicit reward of the
    preferred row minus that of the other, and gap > 0 the same difference of what the rows are compared by."""

    def forward(self, margin: Tensor, gap: Tensor) -> Tensor:
        raise NotImplementedError


class LogisticLink(PairLink):
    """-(1 - e) log sigmoid(z) - e log sigmoid(-z), z = margin - shift: the likelihood of preferences under
    Bradley-Terry.

    label_smoothing: e in [0, 0.5], the assumed rate of wrong labels (conservative DPO). shift: the target
    margin of the preferred row, SimPO's gamma. Source: DPO, arXiv:2305.18290; SimPO, arXiv:2405.14734.
    """

    label_smoothing: float = 0.0
    shift: float = 0.0

    def setup(self) -> None:
        if not 0 <= self.label_smoothing <= 0.5:
            raise ValueError(
                f"objectives.LogisticLink: label_smoothing must be in [0, 0.5], found {self.label_smoothing}"
            )

    def forward(self, margin: Tensor, gap: Tensor) -> Tensor:
        z = margin - self.shift
        return -(1 - self.label_smoothing) * F.logsigmoid(z) - self.label_smoothing * F.logsigmoid(-z)


class SquaredLink(PairLink):
    """(margin - target)^2, with zero gradient once the preferred row is ahead by `target`. Scale 1 and target
    1 / (2 tau) give IPO, arXiv:2310.12036."""

    target: float

    def forward(self, margin: Tensor, gap: Tensor) -> Tensor:
        return (margin - self.target).square()


class HingeLink(PairLink):
    """max(0, threshold - margin). Source: SLiC-HF, arXiv:2305.10425; RSO, arXiv:2309.06657."""

    threshold: float = 1.0

    def forward(self, margin: Tensor, gap: Tensor) -> Tensor:
        return F.relu(self.threshold - margin)


class SigmoidLink(PairLink):
    """1 - sigmoid(margin): bounded, so that a row far on either side, as one with a wrong label, moves nothing. Source:
    KTO, arXiv:2402.01306."""

    def forward(self, margin: Tensor, gap: Tensor) -> Tensor:
        return torch.sigmoid(-margin)


class RegressionLink(PairLink):
    """(margin - scale * gap)^2: the implicit rewards differ as much as the given ones do, whatever each prompt's
    constant.

    scale (> 0): the paper's eta for implicit rewards that are plain log-ratios. Source: REBEL, arXiv:2404.16767.
    """

    tags = frozenset({"update_rule=regression"})

    scale: float = 1.0

    def setup(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"objectives.RegressionLink: scale must be > 0, found {self.scale}")

    def forward(self, margin: Tensor, gap: Tensor) -> Tensor:
        return (margin - self.scale * gap).square()


class SoftLink(PairLink):
    """-p log sigmoid(margin) - (1 - p) log sigmoid(-margin), p = (1 + min(gap, 1)) / 2: the likelihood of preferences
    that are given as shares of votes, p for one row and 1 - p for the other, so that their gap is 2 p - 1.

    A gap of 1 is `LogisticLink`. Its minimum is at the margin log(p / (1 - p)).
    """

    def forward(self, margin: Tensor, gap: Tensor) -> Tensor:
        share = (1 + gap.clamp(max=1)) / 2
        return -share * F.logsigmoid(margin) - (1 - share) * F.logsigmoid(-margin)
