"""Where a policy is drifting: what to watch while a reward that is only a proxy is being optimised.

A reward that is being gamed shows here before the truth falls: the policy leaves the reference, grows certain, and its
answers change their length. Source: the monitors of PPO-max, arXiv:2307.04964.
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
    """exp of the mean -log p over a sampler's own decisions, [B, T]: 1 where it never hesitates."""
    return (-ops.masked_mean(logp, mask)).exp()
