"""polopt audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import flat, polopt

PLAIN: list[dict[str, Any]] = [
    {"prompt": "a", "chosen": "x", "rejected": "y"},
    {"prompt": "a", "chosen": "x", "rejected": "y"},
    {"prompt": "b", "chosen": "one", "rejected": "two"},
    {"prompt": "b", "chosen": "two", "rejected": "three"},
    {"prompt": "b", "chosen": "three", "rejected": "one"},
    {"prompt": "c", "chosen": "same", "rejected": "same"},
]
TALK = [
    {
        "prompt": [{"role": "user", "content": "a"}],
        "chosen": [{"role": "assistant", "content": "x"}],
        "rejected": [{"role": "assistant", "content": "y"}],
    }
]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_summary_and_the_json(tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.jsonl", PLAIN)
    result = polopt("audit", "preferences", file)
    assert result.exit_code == 0, result.output
    output = flat(result.output)
    for text in ("duplicates 1 lines 1, 2", "circles 1 lines 3, 4, 5", "malformed rows 1", "Line 6: fields 'chosen'"):
        assert text in output
    found = json.loads(polopt("audit", "preferences", file, "--json").stdout)
    assert found["duplicates"] == [[1, 2]]
    assert found["malformed"] == {"6": "fields 'chosen' and 'rejected' hold the same answer; leave the row out"}
    assert found["ranking"] is None


def test_conversations_and_texts_are_one_prompt(tmp_path: Path) -> None:
    file, heldout = written(tmp_path / "pairs.jsonl", PLAIN), written(tmp_path / "heldout.jsonl", TALK)
    found = json.loads(polopt("audit", "preferences", file, "--heldout", heldout, "--json").stdout)
    assert found["leaks"] == [1, 2]
    both = written(tmp_path / "both.jsonl", [*PLAIN[:1], *TALK])
    assert json.loads(polopt("audit", "preferences", both, "--json").stdout)["duplicates"] == [[1, 2]]


def test_positions_and_what_the_loss_can_turn(tmp_path: Path) -> None:
    more = {"first": True, "ref_chosen_logps": -30.0, "ref_rejected_logps": -10.0}
    easy = {"first": False, "ref_chosen_logps": -9.0, "ref_rejected_logps": -10.0}
    file = written(tmp_path / "pairs.jsonl", [PLAIN[0] | more, PLAIN[2] | easy])
    command = ["audit", "preferences", file, "--position", "first"]
    found = json.loads(polopt(*command, "--json").stdout)
    assert found["first_chosen"]["estimate"] == 0.5
    # The first pair needs a margin of 2 at beta 0.1, and a loss below log(1 + exp(-2)) = 0.127.
    assert found["ranking"]["flippable"] == 0.5
    assert "DPO leaves wrong 50.0%" in flat(polopt(*command).output)
    less = json.loads(polopt(*command, "--target-loss", "0.12", "--json").stdout)
    assert less["ranking"]["flippable"] == 1


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ([PLAIN[5]], [], "no row is a preference pair; line 1: fields 'chosen'"),
        (PLAIN, ["--position", "first"], "line 1: field 'first' is missing"),
        ([PLAIN[0] | {"first": "left"}], ["--position", "first"], "must be true or false, found 'left'"),
        (PLAIN, ["--heldout", "none.jsonl"], "none.jsonl does not exist"),
        (
            [PLAIN[0] | {"ref_chosen_logps": 4, "ref_rejected_logps": -1}],
            [],
            "ref_chosen_logps must be sums of log-probabilities",
        ),
    ],
)
def test_mistakes_get_a_sentence(tmp_path: Path, rows, options, sentence) -> None:
    result = polopt("audit", "preferences", written(tmp_path / "pairs.jsonl", rows), *options)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
