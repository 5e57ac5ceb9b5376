"""LoRA adapters on a frozen base: W + scale B A in place of W, in PEFT's own modules and file format.

Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from polopt.config import Config, ConfigError
from polopt.names import nearest
from polopt.policies.model_modules import adapted, adapter_of, is_lora

ALL: Literal["all-linear"] = "all-linear"
# Prefix of every tensor's name in PEFT's files, in which the model is inside a wrapper.
PREFIX = "base_model.model."


class AdapterSpec(Config):
    """Settings of a new adapter: y = W x + alpha / rank B A x, with W frozen, A random and B zero, so that it starts as
    its base.

    There is no dropout, which would make the sampler and the learner two policies.

    rank: of B A.
    alpha: numerator of the scale alpha / rank of B A.
    targets: names of the linear maps that get an adapter, as q_proj; "all-linear" for all but the output layer.
    """

    rank: int = pydantic.Field(default=8, ge=1)
    alpha: int = pydantic.Field(default=16, ge=1)
    targets: Literal["all-linear"] | tuple[str, ...] = ALL


def require() -> Any:
    """Imports the package `peft`.

    Raises:
        ConfigError: it is not installed.
    """
    if importlib.util.find_spec("peft") is None:
        raise ConfigError('adapters need PEFT, which is not installed: pip install "polopt[peft]"')
    import peft

    return peft


def new_adapter(model: Any, spec: AdapterSpec, *, seed: int, base: str) -> None:
    """Adds a new adapter to a model, in place, and freezes all other parameters.

    base: the model's name in PEFT's file. The adapter's parameters are float32 or wider, whatever the model's are.

    Raises:
        ConfigError: PEFT is not installed, or a target is no linear map inside the model.
    """
    peft, known = require(), linear_maps(model)
    # By name rather than as PEFT's "all-linear", which is saved as a list of every single map.
    targets = sorted({name.rpartition(".")[2] for name in known}) if spec.targets == ALL else list(spec.targets)
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in known):
            hint = nearest(target, {name.rpartition(".")[2] for name in known})
            raise ConfigError(f"policy.adapter.targets: {target!r} is no linear map inside the model{hint}")
    config = peft.LoraConfig(
        r=spec.rank,
        lora_alpha=spec.alpha,
        target_modules=targets,
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
        fan_in_fan_out=turned(model),
    )
    with torch.random.fork_rng(devices=[]):  # made on the CPU, as the model is
        torch.default_generator.manual_seed(seed)
        _inject(peft, config, model)


def load_adapter(model: Any, folder: str, *, base: str) -> None:
    """Adds an adapter in PEFT's format, from a folder or a hub name, to a model, for further training.

    Raises:
        ConfigError: PEFT is not installed; there is no such adapter; the adapter is not plain LoRA, or was made for
            another base than this model.
    """
    peft = require()
    try:
        config = peft.PeftConfig.from_pretrained(folder)
        tensors = peft.load_peft_weights(folder, device="cpu")
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"policy.adapter = {folder!r} is no adapter in PEFT's format: {reason}") from error
    if unusual := _unusual(config):
        raise ConfigError(
            f"policy.adapter = {folder!r} has {unusual}, and plain LoRA alone is trained here; make one model of it "
            f"and its base, polopt convert {folder} --base {base} --to FOLDER, and set policy.model: FOLDER"
        )
    check_scale(config, f"policy.adapter = {folder!r}")
    other = config.base_model_name_or_path
    if other and other != base and not Path(other).exists() and not Path(base).exists():
        raise ConfigError(
            f"policy.adapter = {folder!r} was made for the base {other}, and policy.model is {base}; set "
            f"policy.model: {other}, or a folder with it"
        )
    if problem := _misfit(model, tensors):
        raise ConfigError(
            f"policy.adapter = {folder!r} does not fit policy.model = {base!r}: {problem}"
            + (f"; it was made for {other}" if other else "")
        )
    config.inference_mode, config.base_model_name_or_path = False, base
    _inject(peft, config, model)
    peft.set_peft_model_state_dict(model, tensors)


def _inject(peft: Any, config: Any, model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft.inject_adapter_in_model(config, model)
    for parameter in model.parameters():
        if parameter.requires_grad and torch.finfo(parameter.dtype).bits < 32:
            parameter.data = parameter.data.float()
    model.eval()


def linear_maps(model: Any) -> dict[str, nn.Module]:
    """Returns the linear maps inside a model, by name, without the output layer."""
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    return {n: m for n, m in model.named_modules() if isinstance(m, (nn.Linear, Conv1D)) and m is not head}


def shape_of(module: Any) -> tuple[int, int]:
    """Returns (outputs, inputs) of a linear map; GPT-2 stores its weights transposed."""
    rows, columns = module.weight.shape
    return (rows, columns) if isinstance(module, nn.Linear) else (columns, rows)


def turned(model: Any) -> bool:
    """Returns True if the model stores the weights of its linear maps as [in, out], as GPT-2 does."""
    return any(not isinstance(module, nn.Linear) for module in linear_maps(model).values())


def check_scale(config: Any, description: str) -> None:
    """Raises an error for an adapter whose scale of 0 cancels its weights.

    Raises:
        ConfigError: the scale is 0.
    """
    if getattr(config, "lora_alpha", None) == 0:
        raise ConfigError(
            f"{description} has lora_alpha = 0, which multiplies it by 0 (verl's merger writes that where no value is "
            "given); set the alpha of its training in adapter_config.json"
        )


def _unusual(config: Any) -> str | None:
    """Describes the features of an adapter beyond plain LoRA, None if it has none."""
    kind = getattr(config.peft_type, "value", config.peft_type)
    if kind != "LORA":
        return f"the kind {kind}"
    features = ("use_dora", "lora_bias", "modules_to_save", "trainable_token_indices", "layer_replication")
    extra = [f"{name}: {value}" for name in features if (value := getattr(config, name, None))]
    if config.bias != "none":
        extra.append(f"bias: {config.bias}")
    return ", ".join(extra) or None


def _misfit(model: Any, tensors: Mapping[str, Tensor]) -> str | None:
    """Describes the first of an adapter's tensors that does not fit a model, None if all fit."""
    known = linear_maps(model)
    for name, tensor in tensors.items():
        place, _, side = name.removeprefix(PREFIX).removesuffix(".weight").rpartition(".")
        if side not in ("lora_A", "lora_B"):
            return f"it holds {name}, which is no low-rank factor of a linear map"
        if place not in known:
            return f"the model has no linear map {place}"
        out, inputs = shape_of(known[place])
        size, expected = (tensor.shape[1], inputs) if side == "lora_A" else (tensor.shape[0], out)
        if size != expected:
            return f"{place} has {expected} {'inputs' if side == 'lora_A' else 'outputs'}, and the adapter {size}"
    return None if tensors else "it holds nothing"


