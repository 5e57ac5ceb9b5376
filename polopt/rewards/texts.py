"""Texts that a part writes during training, stored in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class TextBuffers(nn.Module):
    """A list of texts as buffers of UTF-8 bytes, so that a checkpoint of tensors holds them; loading accepts any
    length."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        super().__init__()
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return len(self._buffers)

    def all(self) -> list[str]:
        """Returns the texts, in the order in which they were added."""
        return [bytes(self.get_buffer(str(i)).tolist()).decode() for i in range(len(self))]

    def add(self, text: str) -> None:
        """Appends a text."""
        self.register_buffer(str(len(self)), torch.tensor(list(text.encode()), dtype=torch.uint8))

    def _load_from_state_dict(self, state_dict: Mapping[str, Tensor], prefix: str, *args: Any, **kwargs: Any) -> None:
        kept = {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        self._buffers.clear()
        for name in sorted(kept, key=int):
            self.register_buffer(name, torch.empty_like(kept[name]))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
