"""Is a proxy reward still a proxy? Correlation with the truth, and what it guarantees away from where it was measured.

A proxy that correlates with the truth where a reference policy goes may not where it is optimised: that is reward
hacking as arXiv:2403.03185 defines it.
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
    """before, after: correlation of proxy and truth where the reference goes, and where the policy does. proxy_gain,
    true_gain: policy minus reference, in standard deviations under the reference. hacked: the proxy did correlate, and
    the policy that was to optimise it is worse in truth than the reference."""

    before: float
    after: float
    proxy_gain: float
    true_gain: float
    hacked: bool


def proxy_hacking(
    proxy: Float[Tensor, "N"], true: Float[Tensor, "N"], base_proxy: Float[Tensor, "M"], base_true: Float[Tensor, "M"]
) -> ProxyHacking:
    """From the proxy and the truth of N draws of the policy and M of the reference."""
    gain = {}
    for name, x, base in (("proxy", proxy, base_proxy), ("true", true, base_true)):
        spread = base.std(correction=0).clamp(min=torch.finfo(base.dtype).tiny)
        gain[name] = float((x.mean() - base.mean()) / spread)
    before, after = float(correlation(base_proxy, base_true)), float(correlation(proxy, true))
    return ProxyHacking(before, after, gain["proxy"], gain["true"], before > 0 and gain["true"] < 0)


def least_true_gain(
    proxy_gain: Float[Tensor, "*N"], chi2: Float[Tensor, "*N"], correlated: float, tight: bool = True
) -> Float[Tensor, "*N"]:
    """What a policy gains in truth at least, in standard deviations under the reference, if it gains `proxy_gain` x of
    such units in the proxy, proxy and truth have correlation r under the reference, and chi2 is between the two
    occupancies:

        (x - sqrt((1 - r^2) chi2)) / r                      the paper's; r > 0
        r x - sqrt(1 - r^2) sqrt(chi2 - x^2)                tight: some truth attains it

    Both follow from where the truth can lie on a sphere: gains are products with the density ratio less 1, whose norm
    is sqrt(chi2). By that, chi2 >= x^2.
    """
    r, rest = correlated, 1 - correlated**2
    if tight:
        return r * proxy_gain - (rest * (chi2 - proxy_gain.square()).clamp(min=0)).sqrt()
    return (proxy_gain - (rest * chi2).sqrt()) / r
