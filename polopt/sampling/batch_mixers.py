"""Batch mixers: add rows to the rollouts of a batch; those here are demonstrated rows, which are imitated.

Each of these marks the rows that it adds (`Experience.is_demonstration`). Their likelihood is computed over the
rollouts' support, so at a temperature other than 1 it is that of the sampler's distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from polopt import ops
from polopt.experience import Experience
from polopt.part import Part
from polopt.sampling.source_protocols import DemonstrationSource, SolutionSource, Source, TextSource


class BatchMixer(Part):
    """`mix(experience, source) -> experience` appends rows to the rollouts of a batch.

    learned: whether the rows that it adds are learned from.
    """

    learned: ClassVar[bool] = True

    @property
    def sampled(self) -> int:
        """Rollouts that the part samples for each prompt."""
        return 0

    def forward(self, experience: Experience, source: Any) -> Experience:
        raise NotImplementedError


class WithDemonstrations(BatchMixer):
    """Adds the demonstrated solutions of the next tasks: `each` of them for every row of the batch, at least one.

    They solve other tasks than the rollouts. Source: the expert rows of CHORD, arXiv:2508.11408.
    """

    tags = frozenset({"data_source=demonstrations"})

    each: float = 0.25

    source_capabilities = frozenset({"demonstrations"})

    def setup(self) -> None:
        if self.each <= 0:
            raise ValueError(f"sampling.WithDemonstrations: each must be > 0, found {self.each}")

    def forward(self, experience: Experience, source: DemonstrationSource) -> Experience:
        return _appended(experience, source.demonstrate(max(1, round(self.each * source.rows))), Experience.cat)


class WithSolutions(BatchMixer):
    """Adds a demonstrated solution to the group of every prompt whose rollouts have a mean outcome of at most `gate`.

    With outcomes in [0, 1], gate 0 helps prompts whose rollouts all failed, 1 all prompts, -1 none. Source: HPT,
    arXiv:2509.04419.
    """

    tags = frozenset({"data_source=demonstrations"})

    gate: float = 0.0

    reads = frozenset({"outcome", "group"})
    source_capabilities = frozenset({"demonstrations", "solutions"})

    def forward(self, experience: Experience, source: SolutionSource) -> Experience:
        own = experience[~experience.is_demonstration]
        hard = ops.group_mean(own.outcome, own.group) <= self.gate
        return (
            _appended(experience, source.demonstrate_groups(own[hard]), Experience.join) if hard.any() else experience
        )


class WithTexts(BatchMixer):
    """Adds, with `probability`, the next `rows` raw texts, in pieces of at most `length` tokens.

    The source's generator draws once a batch, and not at all at probability 0 or 1. Source: the stochastic auxiliary
    loss of InK-GRPO, arXiv:2601.18129.
    """

    tags = frozenset({"data_source=demonstrations"})

    rows: int = 64
    length: int = 512
    probability: float = 1.0

    source_capabilities = frozenset({"texts"})

    def setup(self) -> None:
        if self.rows < 1 or self.length < 1:
            raise ValueError(f"sampling.WithTexts: rows and length must be >= 1, found {self.rows} and {self.length}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"sampling.WithTexts: probability must be in [0, 1], found {self.probability}")

    def forward(self, experience: Experience, source: TextSource) -> Experience:
        if not self._drawn(source):
            return experience
        return _appended(experience, source.texts(self.rows, self.length), Experience.cat)

    def _drawn(self, source: Source) -> bool:
        if self.probability in (0, 1):
            return self.probability == 1
        return bool(torch.rand((), generator=source.generator) < self.probability)


def _appended(
    experience: Experience, demonstrations: Experience, stack: Callable[[Sequence[Experience]], Experience]
) -> Experience:
    """Returns the batch with the demonstrated rows appended and marked; fields that only rollouts have are blank in
    them."""
    own = experience.replace(extras={"is_demonstration": experience.is_demonstration})
    demonstrations = demonstrations.replace(
        rollout_logp=None,  # no policy sampled them
        entropy=None,
        support=experience.support,
        horizon=experience.horizon,
        extras={"is_demonstration": torch.ones_like(demonstrations.mask[:, 0])},
    )
    return stack([own, demonstrations.with_missing_fields_of(own)])
