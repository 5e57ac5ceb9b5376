"""A value head on the model that TRL trains, for methods that need one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

NAME = "polopt_critic"


class Critic:
    """A linear value head, zero at the start, that shares the model's trunk, as that of polopt's own policies.

    It is a module of the model, so that its optimiser, its processes and its gradient clipping are the model's, and is
    left out of the saved policy. What the trunk says is overheard while TRL asks for log-probabilities.
    """

    def __init__(self, model: Any) -> None:
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        width = inner.config.get_text_config().hidden_size
        wide = torch.float64 if inner.dtype == torch.float64 else torch.float32
        self.head = nn.Linear(width, 1, device=inner.device, dtype=wide)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        setattr(model, NAME, self.head)
        model._keys_to_ignore_on_save = {*(getattr(model, "_keys_to_ignore_on_save", None) or ())} | {
            f"{NAME}.{key}" for key in self.head.state_dict()
        }
        self._heard: list[Tensor] | None = None
        inner.base_model.register_forward_hook(self._hear)

    def _hear(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if self._heard is not None:
            self._heard.append(output.last_hidden_state)

    def listen(self) -> None:
        """To what the trunk says from now on, until `values` is asked."""
        self._heard = []

    def values(self, decided: Tensor) -> tuple[Tensor, Tensor]:
        """[b, C] before each of the last C columns read, where `decided` [b, C]; [b] after a row's last decision."""
        heard, self._heard = torch.cat(self._heard or []), None
        start = heard.shape[1] - decided.shape[1]
        value = self.head(heard[:, start - 1 :].to(self.head.weight.dtype)).squeeze(-1)
        columns = torch.arange(1, decided.shape[1] + 1, device=decided.device)
        end = torch.where(decided, columns, 0).amax(1, keepdim=True)
        return value[:, :-1], value.gather(1, end).squeeze(1)
