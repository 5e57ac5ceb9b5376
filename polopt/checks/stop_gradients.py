"""Stopped gradients: finite differences of a loss in which every detached tensor is held constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

T = TypeVar("T")
DETACH = (Tensor.detach, Tensor.detach_, torch.detach, Tensor.data.__get__)  # type: ignore[attr-defined]


class StopGradientMismatch(RuntimeError):
    """The second run stopped other gradients than the first, so that no tensor can be held constant."""


class StopGradients(TorchFunctionMode):
    """Records the tensors that a computation detaches, or computes without gradient, in order.

    `held` repeats a computation with those same tensors in those same places, so that its output varies only through
    the tensors that the gradient flows through.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[Tensor] = []
        self._replay: int | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not isinstance(found, Tensor) or not (func in DETACH or not torch.is_grad_enabled()):
            return found
        if self._replay is None:
            self.stopped.append(found.clone())
            return found
        if self._replay >= len(self.stopped) or self.stopped[self._replay].shape != found.shape:
            raise StopGradientMismatch
        value = self.stopped[self._replay].clone()
        self._replay += 1
        return value

    def recorded(self, run: Callable[[], T]) -> T:
        """Runs a computation and records its stopped tensors."""
        self.stopped, self._replay = [], None
        with self:
            return run()

    def replayed(self, run: Callable[[], T]) -> T:
        """Runs a computation with the stopped tensors of the recorded run.

        Raises:
            StopGradientMismatch: this run stops something else.
        """
        self._replay = 0
        with self:
            found = run()
        if self._replay != len(self.stopped):
            raise StopGradientMismatch
        return found
