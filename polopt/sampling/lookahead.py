"""Rollouts that part where the policy is undecided, look ahead, and drop the branch that says the same again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from polopt.part import Part
from polopt.sampling.similar import edit_ratio, rouge_l, suffix_match


class Lookahead(Part):
    """When a rollout branches, when a branch goes, and when branching ends.

    At each token of a tree, p_1 >= p_2 >= ... being the policy's own probabilities, every branch goes on with its
    likeliest token. A further branch begins with each token of rank 2 to `top` that has p_j > least and
    p_1 - p_j < apart, as long as the tree has room: low ranks first, then older branches. A branch that is r tokens
    old, for r in `windows`, is compared with its parent over those r tokens, and goes, its own branches with it, if
    edit_ratio < edit, suffix_match > suffix or rouge_l > rouge (None: not asked); not if one of them has ended. Room
    that it leaves may be used again.

    Branching ends once a tree has k (1 - decay * step / limit) branches, none of them younger than the longest window,
    or has only ended ones, or after `until` tokens. others: how a branch goes on at which no other one begins.
    "argmax" as said; "full" samples while the tree is full; "always" samples.

    Source: LATR, arXiv:2510.24302.
    """

    top: int = 2
    least: float = 0.15
    apart: float = 0.25
    windows: Sequence[int] = (20, 30, 50)
    edit: float | None = 0.4
    suffix: float | None = None
    rouge: float | None = None
    others: Literal["argmax", "full", "always"] = "argmax"
    decay: float = 0.05
    until: int | None = None

    def setup(self) -> None:
        if self.top < 1 or any(window < 1 for window in self.windows):
            raise ValueError(
                f"sampling.Lookahead: need top >= 1 and windows >= 1, found {self.top} and {list(self.windows)}"
            )
        if self.until is not None and self.until < 0:
            raise ValueError(f"sampling.Lookahead: until must be >= 0, found {self.until}")
        if not 0 <= self.decay <= 1:
            raise ValueError(f"sampling.Lookahead: decay must be in [0, 1], found {self.decay}")

    def opens(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, top] the likeliest tokens of p [rows, V], and which of them may begin a branch; the first goes on."""
        best, ids = p.topk(min(self.top, p.shape[-1]), dim=-1)
        opens = (best > self.least) & (best[:, :1] - best < self.apart)
        opens[:, 0] = True
        return ids, opens

    def same(self, a: Sequence[int], b: Sequence[int]) -> bool:
        """Whether two windows are too much alike."""
        return (
            (self.edit is not None and edit_ratio(a, b) < self.edit)
            or (self.suffix is not None and suffix_match(a, b) > self.suffix)
            or (self.rouge is not None and rouge_l(a, b) > self.rouge)
        )

    def samples(self, full: bool) -> bool:
        """Whether a branch samples at which no other one begins."""
        return self.others == "always" or (self.others == "full" and full)

    def ends(self, *, step: int, limit: int, branches: int, room: int, youngest: int, over: bool) -> bool:
        """Whether a tree branches no more after so many tokens (`step`), of `limit` at most: it has so many branches,
        of `room`, the youngest is so many tokens old, and over tells whether all have ended."""
        if over or (self.until is not None and step >= self.until):
            return True
        return branches >= room * (1 - self.decay * step / limit) and youngest > max(self.windows, default=0)
