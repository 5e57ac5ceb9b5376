"""Letters of separated pairs, against every set of letters that there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polopt.metrics import Comparison, MethodRuns, compact_letters


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_set_of_separated_pairs(count: int) -> None:
    """Two share a letter exactly if they are not separated, and no fewer letters would do."""
    pairs = list(itertools.combinations(range(count), 2))
    groups = [set(g) for size in range(1, count + 1) for g in itertools.combinations(range(count), size)]
    for size in range(len(pairs) + 1):
        for apart in itertools.combinations(pairs, size):
            found = compact_letters(count, apart)
            assert all(bool(set(found[i]) & set(found[j])) == ((i, j) not in apart) for i, j in pairs)
            used = set("".join(found))
            allowed = [g for g in groups if not any(set(pair) <= g for pair in apart)]
            together = [set(pair) for pair in pairs if pair not in apart]
            least = next(
                k
                for k in range(1, count + 1)
                if any(
                    set().union(*chosen) == set(range(count)) and all(any(p <= g for g in chosen) for p in together)
                    for chosen in itertools.combinations(allowed, k)
                )
            )
            assert len(used) == least
            assert "a" in found[0]


def test_the_order_of_the_pairs_changes_nothing_of_the_sets() -> None:
    draw = np.random.default_rng(0)
    for _ in range(50):
        apart = [p for p in itertools.combinations(range(6), 2) if draw.random() < 0.4]
        turned = [(j, i) for i, j in draw.permutation(apart).tolist()] if apart else []
        assert compact_letters(6, apart) == compact_letters(6, turned)


def test_more_letters_than_the_alphabet() -> None:
    """30 methods of pairs that are apart: each set of the 2^5 that hold one of each pair has its own letter."""
    found = compact_letters(10, [(2 * i, 2 * i + 1) for i in range(5)])
    assert all(text.isalpha() for text in found)
    everyone = [(i, j) for i in range(60) for j in range(i)]
    assert len(set(compact_letters(60, everyone))) == 60
    with pytest.raises(ValueError, match=r"different indices below 3, found \(1, 1\)"):
        compact_letters(3, [(1, 1)])
    with pytest.raises(ValueError, match="different indices below 3"):
        compact_letters(3, [(0, 3)])


def test_letters_of_methods_over_seeds() -> None:
    """The star is for the first method's pairs, the letters are for all."""
    draw = np.random.default_rng(0)
    seeds = list(range(6))
    runs = [
        MethodRuns(name, seeds, (mean + 0.01 * draw.standard_normal(6)).tolist())
        for name, mean in (("low", 0.3), ("high", 0.6), ("higher", 0.605))
    ]
    assert Comparison(runs).letters() == {"higher": "a", "high": "a", "low": "b"}
    assert Comparison(runs, anytime=True).letters() == {"higher": "a", "high": "a", "low": "b"}
    assert Comparison(runs[:1]).letters() == {"low": "a"}
