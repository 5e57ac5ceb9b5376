"""Validity of a proxy reward: correlation with the true reward, and its guarantees under distribution shift.

A proxy that correlates with the truth under a reference policy may not under the policy that optimises it: that is
reward hacking as arXiv:2403.03185 defines it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


def correlation(
    x: Float[Tensor, "*N"], y: Float[Tensor, "*N"], weight: Float[Tensor, "*N"] | None = None
) -> Float[Tensor, ""]:
    """Pearson's correlation under weights that are >= 0 (None: all alike); 0 where one of them does not vary."""
    w = torch.ones_like(x) if weight is None else weight.to(x)
    w = w / w.sum()
    x, y = x - (w * x).sum(), y - (w * y).sum()
    scale = ((w * x * x).sum() * (w * y * y).sum()).sqrt()
    return torch.where(scale > 0, (w * x * y).sum() / scale.clamp(min=torch.finfo(x.dtype).tiny), 0)


class ProxyHacking(NamedTuple):
    """Test for reward hacking. before, after: correlation of proxy and truth under the reference, and under the policy.
    proxy_gain, true_gain: policy minus reference, in standard deviations under the reference. hacked: the proxy
    correlates under the reference, and the policy's true reward is below the reference's."""

    before: float
    after: float
    proxy_gain: float
    true_gain: float
    hacked: bool


def proxy_hacking(
    proxy: Float[Tensor, "N"], true: Float[Tensor, "N"], base_proxy: Float[Tensor, "M"], base_true: Float[Tensor, "M"]
) -> ProxyHacking:
    """Tests for reward hacking, from the proxy and the truth of N samples of the policy and M of the reference."""
    gain = {}
    for name, x, base in (("proxy", proxy, base_proxy), ("true", true, base_true)):
        spread = base.std(correction=0).clamp(min=torch.finfo(base.dtype).tiny)
        gain[name] = float((x.mean() - base.mean()) / spread)
    before, after = float(correlation(base_proxy, base_true)), float(correlation(proxy, true))
    return ProxyHacking(before, after, gain["proxy"], gain["true"], before > 0 and gain["true"] < 0)


def least_true_gain(
    proxy_gain: Float[Tensor, "*N"], chi2: Float[Tensor, "*N"], correlated: float, tight: bool = True
) -> Float[Tensor, "*N"]:
    """Lower bound on a policy's gain in true reward, in standard deviations under the reference, given its gain
    `proxy_gain` x in the proxy in such units, the correlation r of proxy and truth under the reference, and the
    chi-square divergence chi2 between the two occupancies:

        (x - sqrt((1 - r^2) chi2)) / r                      the paper's; r > 0
        r x - sqrt(1 - r^2) sqrt(chi2 - x^2)                tight: some truth attains it

    Both follow from the possible positions of the truth on a sphere: gains are products with the density ratio less 1,
    whose norm is sqrt(chi2). Hence chi2 >= x^2.
    """
    r, rest = correlated, 1 - correlated**2
    if tight:
        return r * proxy_gain - (rest * (chi2 - proxy_gain.square()).clamp(min=0)).sqrt()
    return (proxy_gain - (rest * chi2).sqrt()) / r
