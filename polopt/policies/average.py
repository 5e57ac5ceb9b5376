"""A moving average of a policy's weights, as a policy of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.policies.frozen import frozen_copy
from polopt.policies.sharded import laid


class Average:
    """An exponential moving average of a policy's weights: average <- average + rate (policy - average), once per
    batch.

    The average starts at the policy's current weights. Rate 1 is the followed policy itself and rate 0 a frozen copy.
    Where weights are narrower than float32 the average is stored separately in float32: in bfloat16, steps below 1/256
    of a weight would be lost.

    copied: makes the copy that holds the average.
    policy: the policy with the averaged weights, without gradient.
    """

    def __init__(self, followed: Any, rate: float, copied: Callable[[Any], Any] = frozen_copy) -> None:
        self.followed, self.rate = followed, rate
        learns = {name for name, p in followed.named_parameters() if p.requires_grad}
        self.policy = followed if rate == 1 else copied(followed).requires_grad_(False)
        self._means = {} if rate == 1 else {n: _wide(p) for n, p in self.policy.named_parameters() if n in learns}

    @torch.no_grad()
    def follow(self) -> None:
        """Updates the average after the followed policy was trained on one more batch."""
        if self.rate in (0, 1):
            return
        current = dict(self.followed.named_parameters())
        for name, mean in self._means.items():
            mean.lerp_(current[name].detach().to(mean.dtype), self.rate)
        self._write()

    def state(self) -> dict[str, Tensor]:
        """Returns the average's tensors by name; none where it is the policy itself."""
        return {name: mean.detach() for name, mean in self._means.items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Loads tensors returned by `state`."""
        for name, mean in self._means.items():
            mean.copy_(laid(tensors[name], mean))
        self._write()

    def _write(self) -> None:
        own = dict(self.policy.named_parameters())
        for name, mean in self._means.items():
            if mean.dtype != own[name].dtype:
                own[name].copy_(mean)


def _wide(parameter: Tensor) -> Tensor:
    narrow = torch.finfo(parameter.dtype).bits < 32
    return parameter.detach().float() if narrow else parameter.detach()
