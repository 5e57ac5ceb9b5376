"""A buffer for the experience that a part keeps between batches: tensors that checkpoints store and devices move."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polopt.experience import Experience
from polopt.fields import SHAPES
from polopt.support import ByEntropy, Density, Support

EXTRA = "extras/"


def packed(experience: Experience) -> dict[str, Tensor]:
    """Returns copies of all tensor fields and tensor extras by name, with support and horizon as numbers.

    Lists are left out; `RestoringSource.restore_rows` restores them.
    """
    support, rule = experience.support, experience.support.by_entropy
    numbers: list[float] = [support.temperature, support.top_k, support.top_p]
    numbers += [] if rule is None else list(dataclasses.astuple(rule))
    fields = {name: value for name in SHAPES if (value := getattr(experience, name)) is not None}
    extras = {EXTRA + name: value for name, value in experience.extras.items() if isinstance(value, Tensor)}
    return {
        **{name: value.detach().clone() for name, value in {**fields, **extras}.items()},
        "support": torch.tensor(numbers, dtype=torch.float64),
        "density": torch.tensor(isinstance(support, Density)),
        "horizon": torch.tensor(-1 if experience.horizon is None else experience.horizon),
    }


def unpacked(tensors: Mapping[str, Tensor]) -> Experience:
    """Returns the experience that `packed` stored."""
    temperature, top_k, top_p, *rule = tensors["support"].tolist()
    by_entropy = ByEntropy(rule[0], rule[1], rule[2], rule[3], released=bool(rule[4])) if rule else None
    horizon = int(tensors["horizon"])
    fields: dict[str, Any] = {name: tensors[name] for name in SHAPES if name in tensors}
    kind = Density if tensors["density"] else Support
    return Experience(
        support=kind(temperature=temperature, top_k=int(top_k), top_p=top_p, by_entropy=by_entropy),
        horizon=None if horizon < 0 else horizon,
        extras={name.removeprefix(EXTRA): value for name, value in tensors.items() if name.startswith(EXTRA)},
        **fields,
    )


class VariableBuffers(nn.Module):
    """Buffers of any number and shape, which are what a loaded state has; `count` is how many things they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return int(self.get_buffer("count"))

    def _store(self, tensors: Mapping[str, Tensor]) -> None:
        """Replaces the buffers other than `count` by these."""
        device = self.get_buffer("count").device
        for name in [name for name, _ in self.named_buffers() if name != "count"]:
            delattr(self, name)
        for name, value in tensors.items():
            self.register_buffer(name, value.to(device))

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *args: Any, **kwargs: Any) -> None:
        kept = {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        # Buffers of the right shapes, into which the tensors are then copied.
        self._store({name: torch.empty_like(value) for name, value in kept.items() if name != "count"})
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class TensorStore(VariableBuffers):
    """Tensors by name, as buffers of a module."""

    def tensors(self) -> dict[str, Tensor]:
        """Returns the stored tensors."""
        return {name: value for name, value in self.named_buffers() if name != "count"}

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Replaces the stored tensors by copies of these."""
        self._store({name: value.detach().clone() for name, value in tensors.items()})
        self.get_buffer("count").fill_(len(tensors))


class WeightBank(VariableBuffers):
    """A list of a policy's weights, each one vector [P], as buffers of a module."""

    def append(self, weights: Tensor) -> None:
        """Adds weights at the end."""
        self.register_buffer(str(len(self)), weights.detach().clone().to(self.get_buffer("count").device))
        self.get_buffer("count").add_(1)

    def __getitem__(self, place: int) -> Tensor:
        return self.get_buffer(str(range(len(self))[place]))

    def __setitem__(self, place: int, weights: Tensor) -> None:
        self[place].copy_(weights)


class BatchBuffer(VariableBuffers):
    """A store of batches of any number and shape, as buffers of a module. `batches()` keeps their order."""

    def batches(self) -> list[Experience]:
        """Returns the stored batches, without their lists."""
        found: list[dict[str, Tensor]] = [{} for _ in range(len(self))]
        for key, value in self.named_buffers():
            place, _, name = key.partition("/")
            if name:
                found[int(place)][name] = value
        return [unpacked(tensors) for tensors in found]

    def keep(self, batches: Sequence[Experience]) -> None:
        """Replaces the stored batches by copies of these."""
        self._store({f"{i}/{name}": value for i, batch in enumerate(batches) for name, value in packed(batch).items()})
        self.get_buffer("count").fill_(len(batches))
