"""Audits of preference pairs with planted faults."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polopt.metrics import PreferenceRow, audit_preferences


def rows(*triples: tuple[str, str, str]) -> list[PreferenceRow]:
    return [PreferenceRow(place, *triple) for place, triple in enumerate(triples, start=1)]


def test_copies_and_opposite_labels() -> None:
    found = audit_preferences(
        rows(("a", "x", "y"), ("A\n", "X", " y"), ("a", "y", "x"), ("b", "x", "y"), ("a", "x", "z"))
    )
    assert (found.rows, found.prompts) == (5, 2)
    assert found.duplicates == ((1, 2),)
    assert found.conflicts == ((1, 2, 3),)
    assert found.cycles == ()


@pytest.mark.parametrize(
    ("preferences", "cycle"),
    [
        (["xy", "yz", "zx"], (1, 2, 3)),
        (["xy", "yz", "xz"], ()),
        (["xy", "yx", "yz", "zy"], ()),  # back and forth alone
        (["xy", "yx", "yz", "zx"], (1, 2, 3, 4)),
        (["xy", "yx", "yz", "zy", "xz", "zx"], (1, 2, 3, 4, 5, 6)),
        (["xy", "yz", "zw", "wy"], (2, 3, 4)),
    ],
)
def test_circles(preferences, cycle) -> None:
    found = audit_preferences(rows(*(("p", a, b) for a, b in preferences)))
    assert found.cycles == ((cycle,) if cycle else ())
    apart = audit_preferences(rows(*((f"p{i}", a, b) for i, (a, b) in enumerate(preferences))))
    assert apart.cycles == ()


def test_leaks_are_prompts_of_the_evaluation() -> None:
    found = audit_preferences(rows(("One  two", "x", "y"), ("three", "x", "y")), ["one two", "four"])
    assert found.leaks == (1,)
    assert "held-out prompt: 1" in found.cautions[0]


def test_near_copies_and_near_leaks() -> None:
    """A word changed in a long text is no new pair, whichever answer it has preferred; one in a short text is."""
    long = "What is the sum of seven apples and twelve pears, if each of them is counted once?"
    found = audit_preferences(
        rows(
            (long, "It is nineteen of them altogether.", "It is eighteen of them altogether."),
            (
                long.replace("apples", "plums"),
                "It is eighteen of them altogether.",
                "It is nineteen of them altogether.",
            ),
            (long, "It is nineteen of them altogether.", "It is eighteen of them altogether."),
            ("7 + 12?", "19", "18"),
            ("7 + 13?", "19", "18"),
        ),
        [long.replace("pears", "nuts"), "7 + 14?"],
    )
    assert found.near_duplicates == ((1, 2),)
    assert found.duplicates == ((1, 3),)
    assert (found.leaks, found.near_leaks) == ((), (1, 3))  # of the second, two words are others
    assert [caution for caution in found.cautions if "nearly" in caution] == [
        "rows that are nearly copies of others: 1; look whether they say anything of their own",
        "rows whose prompt is nearly a held-out one: 2; look whether they give it away",
    ]
    strict = audit_preferences(rows((long, "x", "y"), (f"{long}!", "x", "y")), similarity=1.0)
    assert strict.near_duplicates == ()


def test_lengths_and_positions_count_prompts() -> None:
    data = [
        PreferenceRow(1, "a", "long answer", "x", True),
        PreferenceRow(2, "a", "other long answer", "x", False),
        PreferenceRow(3, "b", "x", "longer", True),
        PreferenceRow(4, "c", "same", "size"),
    ]
    found = audit_preferences(data)
    assert found.longer_chosen is not None
    assert (found.longer_chosen.estimate, found.longer_chosen.n) == (0.5, 2)
    assert found.first_chosen is not None
    assert (found.first_chosen.estimate, found.first_chosen.n) == (0.75, 2)
    words = audit_preferences(data, length=lambda text: len(text.split()))
    assert words.longer_chosen is not None
    assert words.longer_chosen.estimate == 1
    biased = audit_preferences(rows(*((f"p{i}", "longer", "x") for i in range(30))))
    assert "length bias" in biased.cautions[0]


def test_noise_is_estimated_from_repeated_labels() -> None:
    draw, wrong = np.random.default_rng(0), 0.2
    found, held = [], 0
    for _ in range(50):
        labels = draw.random((300, 3)) < wrong
        triples = [(f"p{i}", *(("y", "x") if flip else ("x", "y"))) for i, row in enumerate(labels) for flip in row]
        noise = audit_preferences(rows(*triples)).label_noise
        assert noise is not None
        found.append(noise.estimate)
        held += noise.low <= wrong <= noise.high
    assert np.mean(found) == pytest.approx(wrong, abs=0.01)
    assert held >= 43
    assert audit_preferences(rows(("a", "x", "y"))).label_noise is None


def test_the_record_is_plain() -> None:
    found = audit_preferences(rows(("a", "x", "y"), ("a", "y", "x"), ("b", "long", "x"))).record()
    assert found["label_noise"]["estimate"] == 0.5
    assert not any(isinstance(v, float) and math.isinf(v) for v in found["label_noise"].values())
    with pytest.raises(ValueError, match="no rows"):
        audit_preferences([])
