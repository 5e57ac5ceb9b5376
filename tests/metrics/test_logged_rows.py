"""What a log of decisions may be, whatever the order of its rows, and the sentence for what it may not be."""

from __future__ import annotations

import csv
import json
import random
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from polopt.config import ConfigError
from polopt.metrics import LoggedDataError, logged_table
from polopt.training.measuring import read_log


def rows(**changes: Any) -> list[dict[str, Any]]:
    """Two episodes, of three decisions and of one."""
    names = ("episode", "step", "state", "action", "reward", "behaviour_probability", "target_probability")
    found = [
        dict(zip(names, values, strict=True))
        for values in (
            ("a", 0, "start", "left", 1.0, 0.25, 0.5),
            ("a", 1, "hall", "right", -2.0, 0.5, 0.0),
            ("a", 2, "start", "left", 0.5, 0.25, 0.5),
            ("b", 0, "hall", "left", 3.0, 0.5, 1.0),
        )
    ]
    for name, value in changes.items():
        found[2][name] = value
    return found


def same(found: Any, expected: Any) -> None:
    for name in ("lengths", "reward", "behaviour_logp", "target_logp", "state", "action"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_rows_become_episodes_in_order() -> None:
    table = logged_table(rows())
    assert table.lengths.tolist() == [3, 1]
    assert table.reward.tolist() == [[1.0, -2.0, 0.5], [3.0, 0.0, 0.0]]
    assert table.behaviour_logp[0].tolist() == np.log([0.25, 0.5, 0.25]).tolist()
    assert table.target_logp[0, 1] == -np.inf
    assert table.state is not None
    assert table.state[0, 0] == table.state[0, 2] != table.state[0, 1] == table.state[1, 0]
    for seed in range(5):
        shuffled = rows()
        random.Random(seed).shuffle(shuffled)
        same(logged_table(shuffled), table)


def test_steps_may_begin_at_one_and_labels_may_be_numbers_and_lists() -> None:
    other = [
        {**row, "step": row["step"] + 1, "episode": [row["episode"], 1], "state": [row["state"]]} for row in rows()
    ]
    same(logged_table(other), logged_table(rows()))


def test_files_of_every_format_hold_the_same(tmp_path) -> None:
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows()), tmp_path / "log.parquet")
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows()[0])
        writer.writeheader()
        writer.writerows(rows())
    for name in ("log.jsonl", "log.parquet", "log.csv"):
        same(read_log(tmp_path / name), logged_table(rows()))


def test_a_files_own_names_of_columns(tmp_path) -> None:
    theirs = [{("pscore" if k == "behaviour_probability" else k): v for k, v in row.items()} for row in rows()]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in theirs))
    same(read_log(tmp_path / "log.jsonl", {"behaviour_probability": "pscore"}), logged_table(rows()))
    with pytest.raises(ConfigError, match="lines 1 to 4: column 'behaviour_probability' is missing"):
        read_log(tmp_path / "log.jsonl")
    with pytest.raises(LoggedDataError, match="'propensity' is no column of a log"):
        read_log(tmp_path / "log.jsonl", {"propensity": "pscore"})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"reward": float("nan")}, "row 3: reward must be a finite number, found nan"),
        ({"reward": "much"}, "row 3: reward must be a finite number, found 'much'"),
        ({"reward": True}, "row 3: reward must be a finite number, found True"),
        ({"behaviour_probability": 0}, r"row 3: behaviour_probability must be a probability in \(0, 1\], found 0"),
        ({"behaviour_probability": 1.5}, r"row 3: behaviour_probability must be a probability in \(0, 1\], found 1.5"),
        ({"target_probability": -0.1}, r"row 3: target_probability must be a probability in \[0, 1\], found -0.1"),
        ({"step": 1.5}, "row 3: step must be a whole number >= 0, found 1.5"),
        ({"step": -1}, "row 3: step must be a whole number >= 0, found -1"),
        ({"step": 1}, 'rows 2 and 3: episode "a" has step 1 twice'),
        ({"step": 3}, 'row 3: episode "a" goes from step 1 to step 3'),
        ({"episode": "c"}, 'row 3: episode "c" begins at step 2, expected 0'),
        ({"episode": None}, "row 3: episode must not be empty"),
        ({"state": None}, "row 3: state is empty"),
        ({"state": float("inf")}, "row 3: state must be text, a finite number or a list"),
    ],
)
def test_what_cannot_be_is_refused_with_its_row(changes, sentence) -> None:
    with pytest.raises(LoggedDataError, match=sentence):
        logged_table(rows(**changes))


def test_episodes_that_all_begin_late_are_refused() -> None:
    with pytest.raises(LoggedDataError, match="begins at step 5, expected 0"):
        logged_table([{**row, "step": row["step"] + 5} for row in rows()])
    with pytest.raises(LoggedDataError, match="no rows"):
        logged_table([])


def one_state(*probabilities: tuple[str, float, float]) -> list[dict[str, Any]]:
    return [
        {
            "episode": i,
            "step": 0,
            "state": "s",
            "action": action,
            "reward": 1,
            "behaviour_probability": b,
            "target_probability": pi,
        }
        for i, (action, b, pi) in enumerate(probabilities)
    ]


def test_actions_that_the_behaviour_policy_never_takes_are_refused() -> None:
    """Its logged actions have all of its probability, and not all of the target's."""
    with pytest.raises(LoggedDataError, match='row 1: in state "s" the behaviour policy takes none but the logged'):
        logged_table(one_state(("x", 0.4, 0.1), ("y", 0.6, 0.1)))
    logged_table(one_state(("x", 0.4, 0.1), ("y", 0.5, 0.1)))  # there may be actions that were never drawn
    logged_table(one_state(("x", 0.4, 0.1), ("y", 0.6, 0.9)))
    # Probabilities that move within a state: it is not all that the policies read.
    logged_table(one_state(("x", 0.4, 0.1), ("y", 0.6, 0.1), ("y", 0.5, 0.2)))


def test_probabilities_of_a_state_that_add_up_to_more_than_1_are_refused() -> None:
    with pytest.raises(LoggedDataError, match=r"the behaviour probabilities of 2 logged actions add up to 1.3"):
        logged_table(one_state(("x", 0.7, 0.5), ("y", 0.6, 0.5)))
    with pytest.raises(LoggedDataError, match=r"the target probabilities of 2 logged actions add up to 1.4"):
        logged_table(one_state(("x", 0.3, 0.9), ("y", 0.6, 0.5)))
