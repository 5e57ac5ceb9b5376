"""Replay of earlier right answers for prompts whose rollouts all failed."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.sampling.batch_buffer import BatchBuffer
from polopt.sampling.batch_mixers import BatchMixer
from polopt.sampling.replay import aged
from polopt.sampling.source_protocols import RestoringSource


class SuccessReplay(BatchMixer):
    """Stores right answers to each task, and replays one for a prompt whose rollouts hold none.

    each: right rows that are kept of a task, the last ones.
    tasks: tasks of which rows are kept, the last ones that had a right row.
    right: the least outcome of a right row.

    A group without a right row gets one of its task's stored rows, drawn uniformly: it replaces the group's last row,
    so that no batch and no group grows. The row returns as it was sampled, with its own `rollout_logp`; the learner's
    log-probabilities are computed anew. `extras["age"]` [B] counts the batches since it was sampled, 0 for a row of
    this batch. A replayed row is not stored again. The draw uses the source's generator; there is none if no row is
    replayed. The memory changes in training mode only.

    Source: the replay of successful trajectories in ARPO, arXiv:2505.16282, for groups that failed as a whole.
    """

    tags = frozenset({"data_source=self"})

    each: int = 1
    tasks: int = 4096
    right: RowMask = IsCorrect()

    reads = frozenset({"outcome", "group", "extras.index"})
    writes = frozenset({"extras.age"})
    source_capabilities = frozenset({"restored_rows"})

    def setup(self) -> None:
        if self.each < 1 or self.tasks < 1:
            raise ValueError(f"sampling.SuccessReplay: each and tasks must be >= 1, found {self.each} and {self.tasks}")
        self.memory = BatchBuffer()
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, experience: Experience, source: RestoringSource) -> Experience:
        kept, rollouts = self.memory.batches(), aged(experience, 0)
        found = self._brought_back(rollouts, kept[0], source) if kept else rollouts
        if self.training:
            self._remember(experience, kept)
        return found

    def _brought_back(self, rollouts: Experience, kept: Experience, source: RestoringSource) -> Experience:
        groups, rows = self._chosen(rollouts, kept, source.generator)
        if not len(rows):
            return rollouts
        age = self.get_buffer("batches") - kept.extras["sampled"][rows]
        back = source.restore_rows(_without(kept[rows], "sampled")).replace(group=groups)
        back = back.replace(extras={"age": age})
        number = torch.arange(len(rollouts), device=rollouts.device)
        last = torch.stack([number[rollouts.group == g].amax() for g in groups])
        stays = torch.ones(len(rollouts), dtype=torch.bool, device=rollouts.device)
        stays[last] = False
        joined = Experience.join([rollouts[stays], back.with_missing_fields_of(rollouts)])
        return joined[torch.cat([number[stays], last]).argsort()]

    def _chosen(self, rollouts: Experience, kept: Experience, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Returns the numbers of the groups that get a stored row, and the indices of these rows."""
        groups, rows = [], []
        index, size = ops.group_index(rollouts.group)
        helped = ops.group_sum(self.right(rollouts).double(), rollouts.group) > 0
        for g in range(len(size)):
            members = (index == g).nonzero().flatten()
            if helped[members[0]]:
                continue
            known = (kept.extras["index"] == rollouts.extras["index"][members[0]]).nonzero().flatten()
            if len(known):
                draw = int(torch.randint(len(known), (), generator=generator)) if len(known) > 1 else 0
                groups.append(rollouts.group[members[0]])
                rows.append(known[draw])
        return (torch.stack(groups), torch.stack(rows)) if rows else (index[:0], index[:0])

    def _remember(self, experience: Experience, kept: list[Experience]) -> None:
        now = self.get_buffer("batches")
        right = experience[self.right(experience)]
        sampled = torch.full((len(right),), int(now), dtype=torch.long, device=right.device)
        right = right.replace(extras={"sampled": sampled})
        every = Experience.cat([*kept, _tensors(right)]) if len(right) else (kept[0] if kept else None)
        if every is not None:
            self.memory.keep([every[self._last(every.extras["index"])]])
        now.add_(1)

    def _last(self, index: Tensor) -> Tensor:
        """Returns the indices of the rows to keep: the last `each` of a task, of the tasks that come last."""
        count: dict[int, int] = {}
        kept = []
        for row in range(len(index) - 1, -1, -1):
            task = int(index[row])
            if task not in count and len(count) == self.tasks:
                continue
            count[task] = count.get(task, 0) + 1
            if count[task] <= self.each:
                kept.append(row)
        return torch.tensor(kept[::-1], dtype=torch.long, device=index.device)


def _without(experience: Experience, name: str) -> Experience:
    return dataclasses.replace(experience, extras={k: v for k, v in experience.extras.items() if k != name})


def _tensors(experience: Experience) -> Experience:
    """Returns the batch without its lists, the form that the memory stores."""
    return dataclasses.replace(experience, extras={k: v for k, v in experience.extras.items() if isinstance(v, Tensor)})
