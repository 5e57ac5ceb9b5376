"""Tasks that share features of very different scales."""

from __future__ import annotations

import torch

from polopt.lab.policy import LinearPolicy, TabularPolicy
from polopt.lab.progress import uneven
from polopt.lab.tree import TokenTree


def stretched(seed: int) -> tuple[TokenTree, TabularPolicy]:
    """Returns eight tasks of `uneven` whose 16 shared features are multiplied by 10^u, u uniform on [-1, 1]."""
    tree, policy = uneven(seed, tasks=8, features=16)
    assert isinstance(policy, LinearPolicy)
    draw = torch.Generator().manual_seed(seed)
    scale = 10 ** (2 * torch.rand(policy.features.shape[1], generator=draw).double() - 1)
    return tree, LinearPolicy(tree, policy.features * scale, start=policy.start)
