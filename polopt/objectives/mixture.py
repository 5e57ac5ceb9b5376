"""Ratios to a mixture: batches whose rows come from the policy, or from a probe that modified its rollout."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Ratio
from polopt.ops import LIMIT, NOTHING


def log_mixture(logp: Tensor, probe: Tensor, share: float) -> Tensor:
    """log((1 - share) exp(logp) + share exp(probe)), elementwise."""
    if share in (0, 1):
        return probe if share else logp
    return torch.logaddexp(logp + math.log1p(-share), probe + math.log(share))


class MixtureRatio(Ratio):
    """Ratio to the mixture that the batch was sampled from, a fraction a of it from a probe (`sampling.RetryRollouts`),
    with q the policy that sampled and m the probe:

        unit "token":  log p_t - log((1 - a) q_t + a m_t), decision by decision;
        unit "row":    sum_t log p_t - log((1 - a) prod_t q_t + a prod_t m_t), on every decision of the row.

    "row" is the balance heuristic: whatever the share, the mean over both kinds of rows of ratio times f is the
    expectation of f under p, if m is computed for both kinds. "token" is REX-RAG's: there m is 0 on rows without a
    probe, so that every decision has 1 / (1 - a) times its ratio, and their product that to the power of the row's
    length. share: None takes that of the batch's rows.

    Reads `extras["probe"]` [B] bool, and log q and log m of each decision, `extras["policy_logp"]` and
    `extras["probe_logp"]`. Within +-20. Averaged over a row's decisions, "row" has the gradient of the row's ratio.
    Source: E. Veach and L. Guibas, Optimally combining sampling techniques, 1995; REX-RAG, arXiv:2508.08149.
    """

    unit: Literal["token", "row"] = "token"
    share: float | None = None

    reads = frozenset({"extras.probe", "extras.policy_logp", "extras.probe_logp"})

    def setup(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"objectives.MixtureRatio: share must be in [0, 1], found {self.share}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        mask, whole = experience.mask, experience.full_batch.extras["probe"]
        share = whole.double().mean().item() if self.share is None else self.share
        said, probe = (torch.where(mask, experience.extras[name], 0) for name in ("policy_logp", "probe_logp"))
        if self.unit == "token":
            probe = torch.where(experience.extras["probe"][:, None], probe, NOTHING)
            return (evaluation.logp - log_mixture(said, probe, share)).clamp(-LIMIT, LIMIT)
        behaviour = log_mixture(said.sum(1), probe.sum(1), share)
        log_ratio = torch.where(mask, evaluation.logp, 0).sum(1) - behaviour
        return log_ratio.clamp(-LIMIT, LIMIT)[:, None].expand_as(mask)
