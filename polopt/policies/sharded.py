"""A policy whose weights lie in pieces, one in each process of a team (FSDP2)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from polopt.config import ConfigError
from polopt.policies.checkpointing import layers_of
from polopt.policies.language import LanguagePolicy


class ShardedPolicy(LanguagePolicy):
    """A language policy by `torch.distributed.fsdp.fully_shard`: each process holds its piece of every weight, of its
    gradient and of what the optimiser remembers; a layer's weights are put together where it computes, and let go.

    Its gradients are the sums over the processes, as each passes a share of one batch whose loss is already divided by
    the whole. It reads by transformers' own forward pass. replica: the policy that it was made from, with whole
    weights, for sampling; `renew` brings it up to date.
    """

    replica: LanguagePolicy

    @classmethod
    def of(cls, policy: LanguagePolicy) -> ShardedPolicy:
        """A sharded copy in the process group that there is.

        Raises:
            ConfigError: the model does not say what its layers are.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        made: Any = copy.deepcopy(policy)
        made.__class__ = cls  # a copy that knows one method more; FSDP2 does the same to it next
        layers = layers_of(made.model)
        if not layers:
            raise ConfigError(
                f"parallel = 'fsdp': {type(policy.model).__name__} has no layers that transformers knows by their "
                "kind; set parallel: ddp"
            )
        made._decoder = None  # it would hold on to whole weights
        mesh = init_device_mesh(policy.device.type, (torch.distributed.get_world_size(),))
        for module in (*layers, made):
            # The outermost too, which FSDP2 would leave whole: whoever asks for parameters between two passes, as
            # references that follow do, must find those that the optimiser moves.
            fully_shard(module, mesh=mesh, reshard_after_forward=True)
        for module in made.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)  # a scaled sum is not known everywhere
        object.__setattr__(made, "replica", policy)  # no submodule: it is nobody's to train or to save
        return made

    def frozen(self) -> ShardedPolicy:
        """As `LanguagePolicy.frozen`: sharded as well, with a replica of its own to begin with."""
        self.renew()
        made = ShardedPolicy.of(self.replica.frozen())
        object.__setattr__(made, "replica", None)  # a reference does not sample
        return made

    @torch.no_grad()
    def renew(self) -> None:
        """Copy the weights to the replica."""
        for (_, own), mine in zip(self.named_parameters(), self.replica.parameters(), strict=True):
            mine.copy_(whole(own))


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its pieces; every process must ask. One that is whole is returned as it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def laid(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor in pieces as `like` lies; as it is where `like` is whole, or of another shape."""
    pieces: Any = like
    if not hasattr(like, "placements") or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device, like.dtype), pieces.device_mesh, pieces.placements)


def gradient_norm(tensors: list[Tensor]) -> float:
    """The norm of all of them together."""
    return float(whole(nn.utils.get_total_norm(tensors)))
