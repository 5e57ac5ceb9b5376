"""Measures of recommendations beside scikit-learn and scipy, by hand, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as oracle

from polopt.lab.measured import recommended
from polopt.methods.recsys_metrics import recsys_metrics
from polopt.metrics import MetricDataError, Recommendations
from polopt.metrics.recommended import RankedRelevance, dcg, gini, ideal_dcg, jackknife_of_users
from polopt.training.measuring import measure


def test_ndcg_is_scikit_learns_with_and_without_ties() -> None:
    draw = np.random.default_rng(0)
    for trial in range(1000):
        n = int(draw.integers(2, 12))
        gain = draw.integers(0, 4, n).astype(float)
        score = draw.integers(0, 4, n).astype(float) if trial % 2 else draw.normal(size=n)
        k = int(draw.integers(1, n + 3))
        expected = oracle.ndcg_score(gain[None], score[None], k=k)
        found = dcg(score, gain, k) / ideal_dcg(gain, k) if gain.any() else 0.0
        assert found == pytest.approx(expected, abs=1e-9)


def test_average_precision_and_auc_are_scikit_learns() -> None:
    draw = np.random.default_rng(1)
    for _ in range(200):
        n = int(draw.integers(2, 15))
        score, relevant = draw.normal(size=n), draw.random(n) < 0.4
        relevant[0], relevant[1] = True, False
        found = RankedRelevance(score, relevant).at_k(n)
        assert found["MAP"] == pytest.approx(oracle.average_precision_score(relevant, score), abs=1e-9)
        data = Recommendations(["u"] * n, np.arange(n), score, relevant)
        values = recsys_metrics(k=(n,))(data).values
        assert values["AUC"] == pytest.approx(oracle.roc_auc_score(relevant, score), abs=1e-9)
        assert values[f"MAP@{n}"] == pytest.approx(found["MAP"])


def by_hand() -> Recommendations:
    return Recommendations(
        user=["u", "u", "u", "v", "v", "w"],
        item=["a", "b", "c", "b", "a", "a"],
        score=[3.0, 2.0, 1.0, 5.0, 4.0, 1.0],
        relevance=[0.0, 2.0, 1.0, 1.0, 0.0, 0.0],
        prediction=[1.0, 1.0, 1.0, 2.0, 1.0, 0.0],
        popularity=[0.5, 0.25, 0.125, 0.25, 0.5, 0.5],
        features=[[1, 0], [0, 1], [1, 1], [0, 1], [1, 0], [1, 0]],
    )


def test_every_number_by_hand() -> None:
    found = recsys_metrics(k=(2,))(by_hand())
    v = found.values
    assert (v["precision@2"], v["recall@2"], v["hit rate@2"]) == (0.5, 0.75, 1.0)
    assert v["F1@2"] == pytest.approx((2 / 4 + 2 / 3) / 2)
    assert (v["MRR@2"], v["MAP@2"]) == (0.75, (0.5 / 2 + 1) / 2)
    assert v["NDCG@2"] == pytest.approx((3 / np.log2(3) / (3 + 1 / np.log2(3)) + 1) / 2)
    assert v["AUC"] == pytest.approx((0 + 1) / 2)
    assert v["RMSE"] == pytest.approx(np.sqrt((1 + 1 + 0 + 1 + 1 + 0) / 6))
    assert (v["MAE"], v["MAPE"]) == (4 / 6, pytest.approx((0.5 + 0 + 1) / 3))
    assert v["coverage@2"] == pytest.approx(2 / 3)
    assert v["personalisation@2"] == pytest.approx(1 - (1 + 2 / np.sqrt(2)) / 3)
    assert v["Gini@2"] == pytest.approx((0 * 1 + 2 * 2 + 3 * 3) * 2 / (3 * 5) - 4 / 3)
    assert v["intra-list similarity@2"] == 0
    assert v["novelty@2"] == pytest.approx((1.5 + 1.5 + 1) / 3)
    assert v["serendipity@2"] == 0  # a and b are the two most popular
    assert recsys_metrics(k=(1,))(by_hand()).values["serendipity@1"] == pytest.approx(1 / 3)  # b for v
    assert any("1 of 3 users have no relevant item" in caution for caution in found.cautions)
    assert recsys_metrics(k=(2,), keep_empty=True)(by_hand()).values["precision@2"] == pytest.approx(1 / 3)
    assert recsys_metrics(k=(2,), catalogue=4)(by_hand()).values["coverage@2"] == 0.5
    precision = found.intervals["precision@2"]
    assert (precision.low, precision.high) == (0.5, 0.5)
    assert set(v) - set(found.intervals) == {"coverage@2"}


def test_micro_averages_by_hand() -> None:
    """u has 2 relevant items, v has 1; each has one of them in the first 2 places."""
    found = recsys_metrics(k=(2,))(by_hand())
    v = {name.removesuffix(", micro"): value for name, value in found.values.items() if name.endswith(", micro")}
    assert v == {
        "recall@2": pytest.approx((1 + 1) / (2 + 1)),
        "F1@2": pytest.approx((2 * 1 + 2 * 1) / (2 + 2 + 2 + 1)),
        "MAP@2": pytest.approx((1 / 2 + 1) / (2 + 1)),
        "NDCG@2": pytest.approx((3 / np.log2(3) + 1) / (3 + 1 / np.log2(3) + 1)),
        "AUC": pytest.approx((0 + 1) / (2 + 1)),
    }
    # Without u recall is 1, without v 1 / 2: the jackknife's error of two users.
    recall, half = found.intervals["recall@2, micro"], stats.t(1).ppf(0.975) * np.sqrt(1 / 2 * 2 * 0.25**2)
    assert (recall.low, recall.high) == (pytest.approx(2 / 3 - half), pytest.approx(2 / 3 + half))
    # w has no relevant item; if it counts, only k = 2 of F1 does.
    every = recsys_metrics(k=(2,), keep_empty=True)(by_hand()).values
    assert every["F1@2, micro"] == pytest.approx(4 / (7 + 2))
    assert every["recall@2, micro"] == pytest.approx(2 / 3)


def test_micro_averages_are_scikit_learns_and_macro_ones_where_all_have_as_many() -> None:
    draw = np.random.default_rng(3)
    relevant = draw.random((30, 8)) < draw.beta(1, 2, (30, 1))
    relevant[~relevant.any(1), 0] = True
    user, item, score = np.repeat(np.arange(30), 8), np.tile(np.arange(8), 30), draw.normal(size=240)
    values = recsys_metrics(k=(3,))(Recommendations(user, item, score, relevant.ravel())).values
    taken = np.argsort(np.argsort(-score.reshape(30, 8), 1), 1) < 3
    assert values["recall@3, micro"] == pytest.approx(oracle.recall_score(relevant, taken, average="micro"))
    assert values["F1@3, micro"] == pytest.approx(oracle.f1_score(relevant.ravel(), taken.ravel()))
    assert values["precision@3"] == pytest.approx(oracle.precision_score(relevant, taken, average="micro"))
    assert values["recall@3"] == pytest.approx(oracle.recall_score(relevant, taken, average="samples"))
    assert abs(values["recall@3, micro"] - values["recall@3"]) > 0.005
    alike = np.argsort(draw.random((30, 8)), 1) < 2
    values = recsys_metrics(k=(3,), linear=True)(Recommendations(user, item, score, alike.ravel())).values
    for name in ("recall@3", "F1@3", "MAP@3", "NDCG@3", "AUC"):
        assert values[f"{name}, micro"] == pytest.approx(values[name])


def test_one_relevant_item_makes_map_mrr_and_a_random_order_has_the_base_rate() -> None:
    one = RankedRelevance(np.arange(8.0), np.arange(8) == 2).at_k(8)
    assert one["MAP"] == one["MRR"] == pytest.approx(1 / 6)
    same = RankedRelevance(np.zeros(10), np.arange(10) < 3).at_k(4)
    assert same["precision"] == pytest.approx(0.3)
    assert same["hit rate"] == pytest.approx(1 - stats.hypergeom(10, 3, 4).pmf(0))


def test_the_jackknife_of_a_mean_is_students_interval_and_gini_has_its_ends() -> None:
    x = np.random.default_rng(2).normal(size=40)
    found = jackknife_of_users(lambda users: float(x[users].mean()), 40, 0.95)
    low, high = stats.t(39, x.mean(), x.std(ddof=1) / 40**0.5).interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert gini(np.ones(5)) == pytest.approx(0)
    assert gini(np.array([0.0, 0, 0, 7])) == pytest.approx(0.75)


def test_weighed_clicks_of_full_propensity_are_linear_ndcg() -> None:
    data = recommended(0)
    rates = Recommendations(data.user, data.item, data.score, data.relevance, propensity=np.ones(len(data)))
    found = recsys_metrics(k=(4,))(rates).values
    assert "precision@4" not in found
    dcgs = [[dcg(data.score[r], data.relevance[r], 4), ideal_dcg(data.relevance[r], 4)] for r in data.lists()]
    assert found["NDCG@4, IPS"] == pytest.approx(np.sum(dcgs, 0)[0] / np.sum(dcgs, 0)[1])
    half = Recommendations(data.user, data.item, data.score, data.relevance, propensity=np.full(len(data), 0.5))
    twice = recsys_metrics(k=(4,))(half).values
    assert twice["DCG@4, IPS"] == pytest.approx(2 * found["DCG@4, IPS"])
    assert twice["NDCG@4, IPS"] == pytest.approx(found["NDCG@4, IPS"])


BASE = {"user": "u", "score": 1.0, "relevance": 1}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"relevance": None}, "column 'relevance' is empty"),
        ({"score": None}, "either 'score', higher is better, or 'rank', lower is better; this one has neither"),
        ({"rank": 2}, "this one has both"),
        ({"item": "0"}, "user 'u' has item '0' twice"),
        ({"user": ""}, "column 'user' is missing"),
        ({"propensity": 0.5}, "row 1: propensity is empty; give it in every row or in none"),
        ({"features": "near"}, "features must be a list of numbers, found 'near'"),
        ({"relevance": -1}, "relevance must be >= 0, found -1"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "lists.jsonl"
    rows = [{**BASE, "item": str(i), **(changes if i == 1 else {})} for i in range(3)]
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(Exception, match=sentence):
        measure("recsys-metrics", file)


def test_ranks_are_read_and_refused_twice(tmp_path: Path) -> None:
    file = tmp_path / "lists.csv"
    head = "user,item,rank,relevance,features\n"
    file.write_text(head + 'u,a,2,1,"[1, 0]"\nu,b,1,0,"[0, 1]"\n')
    assert measure("recsys-metrics", file, k=(2,)).values["MRR@2"] == 0.5
    file.write_text(head + 'u,a,1,1,"[1, 0]"\nu,b,1,0,"[0, 1]"\n')
    with pytest.raises(MetricDataError, match="user 'u' has rank 1 twice"):
        measure("recsys-metrics", file)


def test_bad_settings_and_arrays() -> None:
    with pytest.raises(ValueError, match="k must be numbers of places"):
        recsys_metrics(k=())
    with pytest.raises(ValueError, match="threshold must be > 0"):
        recsys_metrics(threshold=0)
    with pytest.raises(MetricDataError, match=r"propensity must be in \(0, 1\], found 0"):
        Recommendations(["u"], ["a"], [1.0], [1.0], propensity=[0.0])
    with pytest.raises(MetricDataError, match="all must be \\[N\\]"):
        Recommendations(["u"], ["a"], [1.0, 2.0], [1.0])
