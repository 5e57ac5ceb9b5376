"""Hidden states of the layers of a `transformers` model, for policies read from inner layers."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn


class Backbone:
    """A model's layers and the normalisation of the last one's output, verified by a forward pass.

    Raises:
        ValueError: the model does not declare its layers, or there is another operation between the last of them and
            the hidden states.
    """

    def __init__(self, model: Any) -> None:
        from transformers.modeling_layers import GradientCheckpointingLayer

        modules = list(model.base_model.modules())
        self.layers = [module for module in modules if isinstance(module, GradientCheckpointingLayer)]
        inside = {id(m) for layer in self.layers for m in layer.modules()}
        norms = [m for m in modules if "Norm" in type(m).__name__ and id(m) not in inside]
        self.norm: nn.Module = norms[-1] if norms else nn.Identity()
        if not self.layers or not self._agrees(model):
            raise ValueError(
                f"the layers of {type(model).__name__} are not found in it, so they have no policies; take a part that "
                "needs none"
            )

    @contextlib.contextmanager
    def recording(
        self, numbers: Collection[int], rows: Tensor | slice, columns: Tensor | slice
    ) -> Iterator[dict[int, Tensor]]:
        """Records, in forward passes inside the context, the outputs of the layers `numbers`, from 1, at (rows,
        columns)."""
        outputs: dict[int, Tensor] = {}

        def record(number: int, output: Any) -> None:
            outputs[number] = (output if isinstance(output, Tensor) else output[0])[rows, columns]

        hooks = [
            layer.register_forward_hook(lambda module, arguments, output, number=number: record(number, output))
            for number, layer in enumerate(self.layers, start=1)
            if number in numbers
        ]
        try:
            yield outputs
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def _agrees(self, model: Any) -> bool:
        last = len(self.layers)
        with self.recording({last}, slice(None), slice(None)) as outputs:
            tokens = torch.tensor([[2, 1]], device=model.device)
            states = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return last in outputs and torch.allclose(self.norm(outputs[last]), states, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def has_plain_head(model: Any) -> bool:
    """Returns True if logits are the output layer of the last hidden state and nothing more, so that logits are needed
    at decisions only.

    Some architectures cap or scale logits: this is tested on hidden states so large that a cap shows whatever the
    weights are.
    """
    if model.base_model is model:
        return False
    scaled: list[Tensor] = []

    def enlarge(module: nn.Module, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state * 1e3
        scaled.append(output.last_hidden_state)
        return output

    head, hook = model.get_output_embeddings(), model.base_model.register_forward_hook(enlarge)
    try:
        logits = model(input_ids=torch.tensor([[2, 1]], device=model.device), use_cache=False).logits
    finally:
        hook.remove()
    return head is not None and len(scaled) == 1 and torch.allclose(head(scaled[0]), logits, rtol=1e-4, atol=1e-3)
