"""EMPG: advantages scaled by the policy's certainty in each turn, and a bonus for certain next turns."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import ModulatedAdvantage
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.base import TokenFeature, Unit
from polopt.method import Paper, method
from polopt.methods.grpo import grpo


@method(
    paper=Paper(
        title="Harnessing Uncertainty: Entropy-Modulated Policy Gradients for Long-Horizon LLM Agents",
        authors="Wang, Jiawei and Liu, Jiacai and Fu, Yuqian and others",
        year=2025,
        arxiv="2509.09265",
    ),
    changes="GRPO whose advantage each turn scales by how sure it was, plus a bonus for the clarity of the next turn.",
    room="credit",
    tier="reading",
)
def empg(
    *, group: int = 8, k: float = 1.0, k_next: float = 1.0, zeta: float = 0.1, clip: float = 0.2, kl: float = 0.0
) -> Algorithm:
    """For turn h of row i, with H_ih the mean entropy of its tokens and h_ih its place in [0, 1] between the lowest and
    the highest of the batch's turns,

        A_ih = A_i g_ih + zeta exp(-k_next h_{i, h+1}),    g_ih = exp(-k h_ih) / mean exp(-k h)

    with a mean over turns, minus the mean over the batch's turns, on every token of the turn. The last turn has no
    bonus. That a mean over turns is subtracted, and no standard deviation divides, could not be confirmed at the source
    and is our reading. A_i is GRPO's; the wrapper takes any credit. Turns are those of `turn`, so tool output never
    counts. The bonus does not depend on the outcome, so it can reward premature certainty: keep zeta small. k = zeta =
    0 leaves A_i minus its mean over turns, which is A_i where all rows have as many turns.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    next_certainty = TurnCertainty(sharpness=k_next, turn="next", weight=zeta)
    return base.but(
        credit=CentredAdvantage(
            credit=ModulatedAdvantage(credit=base.credit, times=TurnCertainty(sharpness=k), plus=next_certainty),
            unit="turn",
        )
    )


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
