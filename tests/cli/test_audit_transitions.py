"""polopt audit demos, polopt audit logs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from command import flat, polopt

from polopt.config import ConfigError
from polopt.methods.dataset_perspective import dataset_perspective
from polopt.methods.pdis import pdis
from polopt.metrics import logged_table
from polopt.metrics.transitions import transition_row
from polopt.training.measuring import measure
from polopt.training.transition_audit import audit_transitions

Rows = list[dict[str, Any]]


def log(episodes: int = 12, seed: int = 0) -> Rows:
    draw = random.Random(seed)
    rows = []
    for e in range(episodes):
        for t in range(4):
            action = draw.choice("ab")
            rows.append({
                "episode": f"e{e}", "step": t, "state": [draw.random(), 10 * draw.random()], "action": action,
                "reward": float(draw.random() < 0.4), "done": t == 3, "behaviour_probability": 0.5,
                "target_probability": 0.8 if action == "a" else 0.2,
            })  # fmt: skip
    return rows


def written(path: Path, rows: Rows) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_numbers_are_those_of_the_metrics(tmp_path: Path) -> None:
    file = written(tmp_path / "log.jsonl", log())
    audit = audit_transitions(file, "logs", settings={"bins": 5})
    assert audit.measured is not None
    assert audit.measured.values == measure(dataset_perspective(bins=5), file).values
    assert audit.overlap is not None
    expected = pdis()(logged_table(log()))
    assert audit.overlap.values["effective_sample_size"] == pytest.approx(expected.values["effective_sample_size"])
    demos = audit_transitions(file, "demos", {"observation": "state"})
    assert demos.measured is not None
    assert demos.measured.values == measure("il-data-quality", file, {"observation": "state"}).values
    assert demos.overlap is None


def test_copies_are_by_name_and_bad_rows_by_number(tmp_path: Path) -> None:
    rows = log()
    rows += [{**row, "episode": "copy"} for row in rows[:4]]
    rows += [{**row, "episode": "near", "state": [row["state"][0] + 0.001, row["state"][1]]} for row in rows[4:8]]
    rows += [{**row, "episode": "far", "state": [row["state"][0] + 0.1, row["state"][1]]} for row in rows[8:12]]
    other = [{**row, "episode": "other action"} for row in rows[12:16]]
    other[2]["action"] = "a" if other[2]["action"] == "b" else "b"
    rows += [*other, {**rows[0], "episode": "x", "reward": "high"}, {**rows[0], "episode": "y", "state": [1.0]}]
    rows += [{**rows[0], "episode": "gap"}, {**rows[2], "episode": "gap"}]
    file = written(tmp_path / "log.jsonl", rows)
    found = json.loads(polopt("audit", "logs", file, "--json").stdout)
    assert found["duplicates"] == [["copy", "e0"]]
    assert [sorted(group) for group in found["near_duplicates"]] == [["e1", "near"]]
    n = len(rows)
    assert found["malformed"] == {
        str(n - 3): "reward must be a finite number, found 'high'",
        str(n - 2): "state has 1 number, and that of row 1 has 2 numbers",
    }
    assert found["broken"][0]["problem"] == f"row {n}: episode 'gap' goes from step 0 to 2; give all of its decisions"
    assert (found["episodes"], found["rows"]) == (16, 64)
    output = flat(polopt("audit", "logs", file).output)
    for text in (
        "Identical: copy, e0",
        f"Row {n - 3}: reward must be",
        "Caution: episodes that are copies of others: 1",
    ):
        assert text in output


def test_the_first_row_can_be_the_bad_one(tmp_path: Path) -> None:
    rows = log(3)
    rows[0]["state"] = "a text"
    audit = audit_transitions(written(tmp_path / "log.jsonl", rows), "logs")
    assert audit.malformed == {1: "state has text, and that of row 2 has 2 numbers"}
    assert list(audit.broken) == [("data", "e0")]
    assert audit.broken["data", "e0"] == "episode 'e0' is left out, as row 1 of it is malformed"
    assert len(audit.data) == 8


def test_what_the_log_never_shows_is_said(tmp_path: Path) -> None:
    """In the one state the behaviour policy only takes a, and the target policy takes it half of the time."""
    rows = [
        {**row, "state": "s", "action": "a", "behaviour_probability": 1.0, "target_probability": 0.5} for row in log(3)
    ]
    audit = audit_transitions(written(tmp_path / "log.jsonl", rows), "logs")
    assert audit.overlap is None
    assert any("what others are worth cannot be estimated from this log" in text for text in audit.cautions)
    del rows[3]["target_probability"]
    audit = audit_transitions(written(tmp_path / "log.jsonl", rows), "logs")
    assert any("overlap is not known: target_probability must be in every row" in text for text in audit.cautions)
    without = [{k: v for k, v in row.items() if "probability" not in k} for row in log(3)]
    quiet = audit_transitions(written(tmp_path / "log.jsonl", without), "logs")
    assert not any("overlap" in text for text in quiet.cautions)


def test_demonstrations_of_texts_have_copies_and_no_numbers(tmp_path: Path) -> None:
    rows = [{"episode": e, "step": t, "observation": "s", "action": "a"} for e in "xy" for t in range(2)]
    audit = audit_transitions(written(tmp_path / "demos.jsonl", rows), "demos")
    assert audit.measured is None
    assert audit.duplicates == (("x", "y"),)
    assert any("needs observations that are numbers" in text for text in audit.cautions)


def test_a_page_holds_everything_and_escapes_it(tmp_path: Path) -> None:
    rows = [*log(), *({**row, "episode": "<script>alert(1)</script>"} for row in log()[:4])]
    rows.append({**rows[0], "episode": "bad", "step": "first"})
    for kind, options in (("logs", []), ("demos", ["--column", "observation=state"])):
        page = tmp_path / f"{kind}.html"
        result = polopt("audit", kind, written(tmp_path / "rows.jsonl", rows), *options, "--html", page)
        assert result.exit_code == 0, result.output
        text = page.read_text()
        assert "<script>alert(1)" not in text
        assert "&lt;script&gt;alert(1)" in text
        assert "step must be a finite number" in text
        assert ("Support and overlap" in text) == (kind == "logs")


def test_the_door(tmp_path: Path) -> None:
    file = written(tmp_path / "log.jsonl", [{"episode": "e", "step": 0, "state": 1, "action": 1}])
    result = polopt("audit", "logs", file)
    assert result.exit_code != 0
    assert "no episode is whole; column 'reward' is missing" in flat(result.output)
    with pytest.raises(ConfigError, match="does not exist"):
        audit_transitions(tmp_path / "none.jsonl", "logs")
    result = polopt("audit", "logs", file, "--column", "stat=x")
    assert "'stat' is no column of a log of transitions" in flat(result.output)
    result = polopt("audit", "logs", file, "--column", "state")
    assert "--column state: expected name=column" in flat(result.output)
    result = polopt("audit", "demos", file, "--column", "observation=state", "--set", "radios=1")
    assert "has no setting 'radios'" in flat(result.output)
    assert transition_row("state", False, {"episode": 1, "step": 0, "state": 1, "action": 1})["reward"] is None
