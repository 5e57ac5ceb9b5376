"""Clip-Cov and KL-Cov: constraints on the few tokens that reduce entropy most."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import Surrogate, SurrogateTerm, TokenMean, TokenRatio
from polopt.objectives.parts import Ratio, full_batch_of
from polopt.objectives.surrogate_terms import pessimistic
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

        clip:   PPO's terms with r in 1 -+ clip, and 0 for the `share` of all tokens (at least one) drawn among those
                that are not clipped and that have least < c < most
        kl:     L = -A r, and -A r + kl |log r| on the `percent` per cent of all tokens with largest c (at least one)

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


def covariances(
    advantage: Float[Tensor, "B T"], logp: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """c = (A - mean A)(logp - mean logp), means over the decisions; their mean is the covariance of the two."""
    return (advantage - ops.masked_mean(advantage, mask)) * (logp - ops.masked_mean(logp, mask))


class ClipCov(SurrogateTerm):
    """PPO's clip, and no gradient at all for a few decisions of high covariance. Source: Clip-Cov, arXiv:2505.22617.

    Of the whole batch's n decisions, max(1, floor(share n)) are drawn at random among those that are not clipped
    and whose c of `covariances`, under the current policy, lies in (least, most); fewer if there are fewer, none
    if share is 0. c is in units of the advantage. low, high: the clip's. ratio: the ratio that is clipped.

    The draw depends on `seed`, on the number of batches learned from, and on advantages and behaviour
    log-probabilities, but not on the split of the batch; in further epochs the same decisions are drawn first.
    """

    share: float = 2e-4
    least: Unbounded = 1.0
    most: Unbounded = 5.0
    low: float = 1.0
    high: float = 1.0
    ratio: Ratio = TokenRatio()
    seed: int = 0

    reads = frozenset({"rollout_logp"})
    full_batch_outputs = frozenset({"logp"})
    zero_at_zero_advantage = True

    def setup(self) -> None:
        if not 0 <= self.share <= 1 or not 0 <= self.low <= 1 or self.high < 0:
            raise ValueError(
                "methods.clip_cov_kl_cov.ClipCov: need share and low in [0, 1] and high >= 0, found "
                f"{self.share}, {self.low}, "
                f"{self.high}"
            )
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def on_step(self) -> None:
        self.get_buffer("batches").add_(1)

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        terms, clipped = self._clip(log_ratio, experience.advantage)
        stopped = experience.local_rows(self.stopped(experience))
        return torch.where(stopped, 0, terms), clipped.maximum(stopped.to(clipped))

    def stopped(self, experience: Experience) -> Tensor:
        """Draws the decisions without gradient: [B, T] bool of the whole batch."""
        full_batch, evaluation = full_batch_of(experience)
        _, clipped = self._clip(self.ratio(full_batch, evaluation), full_batch.advantage)
        c = covariances(full_batch.advantage, evaluation.logp, full_batch.mask)
        free = (full_batch.mask & (c > self.least) & (c < self.most) & (clipped == 0))[full_batch.mask]
        count = max(1, int(self.share * len(free))) if self.share else 0
        stopped = torch.zeros_like(free)
        stopped[torch.where(free, self._lots(full_batch), len(free)).argsort()[: min(count, int(free.sum()))]] = True
        return torch.zeros_like(full_batch.mask).masked_scatter(full_batch.mask, stopped)

    def _clip(self, log_ratio: Tensor, advantage: Tensor) -> tuple[Tensor, Tensor]:
        return pessimistic(log_ratio.exp(), advantage, 1 - self.low, 1 + self.high)

    def _lots(self, full_batch: Experience) -> Tensor:
        """Draws a random order [n] of the decisions. Each gets a number by its rank in fields that are fixed before
        learning, so that neither the layout of the batch nor rounding in the evaluation affects the draw."""
        order = full_batch.rollout_logp[full_batch.mask].argsort(stable=True)
        order = order[full_batch.advantage[full_batch.mask][order].argsort(stable=True)]
        # PyTorch's CPU generator uses the lower 32 bits alone.
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + int(self.get_buffer("batches"))) % 2**32)
        drawn = torch.randperm(len(order), generator=generator).to(order.device)
        return torch.empty_like(drawn).index_copy(0, order, drawn)


class KLCov(SurrogateTerm):
    """The plain surrogate -A r, and coefficient |log r| on the decisions of highest covariance.

    Those are the max(1, floor(n percent / 100)) of the whole batch's n decisions with the largest c of `covariances`,
    under the current policy; none if percent is 0. At r = 1, as for the policy that sampled the batch, |log r| has no
    gradient, so that the penalty acts from the second step on. Source: KL-Cov, arXiv:2505.22617.
    """

    percent: float = 0.2
    coefficient: float = 1.0

    full_batch_outputs = frozenset({"logp"})

    def setup(self) -> None:
        if not 0 <= self.percent <= 100:
            raise ValueError(f"methods.clip_cov_kl_cov.KLCov: percent must be in [0, 100], found {self.percent}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        penalised = experience.local_rows(self.penalised(experience))
        penalty = torch.where(penalised, self.coefficient * log_ratio.abs(), 0)
        return penalty - experience.advantage * log_ratio.exp(), penalised.to(log_ratio.dtype)

    def penalised(self, experience: Experience) -> Tensor:
        """Selects the decisions that are penalised: [B, T] bool of the whole batch."""
        full_batch, evaluation = full_batch_of(experience)
        c = covariances(full_batch.advantage, evaluation.logp, full_batch.mask)[full_batch.mask]
        count = max(1, int(len(c) * self.percent / 100)) if self.percent else 0
        penalised = torch.zeros_like(c, dtype=torch.bool)
        penalised[c.argsort(descending=True, stable=True)[:count]] = True
        return torch.zeros_like(full_batch.mask).masked_scatter(full_batch.mask, penalised)
