"""Dialogues of two attempts as supervised data: right first answers to confirm, wrong ones to correct."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polopt.errors import UserError

CHECK = "Check your answer. If it is right, give it again; if it is wrong, correct it."


class RevisionDataError(UserError, ValueError):
    """No dialogues can be made of the rows; the message names the row, what was found and the fix."""


def revision_dialogues(
    rows: Iterable[Mapping[str, Any]],
    *,
    confidence: bool = True,
    critique: bool = True,
    plain: bool = False,
    check: str = CHECK,
) -> list[dict[str, Any]]:
    """Makes dialogues from questions, right answers and wrong ones: the rows of a data set for supervised learning.

    rows: `question`, `solution`, a right answer with or without its working, `wrong`, a list of wrong ones, as sampled
    from the model that is trained, and, if known, `answer`, what a verifier compares with.
    confidence: a dialogue whose first answer is the solution, which is given again.
    critique: one for each wrong answer, after which the solution is given.
    plain: the question and the solution, without a second attempt.
    check: the user's second message.

    Returns rows of `messages`, and `answer` where it is known; the last message alone is imitated, so that nobody
    learns the wrong answers.

    Raises:
        RevisionDataError: a row without a question or a solution, wrong answers that are no list of texts or hold the
            solution, or nothing to make.

    Source: Yang et al. 2024, "Confidence v.s. Critique", arXiv 2412.19513, CLT (confidence), CST (critique) and CCT,
    both. The wording of the second message is ours.
    """
    if not (confidence or critique or plain):
        raise RevisionDataError("revision_dialogues: choose one of confidence, critique and plain")
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        question, solution = (_text(row, name, number) for name in ("question", "solution"))
        known = {"answer": row["answer"]} if row.get("answer") not in (None, "") else {}
        firsts = [solution] * confidence + _wrong(row, solution, number) * critique
        if plain:
            found.append({"messages": _messages(question, solution), **known})
        found += [{"messages": _messages(question, first, check, solution), **known} for first in firsts]
    if not found:
        raise RevisionDataError("revision_dialogues: there are no wrong answers to correct; give `wrong`, a list")
    return found


def _messages(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def _text(row: Mapping[str, Any], name: str, number: int) -> str:
    text = row.get(name)
    if not isinstance(text, str) or not text.strip():
        raise RevisionDataError(f"row {number}: field {name!r} must be text, found {text!r:.60}")
    return text


def _wrong(row: Mapping[str, Any], solution: str, number: int) -> list[str]:
    texts = row.get("wrong") or []
    if not isinstance(texts, Sequence) or isinstance(texts, str) or any(not isinstance(t, str) or not t for t in texts):
        raise RevisionDataError(f"row {number}: field 'wrong' must be a list of texts, found {texts!r:.60}")
    if any(text.strip() == solution.strip() for text in texts):
        raise RevisionDataError(f"row {number}: field 'wrong' holds the solution {solution!r:.60}; drop it")
    return list(texts)
