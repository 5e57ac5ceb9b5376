"""How alike two sequences of tokens are: numbers in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

from polopt.sampling.diversity import edit_distance


def edit_ratio(a: Sequence[int], b: Sequence[int]) -> float:
    """`edit_distance` over the longer one's length: 0 for the same, 1 for nothing in common."""
    return edit_distance(a, b) / max(len(a), len(b), 1)


def common_subsequence(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest sequence that both hold in its order, with gaps."""
    row = [0] * (len(b) + 1)
    for x in a:
        corner = 0
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], corner + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def rouge_l(a: Sequence[int], b: Sequence[int]) -> float:
    """ROUGE-L's F1: twice the longest common subsequence over both lengths."""
    return 2 * common_subsequence(a, b) / max(len(a) + len(b), 1)


def suffix_match(a: Sequence[int], b: Sequence[int]) -> float:
    """The longest end of one that stands somewhere in the other, without gaps, over the longer one's length."""
    longest = max(_end_inside(a, b), _end_inside(b, a))
    return longest / max(len(a), len(b), 1)


def _end_inside(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest end of a that stands in b."""
    best, end = 0, len(a) - 1
    for j in range(len(b)):
        n = 0
        while n <= min(end, j) and a[end - n] == b[j - n]:
            n += 1
        best = max(best, n)
    return best
