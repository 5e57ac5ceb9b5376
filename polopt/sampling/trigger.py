"""A filter that leaves the decision to start reasoning untrained."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from polopt.experience import Experience
from polopt.sampling.parts import Select


class MaskThinkDecision(Select):
    """Drops the decisions that decide whether to reason: the row's first `count`, or, with `after`, the first `count`
    decisions after the first occurrence of these tokens.

    after: ids of the tokens that open the reasoning. Tokens that the policy did not decide are skipped. A row without
        these tokens keeps all decisions.
    count: decisions that are dropped.

    What the policy learned about that decision is preserved, since neither its policy loss nor its critic's loss
    counts. Source: selective loss masking in AdaCoT, arXiv:2505.11896.
    """

    after: Sequence[int] = ()
    count: int = 1

    def setup(self) -> None:
        if self.count < 1:
            raise ValueError(f"sampling.MaskThinkDecision: count must be >= 1, found {self.count}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras.tokens"} if self.after else ())

    def forward(self, experience: Experience) -> Experience:
        mask = experience.mask
        number = mask.cumsum(1) - 1  # of each decision in its row, from 0
        if not self.after:
            return experience.restrict(~(mask & (number < self.count)))
        # Decisions alone, shifted to the left.
        said = experience.extras["tokens"].gather(1, (~mask).int().argsort(dim=1, stable=True))
        opened = torch.arange(mask.shape[1], device=mask.device) + len(self.after) <= experience.lengths[:, None]
        for i, token in enumerate(self.after):
            opened &= said.roll(-i, 1) == token
        behind = opened.int().argmax(1, keepdim=True) + len(self.after)
        deciding = (number >= behind) & (number < behind + self.count) & opened.any(1, keepdim=True)
        return experience.restrict(~(mask & deciding))
