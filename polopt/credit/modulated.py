"""Credit modulated by the policy's confidence: in a turn, in an answer, or over the answers to a prompt."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import RowFeature, TokenFeature, Unit
from polopt.features.rows import Confidence


class ModulatedAdvantage(Credit):
    """A'_it = times_it A_it + plus_it: another credit, scaled and shifted.

    times None is 1, plus None is 0. limit: |plus_it| is clipped to at most limit |times_it A_it|, so that at 1 it
    flips no advantage's sign and leaves an advantage of 0 unchanged.
    """

    credit: Credit
    times: TokenFeature | None = None
    plus: TokenFeature | None = None
    limit: float | None = None

    def setup(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ValueError(f"credit.ModulatedAdvantage: limit must be >= 0, found {self.limit}")

    def forward(self, experience: Experience) -> Tensor:
        advantage = self.credit(experience)
        if self.times is not None:
            advantage = advantage * self._read(self.times, experience, advantage)
        if self.plus is not None:
            bonus = self._read(self.plus, experience, advantage)
            if self.limit is not None:
                most = self.limit * advantage.abs()
                bonus = bonus.clamp(-most, most)
            advantage = advantage + bonus
        return advantage

    def _read(self, feature: TokenFeature, experience: Experience, advantage: Tensor) -> Tensor:
        return torch.where(experience.mask, feature(experience), 0).to(advantage.dtype)


class CentredAdvantage(Credit):
    """A minus its mean over the batch. unit "token" counts each token the same, "turn" each turn (`turn`), at
    its decisions' mean."""

    credit: Credit
    unit: Literal["token", "turn"] = "token"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"turn"} if self.unit == "turn" else ())

    def forward(self, experience: Experience) -> Tensor:
        advantage, mask = self.credit(experience), experience.mask
        if not mask.any():
            return advantage
        units = advantage[mask] if self.unit == "token" else ops.turn_mean(advantage, experience.turn, mask)
        # Measured from the first, so that a batch of equal advantages gives exactly 0.
        mean = units[0] + (units - units[0]).mean()
        return torch.where(mask, advantage - mean, 0)


class UncertaintyDecay(TokenFeature):
    """f(strength x_i) on every decision of row i, for a measure x >= 0: 1 at 0, and falling.

    shape "linear" is max(0, 1 - z), "exponential" exp(-z), "focal" max(0, 1 - z)^power. Beyond z = 1 "linear" and
    "focal" are 0 instead of changing the sign.
    """

    by: RowFeature
    strength: float = 1.0
    shape: Literal["linear", "exponential", "focal"] = "linear"
    power: float = 2.0

    reads_batch = True

    def setup(self) -> None:
        if self.strength < 0 or self.power <= 0:
            raise ValueError(
                f"credit.UncertaintyDecay: need strength >= 0 and power > 0, found {self.strength} and {self.power}"
            )

    def forward(self, experience: Experience) -> Tensor:
        z = self.strength * self.by(experience)
        left = (-z).exp() if self.shape == "exponential" else (1 - z).clamp(min=0)
        return (left**self.power if self.shape == "focal" else left)[:, None].expand_as(experience.mask)


class TurnCertainty(TokenFeature):
    """Certainty of the policy in a turn, weight exp(-sharpness h), with h in [0, 1] the turn's mean entropy between the
    lowest and the highest of the batch's turns:

        h = (H - min H) / (max H - min H + 1e-8).

    turn: the certainty that a decision gets, that of its "own" turn or of the row's "next" one, 0 where none follows.
    weight None divides by the mean over the batch's turns, so that the signal has mean 1.
    """

    sharpness: float = 1.0
    turn: Literal["own", "next"] = "own"
    weight: float | None = None

    reads = frozenset({"entropy", "turn"})
    unit: ClassVar[Unit] = "turn"
    reads_batch = True

    def forward(self, experience: Experience) -> Tensor:
        mask = experience.mask
        number, row, _ = ops.turns(experience.turn, mask)
        entropy = ops.turn_mean(experience.entropy, experience.turn, mask)
        if not len(entropy):
            return torch.zeros_like(mask, dtype=entropy.dtype)
        low, high = entropy.aminmax()
        clarity = (-self.sharpness * (entropy - low) / (high - low + 1e-8)).exp()
        clarity = clarity / clarity.mean() if self.weight is None else clarity * self.weight
        if self.turn == "next":
            follows = torch.cat([row[1:] == row[:-1], row.new_zeros(1, dtype=torch.bool)])
            clarity = torch.where(follows, clarity.roll(-1), 0)
        return clarity[number]


class RelativeSurprisal(TokenFeature):
    """weight (c_q - c_i) on every decision of row i: negative for confident answers, positive for unlikely ones; 0 in a
    group in which no row's outcome reaches `solved`.

    of: the answer's confidence c_i. than: c_q, "prompt" for exp(`extras["prompt_logp"]`), one over the prompt's
    perplexity, or "group" for the mean of the group's c_i, with which the signal sums to 0 over the group.
    """

    weight: float = 0.3
    of: RowFeature = Confidence()
    than: Literal["prompt", "group"] = "prompt"
    solved: float = 1.0

    reads_batch = True

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"outcome", "group"} | ({"extras.prompt_logp"} if self.than == "prompt" else set()))

    def forward(self, experience: Experience) -> Tensor:
        sure, group = self.of(experience), experience.group
        expected = experience.extras["prompt_logp"].exp() if self.than == "prompt" else ops.group_mean(sure, group)
        hit = ops.group_sum((experience.outcome >= self.solved).to(sure.dtype), group) > 0
        gain = torch.where(hit, self.weight * (expected.to(sure.dtype) - sure), 0)
        return gain[:, None].expand_as(experience.mask)
