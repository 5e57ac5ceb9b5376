"""Credit of the segments between states of known value."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.credit.parts import Credit
from polopt.experience import Experience


class SegmentAdvantage(Credit):
    """A_t = V(next cut) - V(last cut at or before t): the change of value over the segment of decisions around t.

    cut: [B, T] `extras["cut"]`, decisions before which the value of the state, `extras["cut_value"]` [B, T], is known;
    after the last cut the row's own outcome takes the place of the next value. Decisions before the first cut, and
    rows without one, have advantage 0. Each segment counted once, a row's advantages add up to its outcome minus the
    value at its first cut. Values are in units of the environment's outcome: a shaped reward does not enter.

    Source: SPO, arXiv:2505.23564.
    """

    reads = frozenset({"outcome", "extras.cut", "extras.cut_value"})

    def forward(self, experience: Experience) -> Tensor:
        cut = experience.extras["cut"] & experience.mask
        outcome = experience.outcome.detach()
        stretch = cut.cumsum(1)  # 0 before the first cut
        known = outcome[:, None].repeat(1, cut.shape[1] + 2)
        row, column = cut.nonzero(as_tuple=True)
        known[row, stretch[row, column]] = experience.extras["cut_value"][row, column].to(outcome)
        advantage = known.diff(dim=1).gather(1, stretch)
        return torch.where(experience.mask & (stretch > 0), advantage, 0)
