"""Agreement of annotators: Krippendorff's own example, scikit-learn's kappa, and sums over pairs of labels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from polopt.metrics import PreferenceRow, annotator_agreement, cohen_kappa, krippendorff_alpha, preference_labels

# Ratings of 12 units by 4 observers, from Krippendorff's "Computing Krippendorff's Alpha-Reliability" (2011), whose
# nominal alpha is 0.743.
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, np.nan, np.nan, np.nan],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, np.nan, 3],
        [np.nan, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, np.nan],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, np.nan],
    ]
).T


def counted(ratings: np.ndarray) -> float:
    """Alpha from a list of all ordered pairs of ratings of a unit."""
    weighed, values = [], []
    for unit in ratings:
        known = unit[~np.isnan(unit)]
        if len(known) > 1:
            values += known.tolist()
            weighed += [(a != b, 1 / (len(known) - 1)) for a, b in itertools.permutations(known, 2)]
    observed = sum(w for differ, w in weighed if differ) / len(values)
    expected = np.mean([a != b for a, b in itertools.permutations(values, 2)])
    return 1 - observed / expected


def test_alpha_of_the_published_example() -> None:
    assert krippendorff_alpha(OBSERVERS) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(OBSERVERS) == pytest.approx(counted(OBSERVERS), abs=1e-12)


def test_alpha_of_random_ratings_and_its_ends() -> None:
    draw = np.random.default_rng(0)
    ratings = draw.integers(3, size=(30, 5)).astype(float)
    ratings[draw.random(ratings.shape) < 0.3] = np.nan
    assert krippendorff_alpha(ratings) == pytest.approx(counted(ratings), abs=1e-12)
    assert krippendorff_alpha([[0, 0], [1, 1]]) == 1
    assert np.isnan(krippendorff_alpha([[0, 0], [0, 0]]))
    assert np.isnan(krippendorff_alpha([[0, np.nan], [np.nan, 1]]))


def test_kappa_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(1)
    one = draw.integers(3, size=50).astype(float)
    other = np.where(draw.random(50) < 0.6, one, draw.integers(3, size=50))
    assert cohen_kappa(one, other) == pytest.approx(cohen_kappa_score(one, other), abs=1e-12)
    missing = other.copy()
    missing[:20] = np.nan
    assert cohen_kappa(one, missing) == pytest.approx(cohen_kappa_score(one[20:], other[20:]), abs=1e-12)
    assert np.isnan(cohen_kappa([1, 1], [1, 1]))


def labelled(votes: dict[str, str], pairs: int) -> list[PreferenceRow]:
    """Rows of annotators with a string of their labels: a, b, or - for none."""
    found = []
    for i in range(pairs):
        for name, text in votes.items():
            if text[i] != "-":
                answers = ("yes", "no") if text[i] == "a" else ("no", "yes")
                found.append(PreferenceRow(len(found) + 1, f"prompt {i}", *answers, annotator=name))
    return found


VOTES = {"ann": "aabbabab-a", "bob": "aabbbbabaa", "cho": "abba-babb-"}


def test_labels_in_both_orders() -> None:
    """Which answer comes first has no meaning: the measures are those of the labels beside their opposites."""
    found = annotator_agreement(preference_labels(labelled(VOTES, 10)))
    table = np.array([[{"a": 1, "b": -1, "-": np.nan}[c] for c in VOTES[name]] for name in found.names]).T
    both = np.concatenate([table, -table])
    assert found.shared == 10
    assert found.alpha is not None
    assert found.alpha.estimate == pytest.approx(counted(both), abs=1e-12)
    assert found.alpha.low < found.alpha.estimate < found.alpha.high
    for (one, other), kappa in found.kappa.items():
        a, b = (both[:, found.names.index(name)] for name in (one, other))
        known = ~np.isnan(a + b)
        assert kappa.estimate == pytest.approx(cohen_kappa_score(a[known], b[known]), abs=1e-12)
    ann = [np.mean([table[i, 0] == x for x in table[i, 1:] if not np.isnan(x)]) for i in range(8)]
    assert found.with_others["ann"].estimate == pytest.approx(np.mean([*ann, table[9, 0] == table[9, 1]]))


def test_an_interval_holds_the_truth() -> None:
    """Two annotators who err at rate e agree at 1 - 2 e (1 - e), and chance at 1/2: alpha tends to (1 - 2 e)^2."""
    held, error = 0, 0.1
    for seed in range(40):
        draw = np.random.default_rng(seed)
        votes = {name: "".join(np.where(draw.random(120) < error, "b", "a")) for name in ("ann", "bob")}
        found = annotator_agreement(preference_labels(labelled(votes, 120)), resamples=400)
        assert found.alpha is not None
        held += found.alpha.low <= (1 - 2 * error) ** 2 <= found.alpha.high
    assert held >= 34


def test_full_agreement_has_an_interval_of_some_width() -> None:
    found = annotator_agreement(preference_labels(labelled({"ann": "abab", "bob": "abab"}, 4)))
    assert found.alpha is not None
    assert found.alpha.estimate == found.alpha.high == 1
    assert found.alpha.low < 0.5
    assert found.cautions() == []


def test_without_shared_pairs_agreement_is_not_known() -> None:
    found = annotator_agreement(preference_labels(labelled({"ann": "a-", "bob": "-b"}, 2)))
    assert (found.alpha, found.kappa, found.with_others) == (None, {}, {})
    assert "not known" in found.cautions()[0]


def test_an_annotator_who_labels_twice_has_the_majority() -> None:
    rows = labelled({"ann": "a"}, 1) * 2 + labelled({"ann": "b"}, 1) + labelled({"bob": "b"}, 1)
    labels = preference_labels(rows)
    assert labels.labels.tolist() == [[1, -1]]
    assert labels.counts == (3, 1)
    tied = preference_labels(labelled({"ann": "a"}, 1) + labelled({"ann": "b"}, 1))
    assert np.isnan(tied.labels).all()
    with pytest.raises(ValueError, match="every row needs an annotator"):
        preference_labels([PreferenceRow(1, "p", "x", "y")])
