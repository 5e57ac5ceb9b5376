"""Tree rollouts that branch where the policy is uncertain and prune branches that repeat their parent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from polopt.part import Part
from polopt.sampling.similar import edit_ratio, rouge_l, suffix_match


class Lookahead(Part):
    """The rule by which tree rollouts branch, prune branches and end branching.

    At each token of a tree, with p_1 >= p_2 >= ... the policy's own probabilities, every branch continues with its
    likeliest token. A further branch begins with each token of rank 2 to `top` that has p_j > least and p_1 -
    p_j < apart, while the tree has room: low ranks first, then older branches. When a branch is r tokens old, for r in
    `windows`, it is compared with its parent over those r tokens, and is pruned together with its own branches if
    edit_ratio < edit, suffix_match > suffix or rouge_l > rouge (None: not compared), unless one of them has ended. The
    room may be used again.

    Branching ends once a tree has k (1 - decay * step / limit) branches, none of them younger than the longest window,
    or has only ended ones, or after `until` tokens.

    others: how a branch continues at a token at which no further branch begins: "argmax" with the likeliest token,
        "full" samples while the tree is full, "always" samples.

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
        """Returns the likeliest tokens of p [rows, V] and a mask of those that may begin a branch, each [rows, top].

        The first token continues the branch itself.
        """
        best, ids = p.topk(min(self.top, p.shape[-1]), dim=-1)
        opens = (best > self.least) & (best[:, :1] - best < self.apart)
        opens[:, 0] = True
        return ids, opens

    def same(self, a: Sequence[int], b: Sequence[int]) -> bool:
        """Returns True if two windows are too similar to keep both branches."""
        return (
            (self.edit is not None and edit_ratio(a, b) < self.edit)
            or (self.suffix is not None and suffix_match(a, b) > self.suffix)
            or (self.rouge is not None and rouge_l(a, b) > self.rouge)
        )

    def samples(self, full: bool) -> bool:
        """Returns True if a branch samples its token where no further branch begins. full: whether the tree has no room
        left."""
        return self.others == "always" or (self.others == "full" and full)

    def ends(self, *, step: int, limit: int, branches: int, room: int, youngest: int, over: bool) -> bool:
        """Returns True if a tree does not branch any more.

        step: tokens so far.
        limit: the most tokens of a row.
        branches: branches of the tree.
        room: the most branches of the tree.
        youngest: tokens of its youngest branch.
        over: whether all branches have ended.
        """
        if over or (self.until is not None and step >= self.until):
            return True
        return branches >= room * (1 - self.decay * step / limit) and youngest > max(self.windows, default=0)


@dataclasses.dataclass(frozen=True)
class LookaheadConfig:
    """Settings of tree sampling in a source.

    rule: the branching rule.
    share: fraction of each group that are leaves of a tree.
    """

    rule: Lookahead
    share: float

    def branches(self, copies: int) -> int:
        """Returns how many of `copies` rollouts of one prompt are leaves of its tree."""
        return round(self.share * copies)
