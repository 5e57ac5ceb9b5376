"""A reward for thinking only where the task needs it."""

from __future__ import annotations

from torch import Tensor

from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.features.masks import SignalAbove
from polopt.rewards.parts import Reward


class ThinkOrNot(Reward):
    """Reward -miss for omitting needed thinking, -over for unneeded thinking, and -form for a malformed answer; 0
    otherwise.

    With miss = over = a the first two terms are -a [thought != need]. Source: AdaCoT, arXiv:2505.11896.

    thought: the answers that began with thinking.
    need: the tasks that need thinking, by the world, a labeller or a rule.
    malformed: the malformed answers, None for no such penalty.
    """

    thought: RowMask = SignalAbove(name="working")
    need: RowMask = SignalAbove(name="needed")
    malformed: RowMask | None = None
    miss: float = 0.2
    over: float = 0.2
    form: float = 1.0

    reads = frozenset({"outcome"})

    def setup(self) -> None:
        if min(self.miss, self.over, self.form) < 0:
            raise ValueError(
                f"rewards.ThinkOrNot: miss, over and form must be >= 0, found {self.miss}, {self.over} and {self.form}"
            )

    def forward(self, experience: Experience) -> Tensor:
        thought, need = self.thought(experience), self.need(experience)
        dtype = experience.outcome.dtype
        cost = self.miss * (need & ~thought).to(dtype) + self.over * (thought & ~need).to(dtype)
        if self.malformed is not None:
            cost = cost + self.form * self.malformed(experience).to(dtype)
        return -cost
