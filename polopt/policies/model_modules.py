"""Classification of a model's modules: transformers' own, LoRA adapters of these, or others."""

from __future__ import annotations

from typing import Any

from torch import nn

from polopt.policies.linear_maps import LowRank


def as_made(model: nn.Module) -> bool:
    """Returns True if every parameter is in a module kind of transformers or in a LoRA adapter of one, and no hook
    changes a module's output."""
    from transformers.pytorch_utils import Conv1D

    plain = {nn.Linear, nn.Embedding, nn.LayerNorm, Conv1D}
    for module in model.modules():
        if adapted(module) and not is_lora(module):
            return False
        owns = any(True for _ in module.parameters(recurse=False))
        if owns and type(module) not in plain and not type(module).__name__.endswith("RMSNorm"):
            return False
        if any(map(_changes, (*module._forward_hooks.values(), *module._forward_pre_hooks.values()))):
            return False
    return True


def adapted(module: nn.Module) -> bool:
    """Returns True if the module is PEFT's: it replaces another module, and its `weight` is that module's without the
    adapter."""
    return type(module).__module__.startswith("peft.")


def is_lora(module: Any) -> bool:
    """Returns True if PEFT's module computes base(x) + scale B A x of one adapter (Hu et al. 2021, arXiv 2106.09685).

    False if it is merged, disabled or a variant of LoRA.
    """
    names: list[str] = list(getattr(module, "active_adapters", []))
    usual = len(names) == 1 and names[0] in getattr(module, "lora_A", ()) and type(module).__name__ == "Linear"
    if not usual or module.merged or module.disable_adapters or module.lora_variant:
        return False
    down, up = module.lora_A[names[0]], module.lora_B[names[0]]
    return type(down) is nn.Linear and type(up) is nn.Linear and up.bias is None


def adapter_of(module: Any) -> LowRank | None:
    """Returns the LoRA adapter of a module, None if the module has none."""
    if not adapted(module):
        return None
    (name,) = module.active_adapters
    return LowRank(module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name])


def _changes(hook: Any) -> bool:
    """Returns False for transformers' hooks that only record hidden states, which remain after their first use."""
    return getattr(hook, "__module__", None) != "transformers.utils.output_capturing"
