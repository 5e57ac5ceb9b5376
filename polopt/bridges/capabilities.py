"""What another trainer hands over, and the refusal of methods that need more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from polopt.algorithm import Algorithm
from polopt.capabilities import Capabilities
from polopt.errors import UserError


class BridgeError(UserError, ValueError):
    """A method cannot run in another trainer. The message names the parts, what they need, and the fix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerCapabilities(Capabilities):
    """A trainer that parts are carried into. It samples and cuts micro-batches itself."""

    sampling_settings: frozenset[str] | None = frozenset({"group", "support"})
    source_capabilities: frozenset[str] = frozenset({"demonstrations"})
    teaches: bool = False
    full_batch: bool = False
    keeps_groups: bool = False
    moves_reference: bool = False

    def refusals(self, algorithm: Algorithm) -> list[str]:
        """Why the algorithm cannot run there, a sentence each; empty if it can."""
        return list(dict.fromkeys(self._refusals(algorithm)))

    def condition(self, algorithm: Algorithm) -> str:
        """Of an algorithm that can run there: under which condition, in a few words; empty if under none."""
        return ""

    def refuse(self, name: str, algorithm: Algorithm) -> None:
        """Refuses, before anything runs, what the trainer cannot do.

        Raises:
            BridgeError: every reason.
        """
        if reasons := self.refusals(algorithm):
            raise BridgeError(
                f"{name} cannot run in {self.name}: {'; '.join(reasons)}. Take another method, change the part with "
                "algorithm.but(...), or train it in polopt's own loop"
            )

    def _refusals(self, algorithm: Algorithm) -> Iterator[str]:
        """What it does not provide, and the trainer's own reasons."""
        yield from self.sentences(self.lacking(algorithm))
