"""DHPO: a clipped mixture of token-level and sequence-level ratios."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import check_shape
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives.parts import SurrogateTerm, Weight


@method(
    paper=Paper(
        title="Orchestrating Tokens and Sequences: Dynamic Hybrid Policy Optimization for RLVR",
        authors="Min, Zijun and others",
        year=2026,
        arxiv="2601.05607",
    ),
    changes="GRPO with a mixture of the token's ratio and GSPO's, each clipped in a band of its own before.",
    room="objectives",
    tier="reading",
)
def dhpo(
    *,
    group: int = 8,
    mix: float | Literal["entropy"] = 0.5,
    token: tuple[float, float] = (0.2, 0.2),
    sequence: tuple[float, float] = (3e-4, 4e-4),
) -> Algorithm:
    """With r_it the token's ratio, s_i GSPO's, and w the weight of the token's,

        rho_it = w r_it + (1 - w) s_i      rho'_it = w clip(r_it, token) + (1 - w) clip(s_i, sequence)
        L = mean_i (1/|y_i|) sum_t max(-A_i rho_it, -A_i rho'_it)

    with A_i as in GRPO. mix: w, a number (the paper's averaged mixing) or "entropy": the policy's entropy at the
    token, from 0 at the answer's smallest to 1 at its largest, without gradient (its entropy-guided mixing).
    token, sequence: the clip ranges of each ratio below and above 1.

    No code is published. That each ratio is clipped before they are mixed is the paper's; that the larger of clipped
    and free loss is taken, as in PPO, that entropies are scaled from the answer's smallest to its largest, and all
    numbers are our reading. w = 1 is GRPO without KL, w = 0 is GSPO.
    """
    weight = NormalisedEntropy() if isinstance(mix, str) else mix
    trust = HybridClip(token=token, sequence=sequence, weight=weight)
    return grpo(group=group, kl=0).but(**{"objective.trust": trust})


class NormalisedEntropy(Weight):
    """Entropy of the policy at each decision, scaled from 0 at the row's smallest to 1 at its largest.

    1/2 where all are equal; differences below `eps` nats count as equal.
    """

    eps: float = 1e-6

    policy_outputs = frozenset({"entropy"})

    def setup(self) -> None:
        if self.eps <= 0:
            raise ValueError(f"methods.dhpo.NormalisedEntropy: eps must be > 0, found {self.eps}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        entropy, mask = evaluation.entropy.detach(), experience.mask
        low = torch.where(mask, entropy, torch.inf).amin(1, keepdim=True)
        high = torch.where(mask, entropy, -torch.inf).amax(1, keepdim=True)
        share = (entropy - (low + high) / 2) / (high - low).clamp(min=self.eps) + 0.5
        return torch.where(mask, share, 0.5)


class HybridClip(SurrogateTerm):
    """max(-A rho, -A rho') of the mixtures rho = w r + (1 - w) s and rho' = w clip_token(r) + (1 - w) clip_sequence(s).

    r is the token's ratio, s the row's geometric mean of them, each clipped to [1 - low, 1 + high] by its own (low,
    high) before they are mixed. s_t has the value of s and the gradient of its own token, so that w may differ from
    token to token. weight: w in [0, 1], a number or a part that gives one for each decision; 1 is PPO's clip, 0 is
    GSPO's. The surrogate's ratio must be a token's. As in PPO, the mixture's loss is not bounded above: a token of
    negative advantage with a large ratio has an unbounded gradient.

    Source: DHPO, arXiv:2601.05607.
    """

    token: tuple[float, float] = (0.2, 0.2)
    sequence: tuple[float, float] = (3e-4, 4e-4)
    weight: float | Weight = 0.5

    zero_at_zero_advantage = True

    def setup(self) -> None:
        for name, (low, high) in (("token", self.token), ("sequence", self.sequence)):
            if not 0 <= low <= 1 or high < 0:
                raise ValueError(
                    f"methods.dhpo.HybridClip: {name} = (low, high) needs 0 <= low <= 1 and high >= 0, "
                    f"found {(low, high)}"
                )
        if not isinstance(self.weight, Weight) and not 0 <= self.weight <= 1:
            raise ValueError(f"methods.dhpo.HybridClip: weight must be in [0, 1], found {self.weight}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        token, sequence = log_ratio.exp(), self._sequence(log_ratio, experience).exp()
        weight = self._weight(log_ratio, experience, evaluation)
        free = weight * token + (1 - weight) * sequence
        clipped = weight * _bounded(token, self.token) + (1 - weight) * _bounded(sequence, self.sequence)
        free, clipped = -experience.advantage * free, -experience.advantage * clipped
        return torch.maximum(free, clipped), (clipped > free).to(log_ratio.dtype)

    def _sequence(self, log_ratio: Tensor, experience: Experience) -> Tensor:
        """Computes log s_t, [B, T]: the row's mean in value, the token's own ratio in gradient."""
        value = log_ratio.detach()
        mean = torch.where(experience.mask, value, 0).sum(1) / experience.lengths.clamp(min=1)
        return mean[:, None] + (log_ratio - value)

    def _weight(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> Tensor:
        if isinstance(self.weight, Weight):
            return check_shape(self.weight(experience, evaluation), log_ratio, self.weight).detach()
        return torch.full_like(log_ratio, self.weight)


def _bounded(ratio: Tensor, band: tuple[float, float]) -> Tensor:
    low, high = band
    return ratio.clamp(1 - low, 1 + high)
