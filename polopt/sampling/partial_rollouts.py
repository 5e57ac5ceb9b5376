"""Partial rollouts, which continue over several batches."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.batch_buffer import BatchBuffer
from polopt.sampling.parts import RolloutRequest, Sampling
from polopt.sampling.source_protocols import ContinuingSource
from polopt.support import Support


class PartialRollouts(Sampling):
    """Samples at most `window` new decisions a row and batch; rows that have not ended continue in the next batch.

    A batch has `source.rows` rows: unfinished rows of the last batch, continued with the current policy, and new rows
    in place of those that ended. No batch waits for its longest row. Rows are complete: `mask` holds all decisions so
    far, with the `rollout_logp` of the policy that sampled each, and `extras["window"]` [B, T] bool marks those of this
    batch. An unfinished row has neither terminated nor been truncated. Every row is a group of its own. Unfinished rows
    are stored as tensors with the numbers of their tasks, in training mode only; `extend` replays their environments.

    With a window as long as an episode the result equals that of `Rollouts` with one row per prompt. Source: successive
    batching in T-PPO, arXiv:2506.15050.
    """

    tags = frozenset({"data_source=self"})

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
        num_new = source.rows - sum(map(len, parts))
        if num_new > 0:
            rows = source.rollout(RolloutRequest(source.take(num_new), 1, self.support, max_decisions=self.window))
            parts.append(_marked(rows, torch.zeros_like(rows.lengths)))
        batch = Experience.cat(parts)
        batch = batch.replace(group=torch.arange(len(batch), device=batch.device))
        if self.training:
            going = batch[~(batch.terminated | batch.truncated)]
            self.memory.keep([going] if len(going) else [])
        return batch


def _marked(experience: Experience, before: Tensor) -> Experience:
    """Adds `extras["window"]`, which is True at the decisions after the first `before` [B] of each row."""
    count = experience.mask.cumsum(1)
    return experience.replace(extras={"window": experience.mask & (count > before[:, None])})
