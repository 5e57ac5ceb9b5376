"""Memory for time: layers that keep only their input, and compute the rest again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def checkpoint_layers(model: Any) -> None:
    """Checkpoint every layer of a `transformers` model, from now on and wherever there is a gradient.

    Activations of L layers shrink to L inputs and one layer's rest, for about a third more time of learning.
    transformers' own switch works in training mode alone, where dropout would come with it.

    Raises:
        ValueError: the model does not say what its layers are.
    """
    layers = layers_of(model)
    if not layers:
        raise ValueError(
            f"policy.checkpointing: {type(model).__name__} has no layers that transformers could checkpoint; leave it "
            "False and lower micro_rows instead"
        )
    for layer in layers:
        layer.forward = partial(recomputed, layer.forward)


def layers_of(model: Any) -> list[Any]:
    """The layers of a `transformers` model, as far as it says what they are."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """forward(...), which keeps its arguments alone and runs again in the backward pass, if there is a gradient."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # No random numbers to restore: a policy's model is in evaluation mode.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
