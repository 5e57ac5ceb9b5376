"""The latent vectors of policies that have one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.networks import LATENT_OUTPUTS, HistoryActor, PrivilegedValue


def latent_of(policy: Any, state: Tensor, extras: Mapping[str, Any], needs: frozenset[str]) -> dict[str, Tensor]:
    """Returns the law of an actor's latent vector, and the features that are asked for.

    Raises:
        ValueError: the actor has no latent vector.
    """
    if not isinstance(policy.actor, HistoryActor):
        raise ValueError(f"NetworkPolicy: {sorted(needs & LATENT_OUTPUTS)} are of trunk = networks.HistoryEncoder")
    latent = policy.actor.encoded(policy.normalised(state))
    found = {"latent_mean": latent.mean, "latent_log_std": latent.log_std, "predicted_features": latent.predicted}
    if "extras.privileged_features" in needs:
        assert isinstance(policy.critic, PrivilegedValue)
        with torch.no_grad():
            found["privileged_features"] = policy.critic.encoder(extras["privileged"].to(state))
    return found
