"""Extraction of adapters from full models: the difference of two models' linear maps, by its largest singular
directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.config import ConfigError
from polopt.policies.adapter import linear_maps, require, turned, write_adapter


@dataclasses.dataclass(frozen=True)
class Extracted:
    """An adapter extracted from two models.

    factors: lora_A [r, in] and lora_B [out, r] of each map that differs, by PEFT's names.
    error: ||D - B A|| / ||D|| of each of these maps in the Frobenius norm, D the difference of its weights.
    left: names of other parameters that differ, which an adapter cannot represent.
    """

    rank: int
    factors: Mapping[str, Tensor]
    error: Mapping[str, float]
    left: tuple[str, ...]


@torch.no_grad()
def extract(model: Any, base: Any, rank: int | None = None) -> Extracted:
    """Computes the adapter of `rank` that brings `base` closest to `model`.

    Per linear map, B A = U_r S_r V_r' of the difference D = U S V', the best approximation of its rank in the Frobenius
    norm (Eckart and Young 1936), with B = U_r sqrt(S_r), A = sqrt(S_r) V_r'. It is exact where D has no higher rank.

    rank: None for the least rank that is exact in every map, to the rounding of the weights.

    Raises:
        ConfigError: the models' parameters have different names or shapes, or no linear map differs.
    """
    base_parameters, parameters = dict(base.named_parameters()), dict(model.named_parameters())
    for name in sorted(base_parameters.keys() | parameters.keys()):
        found = [None if name not in owner else tuple(owner[name].shape) for owner in (parameters, base_parameters)]
        if found[0] != found[1]:
            raise ConfigError(
                f"{name} is {_shape(found[0])} in the model and {_shape(found[1])} in the base: the shapes must match"
            )
    moved = [name for name in parameters if not torch.equal(parameters[name], base_parameters[name])]
    maps = {f"{name}.weight" for name in linear_maps(base)}
    directions = {}
    for name in (name for name in moved if name in maps):
        difference = parameters[name].double() - base_parameters[name].double()
        u, s, vh = torch.linalg.svd(difference.T if turned(base) else difference, full_matrices=False)
        # A bound on the singular values that rounding of the weights may have added to the difference.
        noise = torch.finfo(parameters[name].dtype).eps * float(base_parameters[name].double().norm())
        directions[name.removesuffix(".weight")] = (u, s, vh, int((s > noise).sum()))
    if not directions:
        raise ConfigError("no linear map of the model differs from the base's: there is nothing to make an adapter of")
    kept = max(1, *(least for *_, least in directions.values())) if rank is None else rank
    factors, error = {}, {}
    for name, (u, s, vh, _) in directions.items():
        root = s[:kept].sqrt()
        wide = kept - len(root)  # a map may have fewer directions than the adapter's rank
        precision = torch.promote_types(parameters[f"{name}.weight"].dtype, torch.float32)
        factors[f"{name}.lora_A.weight"] = F.pad(root[:, None] * vh[:kept], (0, 0, 0, wide)).to(precision)
        factors[f"{name}.lora_B.weight"] = F.pad(u[:, :kept] * root, (0, wide)).to(precision)
        error[name] = float(s[kept:].norm() / s.norm())
    return Extracted(kept, factors, error, tuple(name for name in moved if name not in maps))


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))


def _targets(base: Any, moved: Collection[str]) -> list[str]:
    """Returns last parts of names where all maps of that name differ, whole names where only some do."""
    alike: dict[str, list[str]] = {}
    for name in linear_maps(base):
        alike.setdefault(name.rpartition(".")[2], []).append(name)
    all_differ = {last: all(name in moved for name in names) for last, names in alike.items()}
    some = [name for last, names in alike.items() if not all_differ[last] for name in names if name in moved]
    return sorted([*(last for last in alike if all_differ[last]), *some])


def save_extracted(found: Extracted, folder: Path, base: Any, name: str) -> None:
    """Saves the adapter in PEFT's format, with scale 1.

    name: the base's name in PEFT's file.
    """
    peft = require()
    config = peft.LoraConfig(
        r=found.rank,
        lora_alpha=found.rank,
        target_modules=_targets(base, found.error),
        task_type="CAUSAL_LM",
        base_model_name_or_path=name,
        fan_in_fan_out=turned(base),
    )
    write_adapter(folder, config, found.factors)
