"""Opponents: rows of other policies, with which a reward compares the rollouts, and which are not learned from."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.anchor import check_anchor
from polopt.experience import Experience
from polopt.fields import OWN_FIELDS, policy_field
from polopt.part import Part
from polopt.sampling.batch_buffer import WeightBank
from polopt.sampling.batch_mixers import BatchMixer
from polopt.sampling.parts import PolicyMixture, RolloutRequest
from polopt.sampling.source_protocols import Source, WeightSource
from polopt.schedules import Schedule, now


class OpponentPolicy(Part):
    """`policy(source, request) -> experience` samples the rollouts of an opponent, here of the present policy itself:
    self-play."""

    def forward(self, source: Any, request: RolloutRequest) -> Experience:
        found: Experience = source.rollout(request)
        return found


class ReferenceMixture(OpponentPolicy):
    """Samples from the geometric mixture of the policy pi with its reference, token by token:

        p(token | prefix) ~ pi(token | prefix)^(1 - share) ref(token | prefix)^share

    which is the softmax of (1 - share) logits_pi + share logits_ref. Over whole answers of several tokens it is another
    distribution than the geometric mixture of the two, whose normaliser depends on the prefix.

    share: in [0, 1], a number or a schedule; 0 is self-play, 1 the reference.
    anchor: the policy in the reference's place: reference, previous, or the name of another that the stage gives.

    Source: Nash-MD-PG, arXiv:2312.00886.
    """

    share: float | Schedule = 0.25
    anchor: str = "reference"

    def setup(self) -> None:
        check_anchor(self, self.anchor)
        if self.anchor in OWN_FIELDS:
            raise ValueError(
                f"sampling.ReferenceMixture: anchor {self.anchor!r} is the learner itself; name another policy, or set "
                "share to 0 for self-play"
            )
        if isinstance(self.share, float) and not 0 <= self.share <= 1:
            raise ValueError(f"sampling.ReferenceMixture: share must be in [0, 1], found {self.share}")

    @property
    def _mixes(self) -> bool:
        return self.share != 0.0

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.anchor)} if self._mixes else ())

    @property
    def source_capabilities(self) -> frozenset[str]:  # type: ignore[override]
        """The capabilities that the source must have: none for self-play."""
        return frozenset({"mixtures"} if self._mixes else ())

    def forward(self, source: Source, request: RolloutRequest) -> Experience:
        if self._mixes:
            request = dataclasses.replace(request, mixture=PolicyMixture(self.anchor, now(self.share)))
        return source.rollout(request)


class AveragedPolicy(OpponentPolicy):
    """Samples from the policy whose parameters are an exponential moving average of the learner's:

        average <- decay average + (1 - decay) policy

    before each batch, from the policy of the first batch on. The average is part of checkpoints. Parameters narrower
    than float32 are averaged in float32.

    decay: in [0, 1); 0 is self-play.

    Source: Nash-EMA-PG, arXiv:2312.00886.
    """

    decay: float = 0.99

    source_capabilities = frozenset({"weights"})

    def setup(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"sampling.AveragedPolicy: decay must be in [0, 1), found {self.decay}")
        self.average = WeightBank()

    def forward(self, source: WeightSource, request: RolloutRequest) -> Experience:
        self._follow(source.weights())
        with source.using(self.average[0]):
            return source.rollout(request)

    def _follow(self, present: Tensor) -> None:
        """Moves the average towards the present parameters [P], in training mode; the first ones begin it."""
        present = present.float() if torch.finfo(present.dtype).bits < 32 else present
        if not len(self.average):
            self.average.append(present)
        elif self.training:
            self.average[0] = self.average[0].lerp(present.to(self.average[0].device), 1 - self.decay)


class OpponentRollouts(BatchMixer):
    """Adds to each group of rollouts an opponent's answers to the same prompt: `extras["is_opponent"]` marks them, and
    `extras["opponents"]` [B] is their number in the row's group.

    A reward compares the rollouts with them, as `rewards.WinRate(against="opponents")`; then they leave the batch. They
    are sampled over the support of the rollouts, beyond the rows of the loop's batch.

    count: the opponent's answers to each prompt.
    policy: the opponent.
    """

    tags = frozenset({"data_source=others"})

    count: int = 1
    policy: OpponentPolicy = ReferenceMixture()

    learned: ClassVar[bool] = False
    reads = frozenset({"group", "extras.index"})
    writes = frozenset({"extras.is_opponent", "extras.opponents"})

    def setup(self) -> None:
        if self.count < 1:
            raise ValueError(f"sampling.OpponentRollouts: count must be >= 1, found {self.count}")

    @property
    def sampled(self) -> int:
        return self.count

    def forward(self, experience: Experience, source: Source) -> Experience:
        own = experience[~experience.is_demonstration & ~experience.is_opponent]
        first = ops.group_first(own.group)
        tasks, groups = own.extras["index"][first].cpu(), own.group[first]
        rows = self.policy(source, RolloutRequest(tasks, self.count, own.support))
        return with_opponents(experience, rows.replace(group=groups[rows.group]))


def with_opponents(experience: Experience, opponents: Experience) -> Experience:
    """Returns the batch with these rows, of groups of the batch, added as opponents.

    Fields that only one of the two has are blank in the other.
    """
    marked = experience.replace(extras={"is_opponent": experience.is_opponent})
    if len(opponents):
        flags = torch.ones(len(opponents), dtype=torch.bool, device=experience.device)
        added = opponents.replace(
            support=marked.support, horizon=marked.horizon, extras={"is_opponent": flags}
        ).with_missing_fields_of(marked)
        marked = Experience.join([marked.with_missing_fields_of(added), added])
    index, size = ops.group_index(marked.group)
    found = torch.zeros_like(size).index_add(0, index, marked.is_opponent.to(size.dtype))
    return marked.replace(extras={"opponents": found[index]})
