"""A moving average of a policy's weights, as a policy of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Average:
    """average <- average + rate (policy - average) at each `follow`, from the policy's weights of now on.

    policy: with the averaged weights, without gradient. Rate 1 is the followed policy itself and rate 0 a frozen copy.
    Where weights are narrower than float32 the average is kept in float32 beside them: in bfloat16, steps below 1/256
    of a weight would be lost.
    """

    def __init__(self, followed: Any, rate: float) -> None:
        self.followed, self.rate = followed, rate
        learns = {name for name, p in followed.named_parameters() if p.requires_grad}
        self.policy = followed if rate == 1 else frozen_copy(followed)
        self._means = {} if rate == 1 else {n: _wide(p) for n, p in self.policy.named_parameters() if n in learns}

    @torch.no_grad()
    def follow(self) -> None:
        """The followed policy has learned from one more batch."""
        if self.rate in (0, 1):
            return
        now = dict(self.followed.named_parameters())
        for name, mean in self._means.items():
            mean.lerp_(now[name].detach().to(mean.dtype), self.rate)
        self._write()

    def state(self) -> dict[str, Tensor]:
        """The average's tensors by name; none where it is the policy itself."""
        return {name: mean.detach() for name, mean in self._means.items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of `state`."""
        for name, mean in self._means.items():
            mean.copy_(tensors[name])
        self._write()

    def _write(self) -> None:
        own = dict(self.policy.named_parameters())
        for name, mean in self._means.items():
            if mean.data_ptr() != own[name].data_ptr():
                own[name].copy_(mean)


def frozen_copy(module: M) -> M:
    """A copy without gradient. What has no gradient already never changes, and is shared."""
    shared = {id(p): p for p in module.parameters() if not p.requires_grad}
    return copy.deepcopy(module, shared).requires_grad_(False)


def _wide(parameter: Tensor) -> Tensor:
    narrow = torch.finfo(parameter.dtype).bits < 32
    return parameter.detach().float() if narrow else parameter.detach()
