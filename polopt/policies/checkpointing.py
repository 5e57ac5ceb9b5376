"""Activation checkpointing: layers keep only their input, and recompute the rest in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint


def checkpoint_layers(model: Any) -> None:
    """Enables activation checkpointing in every layer of a `transformers` model, wherever there is a gradient.

    Activations of L layers shrink to L inputs and one layer's rest, for about a third more training time. transformers'
    own switch works in training mode alone, which would enable dropout as well.

    Raises:
        ValueError: the model does not declare its layers.
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
    """Returns the layers of a `transformers` model, empty if the model does not declare them."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls forward(...); if there is a gradient, only the arguments are kept, and the call is repeated in the backward
    pass."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # No random numbers to restore: a policy's model is in evaluation mode.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
