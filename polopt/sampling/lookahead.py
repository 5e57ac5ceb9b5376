"""Tree rollouts that branch where the policy is uncertain and prune branches that repeat their parent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.part import Part
from polopt.sampling.parts import RolloutRequest, Start
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.similar import edit_ratio, rouge_l, suffix_match
from polopt.sampling.source_protocols import Source
from polopt.schedules import Schedule, now
from polopt.situation import Situation
from polopt.support import Support


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


class LookaheadRollouts(Rollouts):
    """Rollouts of which a fraction are leaves of a tree that grows by `look`; the others are sampled independently.

    look: the branching rule.
    share: fraction of each group that are leaves, a number or a schedule.

    `extras["explored"]` [B] bool marks the leaves. `rollout_logp` is the policy's own, but leaves are not samples from
    the policy: they take its likeliest tokens and are kept apart on purpose. Means over them are biased, an importance
    ratio does not correct for it, and a group's baseline is that of a set that was chosen jointly. With share 0 the
    result equals that of `Rollouts`, number for number.

    Source: LATR, arXiv:2510.24302, which decreases the share in training for that reason.
    """

    look: Lookahead = Lookahead()
    share: float | Schedule = 1.0

    writes = frozenset({"extras.explored"})
    source_capabilities = frozenset({"steps"})
    zero_means: ClassVar[dict[str, str]] = {
        "tree/branched": "no tree has branched, so that its leaves are copies of one answer: lower least, or raise "
        "apart, until the policy's undecided tokens branch"
    }

    def setup(self) -> None:
        super().setup()
        if self.support.truncated or self.support.by_entropy is not None or self.adapt is not None:
            raise ValueError(
                "sampling.LookaheadRollouts: a branch may begin with a token that top-k and top-p leave out, and its "
                f"tokens have one temperature; sample with top_k 0, top_p 1 and one temperature, found {self.support} "
                f"and adapt={self.adapt!r}"
            )
        values = [value for _, value in self.share.knots] if isinstance(self.share, Schedule) else [self.share]
        if not all(0 <= value <= 1 for value in values):
            raise ValueError(f"sampling.LookaheadRollouts: share must be in [0, 1], found {self.share}")

    def cautions(self, situation: Situation) -> Iterator[str]:
        if self.look.top < 2 or self.look.least >= 0.5 or self.look.apart <= 0 or self.look.until == 0:
            yield (
                f"no tree can branch with {self.look!r}: a further branch needs top >= 2, least < 0.5, apart > 0 and "
                "until > 0"
            )
        elif LookaheadConfig(self.look, now(self.share)).branches(self.group) == 1:
            yield f"of a group of {self.group} one row is a tree's, which cannot branch; raise group or share"

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the fraction of leaves, the mean number of different leaves and the fraction of trees that branched.

        The last two are over the groups with two leaves or more, and compare leaves while the tree could branch.
        """
        explored = experience.extras["explored"]
        ways = _ways(experience[explored], self.look.until)
        found = {"explored": float(explored.double().mean())}
        if ways:
            found["tree/ways"] = sum(ways) / len(ways)
            found["tree/branched"] = sum(n > 1 for n in ways) / len(ways)
        return found

    def play(
        self, source: Source, tasks: Tensor, copies: Tensor, support: Support, starts: Sequence[Start] | None
    ) -> Experience:
        look = LookaheadConfig(self.look, now(self.share))
        batch = source.rollout(RolloutRequest(tasks, copies, support, starts=starts, lookahead=look))
        place = ops.group_place(torch.zeros(len(batch), device=batch.device), batch.group)
        leaves = torch.tensor([look.branches(int(n)) for n in copies], device=batch.device)
        return batch.replace(extras={"explored": place < leaves[batch.group]})


def _ways(leaves: Experience, until: int | None) -> list[int]:
    """Counts, for each group of two leaves or more, the different beginnings of its leaves' first answers.

    A beginning is the first `until` decisions. Leaves of a tree that never branched agree in them; the decisions after
    them are sampled independently.
    """
    found: dict[int, list[tuple[int, ...]]] = {}
    for row in range(len(leaves)):
        decided = leaves.mask[row]
        if leaves.turn is not None and decided.any():
            decided = decided & (leaves.turn[row] == leaves.turn[row][decided].min())
        tokens = leaves.extras["tokens"][row][decided][:until].tolist()
        found.setdefault(int(leaves.group[row]), []).append(tuple(tokens))
    return [len(set(ways)) for ways in found.values() if len(ways) > 1]
