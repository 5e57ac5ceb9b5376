"""What the modules of a model are: those that transformers put there, LoRA adapters of these, or something else."""

from __future__ import annotations

from typing import Any

from torch import nn

from polopt.policies.linear_maps import LowRank


def as_made(model: nn.Module) -> bool:
    """Whether every parameter sits in the kind of module that transformers put there or in a LoRA adapter of one, and
    no hook changes what a module says."""
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
    """Whether the module is PEFT's: it stands in another one's place, and answers for its `weight` without what it
    adds to it."""
    return type(module).__module__.startswith("peft.")


def is_lora(module: Any) -> bool:
    """Whether what PEFT's module says is base(x) + scale B A x (Hu et al. 2021, arXiv 2106.09685), of one adapter."""
    names: list[str] = list(getattr(module, "active_adapters", []))
    usual = len(names) == 1 and names[0] in getattr(module, "lora_A", ()) and type(module).__name__ == "Linear"
    if not usual or module.merged or module.disable_adapters or module.lora_variant:
        return False
    down, up = module.lora_A[names[0]], module.lora_B[names[0]]
    return type(down) is nn.Linear and type(up) is nn.Linear and up.bias is None


def adapter_of(module: Any) -> LowRank | None:
    """What a LoRA adapter adds to a module, None if the module has none."""
    if not adapted(module):
        return None
    (name,) = module.active_adapters
    return LowRank(module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name])


def _changes(hook: Any) -> bool:
    """transformers leaves hooks that only listen, from the first time on that somebody asks it for hidden states."""
    return getattr(hook, "__module__", None) != "transformers.utils.output_capturing"