def adapted_shapes(model: nn.Module) -> list[tuple[int, int]]:
    """Returns (outputs, inputs) of each linear map that has an adapter."""
    return [shape_of(module.base_layer) for module in model.modules() if adapted(module) and is_lora(module)]


def is_adapted(model: nn.Module) -> bool:
    """Returns True if some of a model's modules are adapters."""
    return any(map(adapted, model.modules()))


@torch.no_grad()
def merged(model: Any, *, once: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Yields a model's weights under their names without adapters, with each adapter merged as W + scale B A.

    Tied weights are yielded under all their names, or `once`. The sum is computed in float32 or wider and rounded one
    time, to the precision of W.

    Raises:
        ValueError: an adapter that is more than plain LoRA.
    """
    layers: dict[str, Any] = {name: module for name, module in model.named_modules() if adapted(module)}
    for name, module in layers.items():
        if not is_lora(module):
            raise ValueError(f"{name} has an adapter that is no plain LoRA, or not in use; merge it with PEFT")
    inside = tuple(f"{name}." for name in layers)
    for name, parameter in model.named_parameters(remove_duplicate=once):
        owner, _, leaf = name.rpartition(".")
        place = owner.removesuffix(".base_layer")
        if place in layers:
            yield f"{place}.{leaf}", _whole(layers[place]) if leaf == "weight" else parameter.detach()
        elif not name.startswith(inside):
            yield name, parameter.detach()


def merged_state(model: Any) -> dict[str, Tensor]:
    """Returns the model's `state_dict` with its adapters merged into the weights."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {n: t for n, t in model.state_dict().items() if n not in parameters} | dict(merged(model))


def _whole(layer: Any) -> Tensor:
    weight, adapter = layer.base_layer.weight.detach(), adapter_of(layer)
    assert adapter is not None
    dtype = torch.promote_types(weight.dtype, torch.float32)
    added = adapter.whole(dtype)
    return (weight.to(dtype) + (added.T if layer.fan_in_fan_out else added)).to(weight.dtype)


def save_adapter(model: Any, folder: Path) -> None:
    """Saves a model's adapter in PEFT's format: adapter_config.json and adapter_model.safetensors."""
    peft = require()
    # Without a hub request for whether the vocabulary has grown: embeddings are never part of the adapter.
    tensors = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    write_adapter(folder, model.peft_config["default"], tensors)


def write_adapter(folder: Path, config: Any, tensors: Mapping[str, Tensor]) -> None:
    """Writes PEFT's two files: its LoraConfig, and the factors by their modules' names (`q_proj.lora_A.weight`)."""
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(config)
    config.inference_mode = True
    with contextlib.redirect_stdout(None):
        config.save_pretrained(str(folder))
    factors = {PREFIX + name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    save_file(factors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def fingerprint(parameters: Mapping[str, Tensor]) -> str:
    """Returns a short hash of some hundred numbers of each weight, different for different base models."""
    known = hashlib.sha256()
    for name, parameter in sorted(parameters.items()):
        flat = parameter.detach().flatten()
        some = flat[:: max(1, len(flat) // 256)].float().cpu()
        known.update(f"{name} {tuple(parameter.shape)}".encode() + some.numpy().tobytes())
    return known.hexdigest()[:16]
