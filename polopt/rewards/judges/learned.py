"""A judge with weights of its own."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Literal

import torch

from polopt.rewards.judges.parts import Judge, Judgement
from polopt.rewards.judges.scorer import ScorerShape, TextScorer, load_scorer


class LearnedJudge(Judge):
    """What a `TextScorer` says, frozen: its weights belong to no checkpoint of the algorithm. It stays on the CPU, as
    texts do, and computes in float64, so that a row's neighbours change its score by no more than rounding.

    weights: the folder that `save_scorer` made. None takes a new one with the weights of `seed`, which knows nothing:
    for trying out a recipe, with a warning. compares: whether it reads a reference. link: "none" for the raw score,
    "sigmoid" where it is the logit of a chance. rows: at most so many texts at a time.

    Raises:
        ValueError: the folder holds no scorer, or one that compares where this does not.
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
        self._knows = self.weights is not None

    def judges_with(self, scorer: TextScorer) -> LearnedJudge:
        """Let a copy of this scorer speak, which need not be in a folder. It is no setting and stands in no YAML.
        Returns self."""
        if scorer.shape.compares != self.compares:
            raise ValueError(
                f"rewards.LearnedJudge: the scorer{f' of {self.weights}' if self.weights else ''} was made with "
                f"compares={scorer.shape.compares}, found compares={self.compares}"
            )
        # In a list it is no sub-module, so that its weights stay out of checkpoints.
        self._scorer = [copy.deepcopy(scorer).cpu().double().requires_grad_(False).eval()]
        self._knows = True
        return self

    @property
    def scorer(self) -> TextScorer:
        return self._scorer[0]

    @torch.no_grad()
    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        if not self._knows:
            warnings.warn("rewards.LearnedJudge has no weights, so its scores mean nothing; set weights", stacklevel=2)
        found = [torch.zeros(0, dtype=torch.float64)]
        for at in range(0, len(answers), self.rows):
            some = slice(at, at + self.rows)
            found.append(self.scorer(prompts[some], answers[some], references[some] if self.compares else None))  # type: ignore[index]
        scores = torch.cat(found)
        return Judgement(scores.sigmoid() if self.link == "sigmoid" else scores, [{} for _ in answers])
