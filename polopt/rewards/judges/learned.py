"""A judge with weights of its own."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Literal

import torch

from polopt.backends.scorer import ScorerShape, TextScorer, load_scorer
from polopt.rewards.judges.parts import Judge, Judgement


class LearnedJudge(Judge):
    """The score of a frozen `TextScorer`, whose weights are not part of the algorithm's checkpoints.

    The scorer stays on the CPU and computes in float64, so that the other rows of the batch change a row's score by no
    more than rounding.

    weights: the folder written by `save_scorer`. None initialises an untrained scorer from `seed`, for trying out a
        recipe, with a warning.
    compares: whether the scorer reads a reference.
    link: "none" for the raw score, "sigmoid" where the score is the logit of a probability.
    seed: seed of the untrained scorer's weights.
    rows: the most texts in one forward pass.

    Raises:
        ValueError: the folder holds no scorer, or its scorer's `compares` differs.
    """

    weights: str | None = None
    compares: bool = False  # type: ignore[misc]
    link: Literal["none", "sigmoid"] = "none"
    seed: int = 0
    rows: int = 256

    def setup(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rewards.LearnedJudge: rows must be >= 1, found {self.rows}")
        new = TextScorer(ScorerShape(compares=self.compares), self.seed)
        self.judges_with(new if self.weights is None else load_scorer(self.weights))
        self._has_weights = self.weights is not None

    def judges_with(self, scorer: TextScorer) -> LearnedJudge:
        """Uses a copy of this scorer, which need not be stored in a folder; returns self. The scorer is no setting and
        does not appear in YAML."""
        if scorer.shape.compares != self.compares:
            raise ValueError(
                f"rewards.LearnedJudge: the scorer{f' of {self.weights}' if self.weights else ''} was made with "
                f"compares={scorer.shape.compares}, found compares={self.compares}"
            )
        # Inside a list the scorer is no sub-module, so that its weights stay out of checkpoints.
        self._scorer = [copy.deepcopy(scorer).cpu().double().requires_grad_(False).eval()]
        self._has_weights = True
        return self

    @property
    def scorer(self) -> TextScorer:
        return self._scorer[0]

    @torch.no_grad()
    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        if not self._has_weights:
            warnings.warn("rewards.LearnedJudge has no weights, so its scores mean nothing; set weights", stacklevel=2)
        found = [torch.zeros(0, dtype=torch.float64)]
        for at in range(0, len(answers), self.rows):
            some = slice(at, at + self.rows)
            found.append(self.scorer(prompts[some], answers[some], references[some] if self.compares else None))  # type: ignore[index]
        scores = torch.cat(found)
        return Judgement(scores.sigmoid() if self.link == "sigmoid" else scores, [{} for _ in answers])
