"""The policies inside a network: what its layers would say if each were the last."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

Said = Literal["logp", "entropy"]
NAME = re.compile(r"(?P<said>logp|entropy)_of_layer_(?P<number>[1-9]\d*)(?P<normed>_normed)?")


@dataclasses.dataclass(frozen=True)
class Layer:
    """softmax(W_U h), or softmax(W_U norm(h)) if `normed`, with h what layer `number` passes on.

    number: from 1. W_U is the output layer and norm the final normalisation of the whole network, so that the last
    layer, normed, is the network itself.
    """

    number: int
    normed: bool = False

    def name(self, said: Said) -> str:
        """Under which `Evaluation.extras` holds what the layer says of each decision, [B, T]."""
        return f"{said}_of_layer_{self.number}{'_normed' if self.normed else ''}"


def layer_of(name: str) -> tuple[Said, Layer] | None:
    """Inverse of `Layer.name`; None for any other name."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    return found["said"], Layer(int(found["number"]), found["normed"] is not None)  # type: ignore[return-value]
