"""Sampling of tokens, and the record of a rollout: the tokens with their log-probabilities."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from polopt import ops
from polopt.support import Support


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One continuation. logp and entropy belong to the sampler's support, one number a token.

    tokens: ids, the stop token included.
    entropy: None from an engine that does not compute it.
    stopped: True if it ended with a stop token; False means cut off by the limit.
    kept: per token the ids that top-k and top-p kept, None where they kept all.
    noted: further outputs of the sampler, one number a token: "temperature" and "plain_entropy", the entropy that it
        follows, where tokens have temperatures of their own.
    """

    tokens: list[int]
    logp: list[float]
    entropy: list[float] | None
    stopped: bool
    kept: list[Tensor] | None
    noted: dict[str, list[float]] = dataclasses.field(default_factory=dict)


def inverted(p: Tensor, noise: Tensor, reached: Tensor | None = None) -> Tensor:
    """Returns the choices [rows] at which the cumulative distributions of p [rows, V] exceed the noise [rows].

    reached: [rows, V] float64, a buffer for the cumulative distributions, None for a new tensor.
    """
    reached = torch.cumsum(p, -1, dtype=torch.float64, out=reached)
    token = torch.searchsorted(reached, noise[:, None] * reached[:, -1:], right=True)
    # Beyond the last only where a logit is not finite, which `RolloutRecord.rows` reports at the end.
    return token.clamp_(max=p.shape[-1] - 1).flatten()


class RolloutRecord:
    """The choices of a rollout, in buffers of [limit, rows] that are reserved once.

    No tensor that outlives a step is allocated in it. A small persistent tensor, allocated between temporary tensors of
    [rows, V], would keep the heap from reusing their memory, and a rollout would grow by a tensor of logits a step. For
    the same reason the tensors of [rows, V] are computed in a workspace where an operation allows it.
    """

    def __init__(self, support: Support, limit: int, logits: Tensor) -> None:
        rows, self.device = len(logits), logits.device
        self.support, self.steps = support, 0
        self.token = torch.full((limit, rows), -1, device=self.device)
        self.logp, self.entropy = (logits.new_zeros(limit, rows) for _ in range(2))
        self.noted: dict[str, Tensor] = {}
        self.kept: list[list[Tensor]] = [[] for _ in range(rows)]
        self.pending: list[tuple[Tensor, Tensor]] = []
        # (step, rows): from this step on, the columns hold these rows.
        self.columns: list[tuple[int, Tensor]] = []
        kinds = (logits.dtype, logits.dtype, torch.float64)  # log-probabilities, probabilities, and their running sum
        self.workspace = [torch.empty_like(logits, dtype=kind) for kind in kinds]

    def choose(self, rows: Tensor, logits: Tensor, noise: Tensor) -> Tensor:
        """Samples the next token of each of the `rows` by inverting its cumulative distribution at the row's noise."""
        step, count = self.steps, len(rows)
        if not self.columns or len(self.columns[-1][1]) != count:
            self.columns.append((step, rows))
        logp, p, reached = (buffer[:count] for buffer in self.workspace)
        if logits.dtype != p.dtype:
            logits = p.copy_(logits)  # a buffer until the log-probabilities are computed
        logits = ops.heated(logits, self._temperature(logits))
        if self.support.truncated:
            keep = ops.kept_choices(logits, self.support.top_k, self.support.top_p)
            logits = torch.where(keep, logits, -torch.inf)
            self.pending.append((rows, keep))
        torch.log_softmax(logits, -1, out=logp)
        torch.exp(logp, out=p)
        token = inverted(p, noise, reached)
        self.token[step, :count] = token
        self.logp[step, :count] = logp.gather(1, token[:, None])[:, 0]
        entropy = ops.entropy_of(logp) if self.support.truncated else -torch.linalg.vecdot(p, logp)
        self.entropy[step, :count] = entropy
        self.steps += 1
        return token

    def _temperature(self, logits: Tensor) -> float | Tensor:
        """Returns one temperature for all rows, or, where it follows the entropy, one for each, which is recorded."""
        if self.support.by_entropy is None:
            return self.support.temperature
        entropy = ops.entropy_of(ops.heated(logits, self.support.temperature).log_softmax(-1))
        temperature = ops.temperatures(self.support, entropy)
        for name, values in (("temperature", temperature), ("plain_entropy", entropy)):
            buffer = self.noted.setdefault(name, values.new_zeros(self.token.shape))
            buffer[self.steps, : len(values)] = values
        return temperature

    def settle(self) -> None:
        """Stores the choices kept by top-k and top-p as ids instead of a mask over the vocabulary."""
        for rows, keep in self.pending:
            for row, kept_choices in zip(rows.tolist(), keep.cpu(), strict=True):
                self.kept[row].append(kept_choices.nonzero().flatten())
        self.pending.clear()

    def rows(self, goes_on: Tensor) -> list[Sampled]:
        steps = torch.arange(self.steps, device=self.device)
        tokens, logp, entropy = self._by_row(self.token), self._by_row(self.logp), self._by_row(self.entropy)
        stopped = (tokens >= 0) & ~goes_on[tokens.clamp(min=0)]
        ended = stopped.any(1)
        length = torch.where(ended, stopped.int().argmax(1) + 1, (tokens >= 0).sum(1))
        if not torch.where(steps < length[:, None], logp, 0).isfinite().all():
            raise FloatingPointError("sample: the model's logits are not finite; its weights, or training, diverged")
        self.settle()
        noted = {name: self._by_row(values).tolist() for name, values in self.noted.items()}
        lists = (length.tolist(), tokens.tolist(), logp.tolist(), entropy.tolist(), ended.tolist())
        return [
            Sampled(
                tokens=t[:n],
                logp=lp[:n],
                entropy=h[:n],
                stopped=end,
                kept=self.kept[row][:n] if self.support.truncated else None,
                noted={name: values[row][:n] for name, values in noted.items()},
            )
            for row, (n, t, lp, h, end) in enumerate(zip(*lists, strict=True))
        ]

    def _by_row(self, values: Tensor) -> Tensor:
        """Returns a buffer [limit, columns] as [rows, steps]; after a row has left, -1 for tokens and 0 for numbers."""
        found = values.new_full((values.shape[1], self.steps), 0 if values.is_floating_point() else -1)
        ends = [start for start, _ in self.columns[1:]] + [self.steps]
        for (start, rows), end in zip(self.columns, ends, strict=True):
            found[rows, start:end] = values[start:end, : len(rows)].T
        return found
