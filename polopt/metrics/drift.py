"""Policy drift: metrics to monitor while a proxy reward is optimised.

Reward hacking shows here before the true reward falls: the policy moves away from the reference, its entropy falls, and
its answers change in length. Source: the monitors of PPO-max, arXiv:2307.04964.
"""

from __future__ import annotations

from torch import Tensor

from polopt import ops


def reference_kl(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """Mean of log p - log p_ref over a sampler's own decisions: KL(sampler || reference) in nats per decision.

    Unbiased, of any sign; 0 without decisions. All [B, T], of the sampler and the reference.
    """
    return ops.masked_mean(logp - ref_logp, mask)


def perplexity(logp: Tensor, mask: Tensor) -> Tensor:
    """exp of the mean -log p over a sampler's own decisions, [B, T]: 1 for a deterministic policy."""
    return (-ops.masked_mean(logp, mask)).exp()
