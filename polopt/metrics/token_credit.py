"""Answers with the log-probabilities of their tokens under two policies, and the credit that these imply.

Source: From r to Q*: Your Language Model is Secretly a Q-Function, arXiv:2404.12358.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]

COLUMNS = ("answer", "step", "logp", "ref_logp", "token", "wrong")


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredTokens:
    """N answers of at most T tokens.

    mask: [N, T] which places hold a token of the answer.
    logp, ref_logp: [N, T] log-probabilities of the tokens under the trained policy and under its reference; 0 off the
        mask.
    wrong: [N, T] tokens that are known to be wrong, None if nothing is known.
    tokens: the texts of each answer's tokens, in order; None without them.

    Raises:
        MetricDataError: arrays of different shapes, an answer without tokens, a log-probability that is above 0 or not
            finite.
    """

    mask: Any
    logp: Any
    ref_logp: Any
    wrong: Any = None
    tokens: Sequence[Sequence[str]] | None = None

    def __post_init__(self) -> None:
        mask = np.asarray(self.mask, bool)
        if mask.ndim != 2 or not len(mask) or not mask.any(1).all():
            raise MetricDataError(
                f"ScoredTokens: mask must be [N, T] with a token in each row, found {list(mask.shape)} and "
                f"{int((~mask.any(-1)).sum())} rows without one"
            )
        object.__setattr__(self, "mask", mask)
        for name in ("logp", "ref_logp", "wrong"):
            x = getattr(self, name)
            if x is None:
                continue
            x = np.asarray(x, bool if name == "wrong" else float)
            if x.shape != mask.shape:
                raise MetricDataError(f"ScoredTokens: {name} must be {list(mask.shape)}, found {list(x.shape)}")
            x = np.where(mask, x, 0)
            if name != "wrong" and not (np.isfinite(x) & (x <= 0)).all():
                found = x[~(np.isfinite(x) & (x <= 0))][0]
                raise MetricDataError(f"ScoredTokens: {name} must be finite log-probabilities <= 0, found {found:g}")
            object.__setattr__(self, name, x.astype(bool) if name == "wrong" else x)
        if self.tokens is not None and [len(row) for row in self.tokens] != mask.sum(1).tolist():
            raise MetricDataError("ScoredTokens: tokens must have one text for each token of each answer")

    def __len__(self) -> int:
        return len(self.mask)

    def __getitem__(self, rows: Sequence[int] | NDArray[np.int64]) -> ScoredTokens:
        tokens = None if self.tokens is None else [self.tokens[int(i)] for i in rows]
        wrong = None if self.wrong is None else self.wrong[rows]
        return ScoredTokens(self.mask[rows], self.logp[rows], self.ref_logp[rows], wrong, tokens)

    @classmethod
    def of_experience(
        cls, experience: Experience, evaluation: Evaluation, wrong: torch.Tensor | None = None
    ) -> ScoredTokens:
        """Returns the answers of a batch; the reference's log-probabilities are the batch's.

        evaluation: of the trained policy. wrong: [B, T].
        """
        experience.require({"ref_logp"}, by="ScoredTokens")
        mask = experience.mask
        logp, ref_logp = (
            torch.where(mask, x.detach(), 0).double().cpu() for x in (evaluation.logp, experience.ref_logp)
        )
        return cls(mask.cpu(), logp, ref_logp, None if wrong is None else wrong.cpu())

    def credit(self, beta: float) -> Numbers:
        """Returns beta log pi(y_t)/ref(y_t), [N, T]; 0 off the mask."""
        found: Numbers = beta * (self.logp - self.ref_logp)
        return found


@dataclasses.dataclass(frozen=True)
class TokenTrace:
    """The credit of one answer's tokens, in order, and the value of the answer after each, relative to its start.

    value: the sum of the credit so far; where only the whole answer is rewarded, V*(s_t) - V*(s_0) before the last
        token, and the reward less V*(s_0) with it.
    """

    tokens: tuple[str, ...]
    credit: tuple[float, ...]
    value: tuple[float, ...]

    def __str__(self) -> str:
        width = max(map(len, self.tokens))
        rows = zip(self.tokens, self.credit, self.value, strict=True)
        return "\n".join(f"{token:<{width}}  {credit:+.3f}  {value:+.3f}" for token, credit, value in rows)

    def record(self) -> dict[str, list[Any]]:
        """Returns the trace as lists, by name."""
        return {name: list(getattr(self, name)) for name in ("tokens", "credit", "value")}


@dataclasses.dataclass(frozen=True)
class TokenRow:
    """One token of a file. answer: as JSON text."""

    answer: str
    step: int
    logp: float
    ref_logp: float
    token: str | None = None
    wrong: bool | None = None


def token_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> TokenRow:
    """Checks one token of a file: `answer` names its answer, `step` is its place there from 0, `logp` and `ref_logp`
    are its log-probabilities under the trained policy and the reference. Optional: `token`, its text, and `wrong`, 1
    for a token that is known to be wrong and 0 for another.

    Raises:
        MetricDataError: a column that is missing, or an invalid value.
    """
    names = column_names(COLUMNS, columns)
    if row.get(names["answer"]) in (None, ""):
        raise MetricDataError(f"column {names['answer']!r} is missing or empty")
    numbers = {name: number_in(row, names[name], required=name != "wrong") for name in ("step", *COLUMNS[2:4], "wrong")}
    step, wrong = numbers["step"] or 0.0, numbers["wrong"]
    if step != int(step) or step < 0:
        raise MetricDataError(f"{names['step']} must be a whole number >= 0, found {step:g}")
    if wrong not in (None, 0.0, 1.0):
        raise MetricDataError(f"{names['wrong']} must be 0 or 1, found {wrong:g}")
    for name in COLUMNS[2:4]:
        if (numbers[name] or 0.0) > 0:
            raise MetricDataError(f"{names[name]} must be a log-probability <= 0, found {numbers[name]:g}")
    token = row.get(names["token"])
    return TokenRow(
        answer=json.dumps(row[names["answer"]], sort_keys=True),
        step=int(step),
        logp=numbers["logp"] or 0.0,
        ref_logp=numbers["ref_logp"] or 0.0,
        token=None if token is None else str(token),
        wrong=None if wrong is None else bool(wrong),
    )


def scored_tokens(rows: Iterable[tuple[int, TokenRow]]) -> ScoredTokens:
    """Assembles the answers of tokens in any order.

    Raises:
        MetricDataError: no rows, a step that is missing or there twice, a column that only some rows have.
    """
    answers: dict[str, dict[int, TokenRow]] = {}
    for number, row in rows:
        if row.step in answers.setdefault(row.answer, {}):
            raise MetricDataError(f"row {number}: step {row.step} of answer {row.answer} is there twice")
        answers[row.answer][row.step] = row
    if not answers:
        raise MetricDataError("there are no tokens; give one a row")
    ordered = [[found[step] for step in sorted(found)] for _, found in sorted(answers.items())]
    for found in ordered:
        if found[-1].step != len(found) - 1:
            raise MetricDataError(f"answer {found[0].answer}: steps must be 0 to {len(found) - 1} without a gap")
    every = [row for found in ordered for row in found]
    for name in ("token", "wrong"):
        if len({getattr(row, name) is None for row in every}) > 1:
            raise MetricDataError(f"{name} is empty in some rows; give it in every row or in none")
    width = max(map(len, ordered))
    mask = np.arange(width) < np.array([len(found) for found in ordered])[:, None]

    def column(name: str) -> Numbers:
        values = np.zeros(mask.shape)
        values[mask] = [getattr(row, name) for row in every]
        return values

    return ScoredTokens(
        mask,
        column("logp"),
        column("ref_logp"),
        None if every[0].wrong is None else column("wrong"),
        None if every[0].token is None else [[row.token or "" for row in found] for found in ordered],
    )


TOKEN_ROWS = RowFormat("tokens with the log-probabilities of two policies", COLUMNS, token_row, scored_tokens)
