"""Similarity measures of two token sequences, in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

from polopt.sampling.diversity import edit_distance
from polopt.sequences import common_subsequence


def edit_ratio(a: Sequence[int], b: Sequence[int]) -> float:
    """Returns `edit_distance` over the longer length: 0 for equal sequences, 1 for sequences without a common token."""
    return edit_distance(a, b) / max(len(a), len(b), 1)


def rouge_l(a: Sequence[int], b: Sequence[int]) -> float:
    """ROUGE-L's F1: twice the length of the longest common subsequence over the sum of both lengths."""
    return 2 * common_subsequence(a, b) / max(len(a) + len(b), 1)


def suffix_match(a: Sequence[int], b: Sequence[int]) -> float:
    """Length of the longest suffix of either sequence that occurs in the other, without gaps, over the longer
    length."""
    longest = max(_end_inside(a, b), _end_inside(b, a))
    return longest / max(len(a), len(b), 1)


def _end_inside(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest suffix of a that occurs in b."""
    best, end = 0, len(a) - 1
    for j in range(len(b)):
        n = 0
        while n <= min(end, j) and a[end - n] == b[j - n]:
            n += 1
        best = max(best, n)
    return best
