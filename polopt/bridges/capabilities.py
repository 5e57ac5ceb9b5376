"""Capabilities of other trainers, and the refusal of methods that need more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from polopt.algorithm import Algorithm
from polopt.capabilities import Capabilities
from polopt.errors import UserError


class BridgeError(UserError, ValueError):
    """A method cannot run in another trainer. The message names the parts, the fields that they need, and the fix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerCapabilities(Capabilities):
    """Capabilities of another trainer that runs polopt's parts, but samples and splits micro-batches itself."""

    sampling_settings: frozenset[str] | None = frozenset({"group", "support"})
    source_capabilities: frozenset[str] = frozenset({"demonstrations"})
    teaches: bool = False
    full_batch: bool = False
    keeps_groups: bool = False
    moves_reference: bool = False

    def refusals(self, algorithm: Algorithm) -> list[str]:
        """Returns the reasons why the algorithm cannot run in the trainer, a sentence each; empty if it can."""
        return list(dict.fromkeys(self._refusals(algorithm)))

    def condition(self, algorithm: Algorithm) -> str:
        """Returns the condition under which an algorithm that can run in the trainer does so, in a few words; empty if
        there is none."""
        return ""

    def refuse(self, name: str, algorithm: Algorithm) -> None:
        """Raises BridgeError, before anything runs, if the algorithm cannot run in the trainer.

        Raises:
            BridgeError: every reason.
        """
        if reasons := self.refusals(algorithm):
            raise BridgeError(
                f"{name} cannot run in {self.name}: {'; '.join(reasons)}. Take another method, change the part with "
                "algorithm.but(...), or train it in polopt's own loop"
            )

    def _refusals(self, algorithm: Algorithm) -> Iterator[str]:
        """Yields the fields and capabilities that the trainer does not provide, and further reasons of the trainer."""
        yield from self.sentences(self.lacking(algorithm))
        if algorithm.minibatch is not None:
            yield (
                f"its minibatches have {algorithm.minibatch} decisions, and {self.name} divides batches itself; set "
                f"minibatch to null, and the size in {self.name}'s own settings"
            )
