"""Measures of diversity among the answers to a task, as functions of their tokens."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

Tokens = Sequence[int]


def _grams(answer: Tokens, n: int) -> list[tuple[int, ...]]:
    return list(zip(*(answer[i:] for i in range(n)), strict=False))


def distinct(answers: Sequence[Tokens], n: int = 3) -> float:
    """Distinct-n: the number of different n-grams over the number of n-grams of all answers; 0 if there are none."""
    grams = [gram for answer in answers for gram in _grams(answer, n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def self_bleu(answers: Sequence[Tokens], orders: int = 3) -> float:
    """Mean BLEU of each answer against the others, with n-grams of 1 to `orders` of equal weight; 0 for fewer than two
    answers.

    A high value means similar answers. An order without a match counts as 0.1 matches, so that short answers have a
    score; an answer without any match scores 0. The brevity penalty uses the reference closest in length, of two the
    shorter.
    """
    if len(answers) < 2:
        return 0.0
    scores = [_bleu(answer, [*answers[:i], *answers[i + 1 :]], orders) for i, answer in enumerate(answers)]
    return sum(scores) / len(scores)


def _bleu(answer: Tokens, references: Sequence[Tokens], orders: int) -> float:
    logs = []
    for n in range(1, orders + 1):
        found, most = Counter(_grams(answer, n)), Counter[tuple[int, ...]]()
        for reference in references:
            most |= Counter(_grams(reference, n))
        matches = (found & most).total()
        if n == 1 and not matches:
            return 0.0
        logs.append(math.log((matches or 0.1) / max(1, found.total())))
    nearest = min((abs(len(r) - len(answer)), len(r)) for r in references)[1]
    brevity = 1.0 if len(answer) > nearest else math.exp(1 - nearest / len(answer))
    return brevity * math.exp(sum(logs) / orders)


def edit_distance(a: Tokens, b: Tokens) -> int:
    """Levenshtein distance: the fewest insertions, deletions and replacements of tokens that turn a into b."""
    row = list(range(len(b) + 1))
    for i, token in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (token != other))
    return row[-1]


def mean_edit_distance(answers: Sequence[Tokens]) -> float:
    """Mean edit distance over all pairs of answers; 0 for fewer than two answers."""
    pairs = list(itertools.combinations(answers, 2))
    return sum(edit_distance(a, b) for a, b in pairs) / max(1, len(pairs))
