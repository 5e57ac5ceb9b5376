"""Rollouts that part where the policy is undecided, look ahead, and drop the branch that says the same again."""

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


@dataclasses.dataclass(frozen=True)
class LookaheadConfig:
    """How a source samples with a look ahead: the rule, and which share of each group is the leaves of a tree."""

    rule: Lookahead
    share: float

    def branches(self, copies: int) -> int:
        """Of so many rollouts of one prompt, how many are leaves of its tree."""
        return round(self.share * copies)


class LookaheadRollouts(Rollouts):
    """Rollouts of which a share are the leaves of a tree that grows by `look`, the others are drawn independently.

    share: of each group, a number or a schedule. `extras["explored"]` [B] bool marks the leaves. `rollout_logp` is the
    policy's own, but leaves are not drawn from it: they take likeliest tokens and take them apart on purpose. Means
    over them are biased, an importance ratio does not correct for it, and a group's baseline is that of a set which
    was chosen together. With share 0 this is `Rollouts`, number for number.

    Source: LATR, arXiv:2510.24302, which lets the share fall in training for that reason.
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
        """The share of rows that are leaves; of the groups with two leaves or more, how many different ways their
        leaves took while the tree could branch, and the share of those in which there was more than one."""
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
    """Of each group of two leaves or more, how many differ in the first `until` decisions of their first answer. Rows
    of a tree that never branched are alike that far; what comes after is drawn independently."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for row in range(len(leaves)):
        decided = leaves.mask[row]
        if leaves.turn is not None and decided.any():
            decided = decided & (leaves.turn[row] == leaves.turn[row][decided].min())
        tokens = leaves.extras["tokens"][row][decided][:until].tolist()
        found.setdefault(int(leaves.group[row]), []).append(tuple(tokens))
    return [len(set(ways)) for ways in found.values() if len(ways) > 1]
