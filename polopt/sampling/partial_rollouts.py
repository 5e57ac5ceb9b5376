"""Rollouts that go on over several batches."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.batch_buffer import BatchBuffer
from polopt.sampling.parts import RolloutRequest, Sampling
from polopt.sampling.source_protocols import ContinuingSource
from polopt.support import Support


class PartialRollouts(Sampling):
    """At most `window` new decisions a row and batch: rows that have not ended go on in the next one.

    A batch has `source.rows` rows: those that were not over, gone on with the policy of now, and new ones for those
    that were. No batch waits for its longest row. A row is given whole: `mask` holds all of its decisions so far, with
    the `rollout_logp` of whoever took them, and `extras["window"]` [B, T] bool tells those of this batch. An unfinished
    row has neither terminated nor been truncated. Every row is a group of its own. The rows that wait are remembered as
    tensors with the numbers of their tasks, in training mode only; their worlds are played again, as `extend` does.

    With a window as long as an episode this is `Rollouts` with one row per prompt. Source: successive batching in
    T-PPO, arXiv:2506.15050.
    """

    window: int = 8192
    support: Support = Support()

    writes = frozenset({"extras.window"})
    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        if self.window < 1:
            raise ValueError(f"sampling.PartialRollouts: window must be >= 1, found {self.window}")
        self.memory = BatchBuffer()

    @property
    def rollout_support(self) -> Support:
        return self.support

    def forward(self, source: ContinuingSource) -> Experience:
        parts = []
        for waiting in self.memory.batches():
            parts.append(_marked(source.extend(waiting, 1, max_decisions=self.window), waiting.lengths))
        fresh = source.rows - sum(map(len, parts))
        if fresh > 0:
            rows = source.rollout(RolloutRequest(source.take(fresh), 1, self.support, max_decisions=self.window))
            parts.append(_marked(rows, torch.zeros_like(rows.lengths)))
        batch = Experience.cat(parts)
        batch = batch.replace(group=torch.arange(len(batch), device=batch.device))
        if self.training:
            going = batch[~(batch.terminated | batch.truncated)]
            self.memory.keep([going] if len(going) else [])
        return batch


def _marked(experience: Experience, before: Tensor) -> Experience:
    """With `extras["window"]`: decisions behind the first `before` [B] of each row."""
    count = experience.mask.cumsum(1)
    return experience.replace(extras={"window": experience.mask & (count > before[:, None])})
