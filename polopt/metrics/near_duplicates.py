"""Texts that are nearly alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Shingles = NDArray[np.uint64]

# Odd multiplier of the rolling hash of a run of characters.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def near_duplicates(texts: Sequence[str], similarity: float = 0.8, run: int = 5) -> list[tuple[int, int]]:
    """Returns all pairs of texts (i, j), i < j, whose sets of runs of characters have at least this Jaccard similarity.

        J(a, b) = |a and b| / |a or b|,   a text's set being all its runs of `run` characters, or itself if shorter

    No pair is missed: two such texts share one of their (1 - similarity) n + 1 rarest runs, so only texts that do are
    compared, after those of unlike lengths are left out.

    similarity: in (0, 1]. run: characters, >= 1.

    Raises:
        ValueError: a setting outside its range.

    Source: Bayardo, Ma and Srikant 2007, "Scaling Up All Pairs Similarity Search".
    """
    if not 0 < similarity <= 1 or run < 1:
        raise ValueError(f"near_duplicates: needs similarity in (0, 1] and run >= 1, found {similarity} and {run}")
    sets = [_shingles(text, run) for text in texts]
    if not sets:
        return []
    known, counts = np.unique(np.concatenate(sets), return_counts=True)
    index: dict[int, list[int]] = defaultdict(list)
    found = []
    for i in sorted(range(len(sets)), key=lambda i: sets[i].size):
        places = np.searchsorted(known, sets[i])
        rarest_first = sets[i][np.lexsort((places, counts[places]))]
        least = math.ceil(similarity * sets[i].size - 1e-9)
        prefix = rarest_first[: sets[i].size - least + 1].tolist()
        for j in dict.fromkeys(other for shingle in prefix for other in index[shingle]):
            if sets[j].size >= least and _jaccard(sets[i], sets[j]) >= similarity - 1e-12:
                found.append((min(i, j), max(i, j)))
        for shingle in prefix:
            index[shingle].append(i)
    return sorted(found)


def _shingles(text: str, run: int) -> Shingles:
    """Returns the hashes of the text's runs, sorted and different."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64) + np.uint64(1)
    runs = np.lib.stride_tricks.sliding_window_view(codes, min(run, max(codes.size, 1))) if codes.size else codes[None]
    found = np.zeros(len(runs), dtype=np.uint64)
    for column in runs.T:
        found = (found ^ column) * _MULTIPLIER
        found ^= found >> np.uint64(29)
    return np.unique(found)


def _jaccard(a: Shingles, b: Shingles) -> float:
    both = np.intersect1d(a, b, assume_unique=True).size
    return both / (a.size + b.size - both)
