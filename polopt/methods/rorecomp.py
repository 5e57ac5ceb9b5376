"""RoRecomp: batches of short right answers and long wrong ones; the other rows are replayed later, or dropped."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.part_names import name_of
from polopt.sampling.batch_buffer import BatchBuffer
from polopt.sampling.parts import Select
from polopt.sampling.replay import aged
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.source_protocols import RestoringSource
from polopt.schedules import Schedule, now


@method(
    paper=Paper(
        title="RoRecomp: Enhancing Reasoning Efficiency via Rollout Response Recomposition in Reinforcement Learning",
        authors="Li, Gang and Qin, Yulei and Tan, Xiaoyu and Yang, Dingkang and Shi, Yuchen and Xu, Zihan and Li, "
        "Xiang and Sun, Xing and Li, Ke",
        year=2025,
        arxiv="2509.25958",
    ),
    changes="GRPO on each group's shortest right and longest wrong answers; what is left comes back in batches of its "
    "own, more and more seldom.",
    room="sampling",
    tier="reading",
)
def rorecomp(
    *,
    group: int = 16,
    share: float = 0.5,
    compensate: float | tuple[float, int] = (1.0, 200),
    statistics: Literal["selected", "full"] = "selected",
    by: Literal["decisions", "turns"] = "decisions",
    clip: float = 0.2,
) -> Algorithm:
    """A priority batch holds, of each group, the ceil(share n) shortest of its n right rows and the ceil(share n)
    longest of its n wrong ones; the reward stays the verifier's, and

        A_i = (R_i - mean R) / (std R + eps) over the rows of the recomposed group,

    so that short and right against long and wrong is the contrast that is left. The other rows are buffered with
    their behaviour log-probabilities. After a priority batch the next one is, with probability `compensate`, a
    compensation batch of all buffered rows; nothing is sampled for it, and the buffer is empty again. (p, steps) lets
    that probability fall from p to 0 along half a cosine in so many batches.

    statistics="full" takes mean and std over all that was sampled for the prompt, in both kinds of batch. A group of
    which only right or only wrong rows are left has no gradient with "selected", but has one with "full". by="turns" is
    for agents whose length is the number of their calls.

    The paper's text and program were not at hand, only its summary: the shares, how often compensation comes (its
    decay is reported, not its end points), its being a batch of its own and the set behind the statistics are
    readings. No KL term, so that the recomposition is the one change to GRPO.
    """
    often = compensate
    if isinstance(often, tuple):
        often = Schedule(knots=[(0, often[0]), (often[1], 0.0)], shape="cosine")  # type: ignore[assignment]
    sampling = LengthRecomposed(group=group, share=share, compensate=often, statistics=statistics, by=by)  # type: ignore[arg-type]
    select = [SelectByField()] if statistics == "full" else []
    return grpo(group=group, clip=clip, kl=0).but(sampling=sampling, select=select)


def shortest_right_longest_wrong(length: Tensor, right: Tensor, group: Tensor, share: float) -> Tensor:
    """Returns a mask [B] of each group's ceil(share n) shortest of n right rows and ceil(share n) longest of n wrong
    rows.

    Ties: the earlier row. Shapes: length [B], right [B] bool, group [B].
    """
    same = ops.crossed(group, right)
    kept = torch.ceil(share * ops.group_size(same).double() - 1e-9)
    return ops.group_place(torch.where(right, -length, length).double(), same) < kept


class SelectByField(Select):
    """Keeps the rows whose `extras[name]` [B] bool is True."""

    name: str = "chosen"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.name}"})

    def forward(self, experience: Experience) -> Experience:
        return experience[experience.extras[self.name]]


class LengthRecomposed(Rollouts):
    """Rollouts of which a batch keeps the shortest right and the longest wrong rows; later batches hold the others.

    A priority batch chooses, of each group, the fraction `share` of its right rows that are shortest and of its wrong
    rows that are longest; a row is right if its outcome is at least `right`. With probability `compensate` the batch
    after it is a compensation batch: without new rollouts, it consists of all rows that the last `batches` priority
    batches left out, which then leave the memory. Rows return as they were sampled, with their own `rollout_logp`;
    `extras["age"]` [B] counts the priority batches since then, 0 in a priority batch.

    `extras["chosen"]` [B] bool marks the rows to learn from.

    share: fraction of a group's right and of its wrong rows that a priority batch chooses.
    compensate: probability of a compensation batch, a number or a schedule.
    batches: priority batches whose left-out rows are kept.
    statistics: "selected" returns the chosen rows alone, so that credit compares the rows of a recomposed group with
        each other. "full" returns the whole groups, in both kinds of batch: credit then compares with all rows that
        were sampled, and `SelectByField()` in the algorithm's `select` must drop the others.
    by: the measure of length, "decisions" or "turns".
    right: the least outcome of a right row.

    The draw uses the source's generator; there is none at probability 0 or 1, or if the memory is empty. With share 1
    no row is left out, and the result equals that of `Rollouts`, number for number.

    Source: RoRecomp, arXiv:2509.25958.
    """

    share: float = 0.5
    compensate: float | Schedule = 0.0
    batches: int = 4
    statistics: Literal["selected", "full"] = "selected"
    by: Literal["decisions", "turns"] = "decisions"
    right: RowMask = IsCorrect()

    writes = frozenset({"extras.chosen", "extras.age"})
    source_capabilities = frozenset({"restored_rows"})

    def setup(self) -> None:
        super().setup()
        if self.adapt is not None or self.support.by_entropy is not None:
            raise ValueError(
                "methods.rorecomp.LengthRecomposed: memory holds no temperatures of single decisions; leave adapt, and "
                "by_entropy of "
                "the support, None"
            )
        if not 0 < self.share <= 1 or self.batches < 1:
            raise ValueError(
                f"{name_of(type(self))}: need share in (0, 1] and batches >= 1, found {self.share} and {self.batches}"
            )
        if isinstance(self.compensate, float) and not 0 <= self.compensate <= 1:
            raise ValueError(
                f"methods.rorecomp.LengthRecomposed: compensate must be in [0, 1], found {self.compensate}"
            )
        self.memory = BatchBuffer()
        self.register_buffer("due", torch.zeros((), dtype=torch.bool))

    def gather(self, source: RestoringSource) -> Experience:
        due, kept = self.get_buffer("due"), self.memory.batches()
        if due and kept:
            found = [_left(source.restore_rows(batch), batch, age) for age, batch in enumerate(kept, 1)]
            if self.training:
                self.memory.keep([])
                due.fill_(False)
            return self._given(Experience.cat(found))
        rollouts = super().gather(source)
        right = self.right(rollouts)
        chosen = shortest_right_longest_wrong(self._length(rollouts), right, rollouts.group, self.share)
        if self.training:
            self._remember(rollouts.replace(extras={"chosen": ~chosen}), kept)
            due.fill_(bool(self.memory.batches()) and self._drawn(source.generator))
        return self._given(aged(rollouts.replace(extras={"chosen": chosen}), 0))

    def _given(self, experience: Experience) -> Experience:
        return experience if self.statistics == "full" else experience[experience.extras["chosen"]]

    def _remember(self, rollouts: Experience, kept: list[Experience]) -> None:
        """Stores the groups in which rows were left out: those rows alone, or, with statistics "full", the whole
        groups."""
        left = self._given(rollouts)
        if self.statistics == "full":
            left = left[ops.group_sum(left.extras["chosen"].double(), left.group) > 0]
        if len(left):
            kept = [left, *kept]
        self.memory.keep(kept[: self.batches])

    def _drawn(self, generator: torch.Generator) -> bool:
        probability = now(self.compensate)
        if probability in (0, 1):
            return probability == 1
        return bool(torch.rand((), generator=generator) < probability)

    def _length(self, experience: Experience) -> Tensor:
        if self.by == "decisions":
            return experience.lengths
        experience.require({"turn"}, by=self)
        _, row, _ = ops.turns(experience.turn, experience.mask)
        return torch.bincount(row, minlength=len(experience))


def _left(recalled: Experience, batch: Experience, age: int) -> Experience:
    return aged(recalled.replace(extras={"chosen": batch.extras["chosen"]}), age)
