"""A trust region on a mixture of the token's and the sequence's ratio."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import check_shape
from polopt.objectives.parts import SurrogateTerm, Weight


class NormalisedEntropy(Weight):
    """Entropy of the policy at each decision, scaled from 0 at the row's smallest to 1 at its largest.

    1/2 where all are equal; differences below `eps` nats count as equal.
    """

    eps: float = 1e-6

    policy_outputs = frozenset({"entropy"})

    def setup(self) -> None:
        if self.eps <= 0:
            raise ValueError(f"objectives.NormalisedEntropy: eps must be > 0, found {self.eps}")

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
                    f"objectives.HybridClip: {name} = (low, high) needs 0 <= low <= 1 and high >= 0, "
                    f"found {(low, high)}"
                )
        if not isinstance(self.weight, Weight) and not 0 <= self.weight <= 1:
            raise ValueError(f"objectives.HybridClip: weight must be in [0, 1], found {self.weight}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        token, sequence = log_ratio.exp(), self._sequence(log_ratio, experience).exp()
        weight = self._weight(log_ratio, experience, evaluation)
        free = weight * token + (1 - weight) * sequence
        held = weight * _bounded(token, self.token) + (1 - weight) * _bounded(sequence, self.sequence)
        free, held = -experience.advantage * free, -experience.advantage * held
        return torch.maximum(free, held), (held > free).to(log_ratio.dtype)

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
