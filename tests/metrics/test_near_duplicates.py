"""Texts that are nearly alike, against a comparison of all with all."""

from __future__ import annotations

import random

import pytest

from polopt.metrics import near_duplicates


def runs(text: str, run: int) -> set[str]:
    return {text[i : i + run] for i in range(max(1, len(text) - run + 1))}


@pytest.mark.parametrize("similarity", [0.3, 0.8, 1.0])
@pytest.mark.parametrize("run", [1, 5])
def test_every_pair_and_no_other(similarity: float, run: int) -> None:
    draw = random.Random(0)
    texts = ["", "", "a", "aéa𝄞", "aéa𝄞"]
    for _ in range(12):
        text = "".join(draw.choices("abcd é", k=draw.randint(1, 60)))
        texts.append(text)
        for _ in range(5):
            cut, more = draw.randrange(len(text)), draw.choice(["", "x", "dcba"])
            texts.append(text[:cut] + more + text[cut + draw.randint(0, 3) :])
    wanted = []
    for j, b in enumerate(texts):
        for i, a in enumerate(texts[:j]):
            one, other = runs(a, run), runs(b, run)
            if len(one & other) >= similarity * len(one | other):
                wanted.append((i, j))
    found = near_duplicates(texts, similarity, run)
    assert found == sorted(wanted)
    assert 5 < len(found) < len(texts) * (len(texts) - 1) / 2


def test_none_and_bad_settings() -> None:
    assert near_duplicates([]) == []
    for bad in ({"similarity": 0.0}, {"similarity": 1.1}, {"run": 0}):
        with pytest.raises(ValueError, match=r"needs similarity in \(0, 1\] and run >= 1"):
            near_duplicates(["a"], **bad)
