"""Inner policies of a network: the distributions of its layers if each were the last."""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

LayerOutput = Literal["logp", "entropy"]
NAME = re.compile(
    r"(?P<output>logp|entropy)_of_layer_(?P<number>[1-9]\d*)(?:_in_(?P<among>[1-9]\d*))?(?P<normed>_normed)?"
)


@dataclasses.dataclass(frozen=True)
class Layer:
    """softmax(W_U h), or softmax(W_U norm(h)) if `normed`, with h the output of layer `number`.

    number: from 1. among: if given, the layer at the relative depth of layer `number` in a network of that many layers.
    W_U is the output layer and norm the final normalisation of the whole network, so that the last layer, normed, is
    the network itself.
    """

    number: int
    normed: bool = False
    among: int | None = None

    def at(self, depth: int) -> int:
        """Returns the layer's number in a network of `depth` layers."""
        return self.number if self.among is None else max(1, round(depth * self.number / self.among))

    def name(self, output: LayerOutput) -> str:
        """Returns the key in `Evaluation.extras` of the layer's output for each decision, [B, T]."""
        among = "" if self.among is None else f"_in_{self.among}"
        return f"{output}_of_layer_{self.number}{among}{'_normed' if self.normed else ''}"


def layer_of(name: str) -> tuple[LayerOutput, Layer] | None:
    """Inverse of `Layer.name`; None for any other name."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    among = None if found["among"] is None else int(found["among"])
    return found["output"], Layer(int(found["number"]), found["normed"] is not None, among)  # type: ignore[return-value]


def check_layer(by: str, number: int, among: int | None) -> None:
    """Checks that a layer's number is valid.

    Raises:
        ValueError: naming `by`, and the fix.
    """
    if number < 1 or (among is not None and number > among):
        expected = "from 1" if among is None else f"from 1 to {among}"
        raise ValueError(f"{by}: layers are counted {expected}, found {number}")
