"""TQ, SACo and what stands beside them, by hand and by enumeration, and the door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polopt.lab.measured import logged_walks
from polopt.methods.dataset_perspective import dataset_perspective
from polopt.metrics import LoggedTransitions, MetricDataError, MetricError, jackknife
from polopt.training.measuring import measure


def two_sets() -> LoggedTransitions:
    """Set a: episodes of returns 1 and 3, the last cut; set b: one episode."""
    return LoggedTransitions(
        episode=["x", "x", "y", "y", "y", "z", "x", "x"],
        step=[0, 1, 0, 1, 2, 0, 0, 1],
        state=["s", "t", "s", "t", "u", "s", "s", "s"],
        action=["l", "l", "l", "r", "l", "l", "l", "r"],
        reward=[0.0, 1.0, 1.0, 0.0, 2.0, 50.0, 0.0, 0.0],
        done=[0, 1, 0, 0, 1, 0, 0, 1],
        dataset=["a"] * 6 + ["b"] * 2,
    )


def test_every_number_by_hand() -> None:
    found = dataset_perspective(random_return=-1.0, expert_return=3.0, reference="b")(two_sets())
    v = found.values
    assert v["a, mean return"] == 2.0
    assert v["a, TQ"] == pytest.approx((2 + 1) / 4)
    half = stats.t(1).ppf(0.975) * np.std([1, 3], ddof=1) / 2**0.5
    assert found.intervals["a, mean return"].high == pytest.approx(2 + half)
    # Pairs of a: sl, tl, tr, ul; of b: sl, sr.
    assert (v["a, unique state-action pairs"], v["b, unique state-action pairs"]) == (4, 2)
    assert (v["a, SACo"], v["b, SACo"]) == (2.0, 1.0)
    assert (v["a, unique states"], v["b, unique states"]) == (3, 1)
    assert v["a, episode length"] == 2.0
    assert (v["a, shortest episode"], v["a, longest episode"], v["a, complete episodes"]) == (1, 3, 2)
    assert v["a, reward sparsity"] == pytest.approx((1 / 2 + 1 / 3 + 0) / 3)
    # Only in t the logged actions differ, one of each: entropies of x 0 and 1, of y 0, 1 and 0, of z 0.
    assert v["a, behaviour entropy"] == pytest.approx((1 / 2 + 1 / 3 + 0) / 3)
    assert v["b, behaviour entropy"] == pytest.approx(1.0)
    assert found.rows["a, return"].tolist() == [1.0, 3.0]
    assert any("1 of 3 episodes are not done" in text for text in found.cautions)
    assert any("a (6) and the reference (2) differ" in text for text in found.cautions)


def test_counts_without_an_episode_are_those_of_the_data_without_it() -> None:
    data = logged_walks(3).of("one")
    metric = dataset_perspective(bins=4, limits=[(-3.0, 3.0), (-3.0, 3.0), (0.0, 1.0)])
    name = "unique state-action pairs"
    every = metric(data)
    without = [metric(data[np.flatnonzero(data.number != e)]).values[name] for e in range(len(data.lengths))]
    expected = jackknife(every.values[name], without)
    assert every.intervals[name].low == pytest.approx(expected.low)
    assert expected.high > expected.estimate


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    x = np.random.default_rng(0).normal(size=9)
    without = [np.delete(x, i).mean() for i in range(9)]
    interval = stats.t.interval(0.95, 8, x.mean(), stats.sem(x))
    found = jackknife(float(x.mean()), without)
    assert (found.low, found.high) == pytest.approx(interval)


def test_the_interval_of_a_count_holds_the_mean_count() -> None:
    """Of data sets of 30 episodes of three states among 200, whose mean number of different states is known."""
    truth = 200 * (1 - (1 - 1 / 200) ** 90)
    covered = 0
    for seed in range(100):
        states = np.random.default_rng(seed).integers(200, size=90)
        data = LoggedTransitions(np.repeat(np.arange(30), 3).astype(str), np.tile(range(3), 30), states, np.zeros(90),
                                 np.zeros(90))  # fmt: skip
        interval = dataset_perspective()(data).intervals["unique states"]
        covered += interval.low <= truth <= interval.high
    assert covered >= 93


def test_coordinates_share_their_cells() -> None:
    state = [[0.0, 5.0], [0.24, 5.0], [0.26, 6.0], [1.0, 700.0]]
    data = LoggedTransitions(["e"] * 4, range(4), state, [0, 0, 0, 0], [0.0] * 4)
    assert dataset_perspective(bins=4)(data).values["unique states"] == 3
    assert dataset_perspective(bins=100)(data).values["unique states"] == 4
    # Whole numbers are never merged; beyond the limits counts as the last cell.
    assert dataset_perspective(bins=1)(data).values["unique states"] == 3
    wide = dataset_perspective(bins=4, limits=[(0.0, 0.5), (0.0, 9.0), (0.0, 1.0)])
    assert wide(data).values["unique states"] == 4


def row(**changes: Any) -> list[dict[str, Any]]:
    base = {"episode": "e", "state": [0.5, 1], "action": "up", "reward": 1.0, "done": False}
    return [{**base, "step": i, **(changes if i == 1 else {})} for i in range(3)]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"reward": None}, "column 'reward' is empty"),
        ({"state": {"x": 1}}, "state must be text, a finite number or a list of them"),
        ({"state": [0.5]}, "row 2: state has 1 number, and that of row 1 has 2 numbers"),
        ({"action": 3}, "row 2: action has 1 number, and that of row 1 has text"),
        ({"done": "perhaps"}, "done must be true or false, found 'perhaps'"),
        ({"done": None}, "row 2: done is given in some rows only"),
        ({"done": True}, "row 2: episode 'e' is done at step 1, and goes on"),
        ({"step": 0}, "rows 1 and 2: episode 'e' has step 0 twice"),
        ({"step": 7}, "row 3: episode 'e' goes from step 0 to 2; give all of its decisions"),
        ({"step": 1.5}, "row 2: step must be a whole number"),
        ({"episode": "f"}, "row 3: episode 'e' goes from step 0 to 2"),
        ({"episode": ""}, "column 'episode' is missing: a name"),
        ({"state": ""}, "column 'state' is missing"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, row(**changes))))
    with pytest.raises(Exception, match=sentence):
        measure("dataset-perspective", file)


def test_a_csv_file_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text('episode,step,observation,action,reward,done\n1,0,"[0.5, 1]",0,0,0\n1,1,"[0.7, 1]",1,2,1\n')
    found = measure("dataset-perspective", file, columns={"state": "observation"})
    assert (found.values["mean return"], found.values["unique state-action pairs"]) == (2, 2)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="random_return below expert_return, or neither"):
        dataset_perspective(random_return=2.0)
    with pytest.raises(ValueError, match="bins >= 1"):
        dataset_perspective(bins=0)
    with pytest.raises(ValueError, match="low < high"):
        dataset_perspective(limits=[(1.0, 1.0)])
    with pytest.raises(MetricError, match="there is no data set 'c'; give one of"):
        dataset_perspective(reference="c")(two_sets())
    with pytest.raises(MetricError, match="limits must be of 2 coordinates"):
        dataset_perspective(limits=[(0.0, 1.0)])(two_sets())
    without = LoggedTransitions(["e"], [0], [0.0], [0.0])
    with pytest.raises(MetricError, match="needs a reward of each decision"):
        dataset_perspective()(without)
    with pytest.raises(MetricDataError, match="every column must have N >= 1 rows"):
        LoggedTransitions(["e"], [0, 1], [0.0], [0.0])
