"""Frozen copies of a policy."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def frozen_copy(module: M) -> M:
    """Returns a copy without gradient; parameters that already have no gradient never change, and are shared."""
    shared = {id(p): p for p in module.parameters() if not p.requires_grad}
    return copy.deepcopy(module, shared).requires_grad_(False)
