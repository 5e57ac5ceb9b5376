"""Clip-Cov and KL-Cov: constraints on the few tokens that reduce entropy most."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import ClipCov, KLCov, Surrogate, SurrogateTerm, TokenMean, TokenRatio
from polopt.sampling import MixedGroups, Rollouts
from polopt.setting_types import Unbounded


@method(
    paper=Paper(
        title="The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models",
        authors="Cui, Ganqu and others",
        year=2025,
        arxiv="2505.22617",
    ),
    changes="DAPO without its clip, its +-1 reward and its length penalty: tokens whose advantage and log-probability "
    "go together most are held back.",
    room="objectives",
    tier="faithful",
)
def clip_cov_kl_cov(
    *,
    variant: Literal["clip", "kl"] = "clip",
    group: int = 8,
    share: float = 2e-4,
    least: Unbounded = 1.0,
    most: Unbounded = 5.0,
    clip: float = 1.0,
    percent: float = 0.2,
    kl: float = 1.0,
    refills: int = 9,
) -> Algorithm:
    """c_it = (A_it - mean A)(logp_it - mean logp), means over the tokens of the optimiser batch; token mean of

        clip:   PPO's terms with r in 1 -+ clip, and 0 for a `share` of all tokens (at least one), drawn among those
                that are not clipped and that have least < c < most
        kl:     -A r, plus kl |log r| on the `percent` % of all tokens with the largest c (at least one)

    with GRPO's advantages and DAPO's filter. `percent` is the release's k_percent: 0.2 for 7B, 0.02 for 32B models.
    `clip` 1 is that of the release's scripts. Bounds on c are in units of A: rescale them where A is no z-score. The
    release selects in each micro-batch, where a short one always loses a token; we in the whole optimiser batch.
    While the policy is the one that sampled, |log r| has no gradient: "kl" needs several steps a batch.
    """
    trust: SurrogateTerm = KLCov(percent=percent, coefficient=kl)
    if variant == "clip":
        trust = ClipCov(share=share, least=least, most=most, low=clip, high=clip)
    return Algorithm(
        sampling=Rollouts(group=group, select=[MixedGroups()], refills=refills),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(ratio=TokenRatio(), trust=trust, aggregate=TokenMean()),
    )
