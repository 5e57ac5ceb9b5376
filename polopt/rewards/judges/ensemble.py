"""Several judges as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from polopt.part_names import name_of
from polopt.rewards.judges.parts import Judge, Judgement


class EnsembleJudge(Judge):
    """One score from those of several judges, which a policy deceives less easily than one of them.

        mean       score = mean_j s_j - caution * mean_j (s_j - mean_k s_k)^2
        minimum    score = min_j s_j

    The judges' scores must be of one scale, as those of reward models that were fitted on the same preferences from
    different seeds. The details hold each judge's score and their standard deviation.

    Source: Coste et al. 2023 (arXiv:2310.02743), uncertainty-weighted and worst-case optimisation.

    judges: the judges; each that compares receives the references.
    combine: "mean" or "minimum".
    caution: weight of the judges' disagreement, >= 0; 0 for the plain mean. It is used by "mean" alone.

    Raises:
        ValueError: no judges, or a negative caution.
    """

    judges: list[Judge]
    combine: Literal["mean", "minimum"] = "mean"
    caution: float = 0.0

    def setup(self) -> None:
        if not len(self.judges) or self.caution < 0:
            raise ValueError(
                f"{name_of(type(self))}: it needs one judge or more and caution >= 0, found {len(self.judges)} and "
                f"{self.caution}"
            )

    @property
    def compares(self) -> bool:  # type: ignore[override]
        """Tests whether one of the judges reads a reference."""
        return any(judge.compares for judge in self.judges)

    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        scores = torch.stack(
            [judge(prompts, answers, references if judge.compares else None).scores.double() for judge in self.judges]
        )
        spread = scores.var(0, correction=0)
        combined = scores.min(0).values if self.combine == "minimum" else scores.mean(0) - self.caution * spread
        details = [
            {"scores": each, "disagreement": apart}
            for each, apart in zip(scores.T.tolist(), spread.sqrt().tolist(), strict=True)
        ]
        return Judgement(combined, details)
