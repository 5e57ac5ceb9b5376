"""Rollouts with Monte-Carlo values at intermediate states."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.sampling.parts import Select
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.source_protocols import ContinuingSource


class SegmentRollouts(Rollouts):
    """Rollouts that are cut where the policy was uncertain, with a Monte-Carlo value of the state at each cut.

    Uncertain decisions are those with a sampling probability below `threshold`; each row is cut before the first of
    them and before every `interval`-th one after it. A cut's value is the mean outcome of `rollouts` new continuations
    from there, over the same support. Cuts at which rows of a group have the same tokens so far, such as those at their
    beginning, share their continuations. The continuations are not part of the batch.

    `extras["cut"]` [B, T] bool marks the decisions before which a row is cut. `extras["cut_value"]` [B, T] holds the
    values there, 0 elsewhere, in units of the outcome, the reward before the cut included.

    Source: SPO-chain, arXiv:2505.23564.
    """

    threshold: float = 0.9
    interval: int = 5
    rollouts: int = 9

    writes = frozenset({"extras.cut", "extras.cut_value"})
    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        super().setup()
        if self.interval < 1 or self.rollouts < 1:
            raise ValueError(
                f"sampling.SegmentRollouts: need interval >= 1 and rollouts >= 1, found {self.interval} and "
                f"{self.rollouts}"
            )

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        """Estimates the overhead as if a fifth of a row's decisions are uncertain; a continuation is half a row on
        average."""
        return super().sampling_overhead(kept, decisions) + self.rollouts * math.ceil(decisions / 5 / self.interval) / 2

    def gather(self, source: ContinuingSource) -> Experience:
        batch = super().gather(source)
        doubtful = in_doubt(batch, self.threshold)
        cut = doubtful & ((doubtful.cumsum(1) - 1) % self.interval == 0)
        value = torch.zeros_like(batch.outcome)[:, None].repeat(1, cut.shape[1])
        rows, columns = cut.nonzero(as_tuple=True)
        if len(rows):
            one, shared = _states(batch, rows, columns)
            found = source.extend(batch[rows[one]], self.rollouts, at=columns[one])
            value[rows, columns] = found.outcome.view(-1, self.rollouts).mean(1)[shared]
        return batch.replace(extras={"cut": cut, "cut_value": value})


def in_doubt(experience: Experience, threshold: float) -> Tensor:
    """Returns the mask [B, T] of decisions whose sampling probability was below the threshold."""
    return experience.mask & (experience.rollout_logp.exp() < threshold)


def _states(batch: Experience, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the index of one cut for each distinct state of a group, and each cut's index of its state."""
    tokens = batch.extras["tokens"][rows]
    before = torch.arange(tokens.shape[1], device=tokens.device) < columns[:, None]
    key = torch.cat([batch.group[rows, None], columns[:, None], torch.where(before, tokens, -1)], 1)
    states, shared = torch.unique(key, dim=0, return_inverse=True)
    cuts = torch.arange(len(rows), device=tokens.device)
    one = torch.full((len(states),), len(rows), device=tokens.device).scatter_reduce(0, shared, cuts, "amin")
    return one, shared


class UncertainTokens(Select):
    """Keeps the decisions whose sampling probability was below `threshold`; the others remain as context.

    A nearly certain decision has hardly any alternative to learn about. Source: the probability mask of SPO,
    arXiv:2505.23564.
    """

    threshold: float = 0.9

    reads = frozenset({"rollout_logp"})

    def forward(self, experience: Experience) -> Experience:
        return experience.restrict(in_doubt(experience, self.threshold))
