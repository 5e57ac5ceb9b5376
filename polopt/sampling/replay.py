"""Replay of earlier policies' groups, mixed with rollouts of the current policy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.sampling.batch_buffer import BatchBuffer
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.source_protocols import RestoringSource
from polopt.schedules import Schedule, now


class Replay(Rollouts):
    """Rollouts of the current policy, mixed with groups that were sampled for the last few batches.

    Each group of a batch is replayed with probability `share`: it is drawn uniformly, without replacement, from the
    groups of the last `batches` batches while there are any; at least one group is new. A batch of `source.rows` rows
    therefore costs about 1 - share of its rollouts. Groups stay whole, so credit that compares the rows of a group
    compares rows of one policy.

    share: probability of replaying a group, a number or a schedule.
    batches: batches whose new groups are kept.

    Rows return as they were sampled, with `rollout_logp` of their own policy and the `outcome` of their episode; the
    learner's log-probabilities and their credit are computed anew. `extras["age"]` [B] is how many batches ago a row
    was sampled, 0 for a new one. Draws use the source's generator. The memory changes in training mode only. With share
    0 the result equals that of `Rollouts`, number for number.

    Source: the mixture over past policies of ReMix, arXiv:2507.06892.
    """

    share: float | Schedule = 0.4
    batches: int = 2

    writes = frozenset({"extras.age"})
    source_capabilities = frozenset({"restored_rows"})

    def setup(self) -> None:
        super().setup()
        if self.adapt is not None or self.support.by_entropy is not None:
            raise ValueError(
                "sampling.Replay: memory holds no temperatures of single decisions; leave adapt, and by_entropy of "
                "the support, None"
            )
        if self.batches < 1:
            raise ValueError(f"sampling.Replay: batches must be >= 1, found {self.batches}")
        if isinstance(self.share, float) and not 0 <= self.share <= 1:
            raise ValueError(f"sampling.Replay: share must be in [0, 1], found {self.share}")
        self.memory = BatchBuffer()

    def gather(self, source: RestoringSource) -> Experience:
        kept = self.memory.batches()
        groups = max(1, source.rows // self.group)
        chosen = self._choose(kept, groups, source.generator)
        replayed = [
            aged(source.restore_rows(batch[rows]), age)
            for age, (batch, rows) in enumerate(zip(kept, chosen, strict=True), 1)
            if rows.any()
        ]
        count = sum(len(ops.group_index(batch.group)[1]) for batch in replayed)
        rollouts = self.draw(source, source.rows - count * self.group)
        if self.training:
            self.memory.keep([rollouts, *kept][: self.batches])
        return Experience.cat([aged(rollouts, 0), *replayed])

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        return (1 - now(self.share)) * super().sampling_overhead(kept, decisions)

    def _choose(self, kept: Sequence[Experience], groups: int, generator: torch.Generator) -> list[Tensor]:
        """Returns for each stored batch the mask [B] of the rows that are replayed."""
        share = now(self.share)
        numbered = [ops.group_index(batch.group) for batch in kept]
        sizes = [len(size) for _, size in numbered]
        drawn = torch.zeros(sum(sizes), dtype=torch.bool)
        if share > 0 and len(drawn):
            count = int((torch.rand(groups, generator=generator) < share).sum())
            drawn[torch.randperm(len(drawn), generator=generator)[: min(count, groups - 1)]] = True
        return (
            [
                drawn_groups.to(index.device)[index]
                for drawn_groups, (index, _) in zip(drawn.split(sizes), numbered, strict=True)
            ]
            if kept
            else []
        )


def aged(experience: Experience, batches: int) -> Experience:
    """Returns the batch with `extras["age"]`, the number of batches since it was sampled."""
    age = torch.full((len(experience),), batches, dtype=torch.long, device=experience.device)
    return experience.replace(extras={"age": age})
