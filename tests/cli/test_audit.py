"""polopt audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import flat, polopt

from polopt.policies.factory import new_policy
from polopt.worlds import PairReader

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
    assert "dpo leaves wrong 50.0% of all pairs, at the target loss: lines 1" in flat(polopt(*command).output)
    less = json.loads(polopt(*command, "--target-loss", "0.12", "--json").stdout)
    assert less["ranking"]["flippable"] == 1


LOGPS = {"ref_chosen_logps": -30.0, "ref_rejected_logps": -10.0}


def test_other_objectives_and_their_settings(tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.jsonl", [PLAIN[0] | LOGPS, PLAIN[2] | LOGPS | {"ref_chosen_logps": -12.0}])

    def left(*options: str) -> list[int]:
        found = json.loads(polopt("audit", "preferences", file, *options, "--json").stdout)
        return found["flips"]["left_wrong"]

    assert left() == [1]
    # IPO's margin at the loss 0.5 is 1 / (2 tau) - 0.71: 4.3 at tau 0.1, 24.3 at 0.02.
    assert left("--objective", "ipo") == [1]
    assert left("--objective", "ipo", "--set", "tau=0.02") == []
    assert left("--objective", "ipo", "--set", "tau=0.4") == [1, 2]
    assert left("--set", "beta=0.01") == left("--beta", "0.01") == []
    lengths = {"chosen_length": 4, "rejected_length": 4}
    sized = written(tmp_path / "sized.jsonl", [PLAIN[0] | LOGPS | lengths])
    found = json.loads(polopt("audit", "preferences", sized, "--objective", "simpo", "--json").stdout)["flips"]
    assert (found["ranks_by"], found["wrong"], found["left_wrong"]) == ("mean", [1], [])
    assert "slic adds other terms" in flat(polopt("audit", "preferences", file, "--objective", "slic").output)


def test_a_model_computes_what_the_file_lacks(tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.jsonl", PLAIN[:3])
    tasks = PairReader().read(file)
    texts = [("pairs", tasks[i].prompt, answer.text) for i in range(3) for answer in tasks[i].rated]
    config = {
        "model_type": "gpt2",
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "n_positions": 32,
        "initializer_range": 0.3,
    }
    new_policy(config, texts, seed=0, dtype="float32").save(tmp_path / "model")
    found = json.loads(polopt("audit", "preferences", file, "--model", tmp_path / "model", "--json").stdout)
    assert len(found["flips"]["pairs"]) == 3
    assert found["flips"]["reference"] == str(tmp_path / "model")
    same = [pair["reference_margin"] for pair in found["flips"]["pairs"][:2]]
    assert same[0] == pytest.approx(same[1], abs=1e-6)
    assert same[0] != 0


ANNOTATED = [
    {"prompt": f"p{i}", "chosen": one, "rejected": other, "who": who, "principles": {"truth": sign, "brevity": None}}
    for i in range(4)
    for who, one, other, sign in (("ann", "x", "y", 1), ("bob", "x", "y", 1) if i else ("bob", "y", "x", -1))
]


def test_annotators_and_principles(tmp_path: Path) -> None:
    """Two annotators who differ on one prompt of four; the principle of truth is for x throughout."""
    file = written(tmp_path / "pairs.jsonl", ANNOTATED)
    found = json.loads(polopt("audit", "preferences", file, "--annotator", "who", "--json").stdout)
    assert found["agreement"]["annotators"] == {"ann": 4, "bob": 4}
    assert found["agreement"]["cohen_kappa"][0]["estimate"] == pytest.approx(2 * 0.75 - 1)
    assert found["duplicates"] == [], "two annotators' labels of one pair are no copies"
    assert found["discretion"]["consensus"] == 1
    assert found["discretion"]["arbitrariness of ann"] == 0
    assert found["discretion"]["arbitrariness of bob"] == pytest.approx(0.25)
    output = flat(polopt("audit", "preferences", file, "--annotator", "who").output)
    for text in ("annotators 2 4 pairs", "Cohen's kappa of ann and bob 0.50", "bob against consensus 25.0%"):
        assert text in output
    plain = json.loads(polopt("audit", "preferences", file, "--json").stdout)
    assert plain["agreement"] is None
    assert plain["discretion"]["arbitrariness of the labels"] == pytest.approx(0), "one of 4 pairs is a tie"


def test_the_page(tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.jsonl", [row | LOGPS for row in ANNOTATED])
    page = tmp_path / "pages" / "audit.html"
    result = polopt("audit", "preferences", file, "--annotator", "who", "--html", page)
    assert result.exit_code == 0, result.output
    assert "Report" in result.output
    text = page.read_text()
    assert all(name in text for name in ("lengths", "margins", "reach", "agreement", "discretion"))


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
            "line 1: RankedPairs: ref_chosen_logps must be sums of log-probabilities",
        ),
        (PLAIN, ["--annotator", "who"], "line 1: field 'who' is missing"),
        ([PLAIN[0] | {"who": " "}], ["--annotator", "who"], "line 1: field 'who' must be non-empty text"),
        (
            [PLAIN[0] | {"principles": {"truth": "much"}}],
            [],
            "line 1: truth must be a finite number, found",
        ),
        ([PLAIN[0] | {"principles": {"truth": 2}}], [], "line 1: principles.truth must be 1, -1, or 0"),
        (
            [ANNOTATED[0], ANNOTATED[1] | {"principles": {"truth": 1}}],
            ["--annotator", "who"],
            "lines 1 and 2: principles.truth prefers one answer in one and the other in the other",
        ),
        (PLAIN, ["--objective", "kto"], "--objective kto has no loss of given preference pairs"),
        (PLAIN, ["--objective", "ipo", "--beta", "0.1"], "beta"),
        (PLAIN, ["--set", "beta=0.1", "--beta", "0.2"], "--beta 0.2 and --set beta=0.1 differ"),
        ([PLAIN[0] | LOGPS], ["--objective", "simpo"], "simpo compares means over tokens"),
        (PLAIN, ["--model", "nowhere"], "nowhere holds no policy"),
    ],
)
def test_mistakes_get_a_sentence(tmp_path: Path, rows, options, sentence) -> None:
    result = polopt("audit", "preferences", written(tmp_path / "pairs.jsonl", rows), *options)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
