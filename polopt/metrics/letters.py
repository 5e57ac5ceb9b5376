"""Compact letter displays: which of several methods were separated, and which were not."""

from __future__ import annotations

import string
from collections.abc import Iterable


def compact_letters(count: int, separated: Iterable[tuple[int, int]]) -> list[str]:
    """Returns the letters of each of `count` methods, so that two of them share a letter if, and only if, their pair is
    not separated.

    Every letter is a set of methods, no two of them separated. It begins with one set of all; a separated pair splits
    each set that holds both into two, one without the first and one without the second, and a set inside another one is
    dropped. A letter all of whose pairs share other letters is left out. Method 0 has an "a": methods are best given in
    the order of their results.

    separated: pairs of indices, each in either order.

    Raises:
        ValueError: a pair of one method, or of an index outside 0 .. count - 1.

    Source: Piepho 2004, "An Algorithm for a Letter-Based Representation of All-Pairwise Comparisons", Journal of
    Computational and Graphical Statistics 13: insert and absorb. Its sweeping is replaced by the leaving out.
    """
    sets = [frozenset(range(count))]
    for i, j in separated:
        if i == j or not {i, j} <= set(range(count)):
            raise ValueError(f"compact_letters: pairs must be of two different indices below {count}, found {(i, j)}")
        split = [part for s in sets for part in ((s - {i}, s - {j}) if {i, j} <= s else (s,))]
        sets = [s for s in dict.fromkeys(split) if not any(s < other for other in split)]
    sets.sort(key=sorted)
    for s in sorted(sets, key=len):
        others = [other for other in sets if other is not s]
        if all(any({i, j} <= other for other in others) for i in s for j in s):
            sets = others
    return ["".join(_symbol(k) for k, s in enumerate(sets) if i in s) for i in range(count)]


def _symbol(k: int) -> str:
    """Returns the k-th letter: a to z, A to Z, and the accented ones that follow them in Unicode."""
    plain = string.ascii_letters
    return plain[k] if k < len(plain) else chr(0x100 + k - len(plain))
