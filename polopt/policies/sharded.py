"""A policy whose weights are sharded over the processes of a process group (FSDP2)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from polopt.config import ConfigError
from polopt.policies.checkpointing import layers_of
from polopt.policies.language import LanguagePolicy


class ShardedPolicy(LanguagePolicy):
    """A language policy sharded by `torch.distributed.fsdp.fully_shard`.

    Each process holds its shard of every weight, of its gradient and of the optimiser's state; a layer's weights are
    gathered for its computation, and freed after it. Its gradients are the sums over the processes, as each passes a
    share of one batch whose loss is already divided by the whole. It uses transformers' own forward pass.

    replica: the policy that it was made from, with whole weights, for sampling; `renew` updates it.
    """

    replica: LanguagePolicy

    @classmethod
    def of(cls, policy: LanguagePolicy) -> ShardedPolicy:
        """Returns a sharded copy in the current process group.

        Raises:
            ConfigError: the model does not declare its layers.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        sharded: Any = copy.deepcopy(policy)
        sharded.__class__ = cls  # a subclass with one more method; FSDP2 replaces the class in the same way next
        layers = layers_of(sharded.model)
        if not layers:
            raise ConfigError(
                f"parallel = 'fsdp': {type(policy.model).__name__} has no layers that transformers lists by their "
                "kind; set parallel: ddp"
            )
        sharded._decoder = None  # a decoder would keep references to whole weights
        mesh = init_device_mesh(policy.device.type, (torch.distributed.get_world_size(),))
        for module in (*layers, sharded):
            # Reshard the outermost module too, which FSDP2 would leave whole: the parameters seen between two passes,
            # as by moving-average references, must be those that the optimiser updates.
            fully_shard(module, mesh=mesh, reshard_after_forward=True)
        for module in sharded.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # a scaled sum is not supported everywhere
        object.__setattr__(sharded, "replica", policy)  # no submodule, so that it is neither trained nor saved
        return sharded

    def frozen(self) -> ShardedPolicy:
        """Returns a frozen copy, sharded as well, from the updated replica; see `LanguagePolicy.frozen`."""
        self.renew()
        frozen_copy = ShardedPolicy.of(self.replica.frozen())
        object.__setattr__(frozen_copy, "replica", None)  # a reference does not sample
        return frozen_copy

    @torch.no_grad()
    def renew(self) -> None:
        """Copies the weights to the replica."""
        for (_, own), replicated in zip(self.named_parameters(), self.replica.parameters(), strict=True):
            replicated.copy_(whole(own))


def whole(tensor: Tensor) -> Tensor:
    """Returns a tensor with all its shards gathered, a collective call of all processes; a whole tensor is returned as
    it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def laid(tensor: Tensor, like: Tensor) -> Tensor:
    """Returns a whole tensor sharded as `like` is; unchanged where `like` is whole, or of another shape."""
    pieces: Any = like
    if not hasattr(like, "placements") or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device, like.dtype), pieces.device_mesh, pieces.placements)


def gradient_norm(tensors: list[Tensor]) -> Tensor:
    """Returns the norm of all tensors together, a scalar on their device."""
    return whole(nn.utils.get_total_norm(tensors))
