"""When the batches of a stage are sampled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from polopt.experience import Experience
from polopt.sampling import Sampling
from polopt.training.player import Player
from polopt.training.source import LanguageSource


class Gathered(NamedTuple):
    """One batch before anything is made of it. begun: on the clock, when its sampling was. spent: on it, as `meter`
    counts."""

    experience: Experience
    begun: float
    spent: Mapping[str, float]


def gather(source: LanguageSource, sampling: Sampling) -> Gathered:
    """Sample one batch."""
    begun, before = time.perf_counter(), meter(source.player)
    return Gathered(sampling(source), begun, since(before, source.player))


def meter(player: Player) -> dict[str, float]:
    """What a player has spent so far: tokens sampled, seconds by kind of work, episodes that went wrong."""
    seconds = {f"seconds/{kind}": value for kind, value in player.seconds.items()}
    return {"sampled": player.sampled, **seconds, **{f"episodes/{k}": n for k, n in player.grounds.counts.items()}}


def since(before: Mapping[str, float], player: Player) -> dict[str, float]:
    """What it has spent since it had spent `before`."""
    return {name: value - before[name] for name, value in meter(player).items()}


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
