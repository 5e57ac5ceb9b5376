"""When the batches of a stage are sampled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from polopt.experience import Experience
from polopt.sampling import Sampling
from polopt.training.source import LanguageSource


class Gathered(NamedTuple):
    """One batch before anything is made of it. begun: on the clock, when its sampling was. seconds: what it took, by
    kind of work. sampled: tokens that were drawn for it."""

    experience: Experience
    begun: float
    seconds: Mapping[str, float]
    sampled: int


def gather(source: LanguageSource, sampling: Sampling) -> Gathered:
    """Sample one batch."""
    begun, clock, drawn = time.perf_counter(), dict(source.player.seconds), source.player.sampled
    experience = sampling(source)
    spent = {kind: seconds - clock[kind] for kind, seconds in source.player.seconds.items()}
    return Gathered(experience, begun, spent, source.player.sampled - drawn)


class Supply(Protocol):
    """The batches of a stage, in order."""

    def batch(self, step: int) -> Gathered:
        """The batch of this step."""
        ...

    def learned(self, step: int) -> None:
        """The policy has learned from the batch of this step, or there was nothing to learn from it."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold beside policy, learner and source."""
        ...

    def record(self, batch: Gathered, step: int) -> dict[str, float]:
        """What to log of how a batch came about."""
        ...


class InTurn:
    """Each batch when it is asked for, from the policy as it is."""

    def __init__(self, source: LanguageSource, sampling: Sampling) -> None:
        self.source, self.sampling = source, sampling

    def batch(self, step: int) -> Gathered:
        return gather(self.source, self.sampling)

    def learned(self, step: int) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def record(self, batch: Gathered, step: int) -> dict[str, float]:
        return {}
