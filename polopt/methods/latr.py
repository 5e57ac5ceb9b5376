"""LATR: tree rollouts that branch at uncertain tokens, and keep a branch only if its continuation differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import Lookahead
from polopt.sampling.lookahead import LookaheadConfig
from polopt.sampling.parts import RolloutRequest, Start
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.source_protocols import Source
from polopt.schedules import Schedule, now
from polopt.situation import Situation
from polopt.support import Support

# Number of batches learned from, and the share of each group that comes from a tree from then on.
COUNTDOWN = ((0, 1.0), (10, 0.75), (20, 0.5), (80, 0.25), (200, 0.0))


@method(
    paper=Paper(
        title="Lookahead Tree-Based Rollouts for Enhanced Trajectory-Level Exploration in Reinforcement Learning with "
        "Verifiable Rewards",
        authors="Xing, Shangyu and Wang, Siyuan and Yang, Chenyuan and Dai, Xinyu and Ren, Xiang",
        year=2025,
        arxiv="2510.24302",
    ),
    changes="GRPO on groups that are grown as trees: branches at undecided tokens, kept if they go on differently; a "
    "falling share of each group.",
    room="sampling",
    tier="faithful",
)
def latr(
    *,
    group: int = 8,
    share: tuple[tuple[int, float], ...] = COUNTDOWN,
    least: float = 0.25,
    apart: float = 0.15,
    edit: float | None = 0.4,
    suffix: float | None = None,
    rouge: float | None = None,
    windows: tuple[int, ...] = (20, 30, 50),
    until: int | None = 512,
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """Lookahead tree rollouts: k rows of each group of G are the leaves of one tree, the others independent samples. At
    each token a branch continues with its likeliest token, of probability p_1, and another one begins with the second
    likeliest, of p_2, while there are fewer than k. A branch of r tokens is dropped if its last r tokens are too much
    like its parent's:

        k = round(eta G)
        branch if p_2 > least and p_1 - p_2 < apart
        drop at r = 20, 30, 50 if D / r < edit

    with D the edit distance; or if the longest shared suffix > suffix, or ROUGE-L > rouge, each where it is set. A tree
    stops branching with about k branches (5 % fewer are allowed towards the limit) that have all stood the test, or
    after `until` tokens, and its rows go on independently. eta falls by steps with the batches (`share`). Reward,
    advantage and loss are GRPO's.

    r is the ratio to the policy's own probability of each token. The leaves are not drawn from it, so their gradient
    is biased, whatever the ratio; the paper relies on eta's decay. Defaults are the program's for
    countdown; for mathematics they are least 0.15, apart 0.25, suffix 0.2 and ROUGE-L 0.5 instead of the edit distance,
    1024 tokens, and eta 1, 0.75, 0.5 and 0.25 from batches 0, 100, 200 and 300.

    The authors' program was read for this, as of January 2026 (before, it branched where p_1 - p_j *exceeds* `apart`).
    It differs from the paper: it samples once a tree is full where the paper takes the likeliest token
    (`others="full"`); it never drops a branch whose parent's token is a digit, an operator or space (its
    `keep_math_symbols`), which we do; it ends trees at 0.98 of the room for an answer, where we go on to its end; it
    stops for all prompts of a batch together, and fills a tree that is not full with copies of its first branch, where
    we copy those that still run, in turn.

    On short answers, and with a policy of low entropy, no token may be uncertain: the leaves are then copies of one
    answer, and the group has no gradient. The metric tree/branched is the share of trees that branched.
    """
    rule = Lookahead(least=least, apart=apart, windows=windows, edit=edit, suffix=suffix, rouge=rouge, until=until)
    steps = Schedule(knots=share, shape="step")
    return grpo(group=group, clip=clip, kl=kl).but(sampling=LookaheadRollouts(group=group, look=rule, share=steps))


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
                "methods.latr.LookaheadRollouts: a branch may begin with a token that top-k and top-p leave "
                "out, and its "
                f"tokens have one temperature; sample with top_k 0, top_p 1 and one temperature, found {self.support} "
                f"and adapt={self.adapt!r}"
            )
        values = [value for _, value in self.share.knots] if isinstance(self.share, Schedule) else [self.share]
        if not all(0 <= value <= 1 for value in values):
            raise ValueError(f"methods.latr.LookaheadRollouts: share must be in [0, 1], found {self.share}")

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

    def sample_tasks(
        self, source: Source, tasks: Tensor, copies: Tensor, support: Support, starts: Sequence[Start] | None
    ) -> Experience:
        lookahead = LookaheadConfig(self.look, now(self.share))
        batch = source.rollout(RolloutRequest(tasks, copies, support, starts=starts, lookahead=lookahead))
        place = ops.group_place(torch.zeros(len(batch), device=batch.device), batch.group)
        leaves = torch.tensor([lookahead.branches(int(n)) for n in copies], device=batch.device)
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
