"""A judge with weights of its own."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from polopt.backends.preference_models import mean_and_std
from polopt.backends.scorer import ScorerShape, TextScorer
from polopt.backends.scorer_files import (
    PreferenceFit,
    check_scorer,
    is_text_scorer,
    load_preference,
    load_scorer,
)
from polopt.backends.text_classifier import TextClassifier
from polopt.rewards.judges.parts import Judge, Judgement


class LearnedJudge(Judge):
    """The score of a frozen model that reads texts, whose weights are not part of the algorithm's checkpoints: a
    published reward model, which is a sequence classifier of transformers, or a `TextScorer`.

    A folder that `polopt fit` wrote says how its scores are read: they are divided by its temperature; of a Gaussian
    reward the score is the mean, and the details of a row hold its standard deviation, `std`; a preference model
    compares, and its score is the probability that the answer is preferred to the reference.

    A row's score depends on the other rows of the batch by no more than the rounding of `dtype`.

    weights: the folder or the hub name of a sequence classifier, or the folder written by `save_scorer`. None
        initialises an untrained scorer from `seed`, for trying out a recipe, with a warning.
    compares: whether the scorer reads a reference. A folder with a scorer that does needs no True.
    link: "none" for the raw score, "sigmoid" where the score is the logit of a probability; "auto" takes the sigmoid of
        a preference model's score, and no other's.
    label: name or number of the classifier's label whose logit is the score; None for a classifier with one.
    device: device on which the scores are computed.
    dtype: precision of the weights and of the scores.
    seed: seed of the untrained scorer's weights.
    rows: the most texts in one forward pass.

    Raises:
        ValueError: the folder holds neither, the scorer's `compares` differs, the label is none of the classifier's,
            the classifier lacks its head, or, when called, a text is longer than the classifier's context.
    """

    weights: str | None = None
    compares: bool = False  # type: ignore[misc]
    link: Literal["auto", "none", "sigmoid"] = "auto"
    label: str | int | None = None
    device: str = "cpu"
    dtype: Literal["float64", "float32", "bfloat16"] = "float64"
    seed: int = 0
    rows: int = 256

    def setup(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rewards.LearnedJudge: rows must be >= 1, found {self.rows}")
        self._has_weights = self.weights is not None
        # Inside a list the scorer is no sub-module, so that its weights stay out of checkpoints.
        self._scorer = list[TextScorer | TextClassifier]()
        self._preference = PreferenceFit()
        if self.weights is None:
            self._take(TextScorer(ScorerShape(compares=self.compares), self.seed))
            return
        self._preference = load_preference(self.weights) or PreferenceFit()
        if is_text_scorer(self.weights):
            self._take(load_scorer(self.weights, self.label))
        else:  # its weights are read when it is first asked, as they may be large
            self._check_compares(self._preference.model.compares)
            check_scorer(self.weights, self.label)

    def judges_with(self, scorer: TextScorer | TextClassifier, preference: PreferenceFit | None = None) -> LearnedJudge:
        """Uses a copy of this scorer, which need not be stored in a folder; returns self. The scorer is no setting and
        does not appear in YAML.

        preference: how its scores are read.
        """
        self._preference = preference or PreferenceFit()
        self._take(copy.deepcopy(scorer))
        self._has_weights = True
        return self

    def _take(self, scorer: TextScorer | TextClassifier) -> None:
        self._check_compares(scorer.compares)
        dtype: torch.dtype = getattr(torch, self.dtype)
        self._scorer = [scorer.to(self.device, dtype).requires_grad_(False).eval()]

    def _check_compares(self, compares: bool) -> None:
        if self.compares and not compares:
            raise ValueError(
                f"rewards.LearnedJudge: the scorer{f' of {self.weights}' if self.weights else ''} was made with "
                "compares=False, found compares=True; it reads one answer alone, so leave compares out"
            )
        self.compares = compares

    @property
    def scorer(self) -> TextScorer | TextClassifier:
        if not self._scorer:
            assert self.weights is not None
            self._take(load_scorer(self.weights, self.label, dtype=getattr(torch, self.dtype)))
        return self._scorer[0]

    @torch.no_grad()
    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Judgement:
        if not self._has_weights:
            warnings.warn("rewards.LearnedJudge has no weights, so its scores mean nothing; set weights", stacklevel=2)
        found = [self._scores(torch.zeros(0, self.scorer.outputs, dtype=getattr(torch, self.dtype)).squeeze(-1))]
        for at in range(0, len(answers), self.rows):
            some = slice(at, at + self.rows)
            given = references[some] if references is not None and self.compares else None
            found.append(self._scores(self.scorer(prompts[some], answers[some], given).cpu()))
        scores = torch.cat([score for score, _ in found])
        return Judgement(scores, [details for _, rows in found for details in rows])

    def _scores(self, outputs: Tensor) -> tuple[Tensor, list[dict[str, Any]]]:
        """Returns scores [B] and the details of each row, from the scorer's outputs."""
        temperature = self._preference.temperature
        if outputs.ndim == 2:
            mean, std = mean_and_std(outputs)
            return mean, [{"std": value} for value in (temperature * std).tolist()]
        scores = outputs / temperature
        sigmoid = self.link == "sigmoid" or (self.link == "auto" and self._preference.model.compares)
        return scores.sigmoid() if sigmoid else scores, [{} for _ in range(len(scores))]
