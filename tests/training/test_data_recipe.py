"""The recipe of a method, a file and a model: how the file is read, what is trained, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from polopt.cli.app import app
from polopt.config import ConfigError
from polopt.training.data_recipe import data_recipe

ROWS: dict[str, dict[str, Any]] = {
    "pairs": {"chosen": "a", "rejected": "b"},
    "ranked": {"completions": ["a", "b", "c"], "scores": [0, 2, 1]},
    "labelled": {"completion": "a", "label": True},
    "dataset": {"answer": "a"},
}


def written(folder: Path, form: str, count: int = 40) -> str:
    path = folder / f"{form}.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"p{i}", **ROWS[form]}) for i in range(count)))
    return str(path)


@pytest.mark.parametrize(
    ("method", "form", "steps"),
    [("dpo", "pairs", 7), ("dpo", "ranked", 11), ("kto", "labelled", 4), ("kto", "pairs", 7), ("sft", "dataset", 4)],
)
def test_three_epochs_of_given_answers(method: str, form: str, steps: int, tmp_path: Path) -> None:
    """Of 40 prompts 36 are learned from: 72 answers in pairs, 108 in lists of three, 36 alone."""
    made = data_recipe(method, written(tmp_path, form), "some/model")
    (stage,) = made.stages.values()
    assert (made.tasks["kind"], stage.steps, stage.rows) == (form, steps, 32)
    assert (stage.optimiser.lr, stage.optimiser.decay) == (5e-6, "linear")


def test_a_method_that_samples(tmp_path: Path) -> None:
    made = data_recipe({"name": "rloo", "kl": 0.0}, written(tmp_path, "dataset"), "some/model", changes={"seed": 3})
    assert (made.stages["rloo"].steps, made.stages["rloo"].group, made.seed) == (100, 8, 3)


def test_unknown_fields_are_told(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"question": "?", "good": "a"}))
    with pytest.raises(
        ConfigError, match="first row has the fields good, question, and none of the forms that are read"
    ):
        data_recipe("dpo", str(path), "some/model")
    with pytest.raises(ConfigError, match="does not exist"):
        data_recipe("dpo", str(tmp_path / "none.jsonl"), "some/model")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dpo", "--data", "PAIRS"], "--data needs a method and a model"),
        (["--data", "PAIRS", "--model", "m"], "--data needs a method and a model"),
        (["--model", "m"], "--model and --heldout come with --data"),
        (["preferences", "--data", "PAIRS", "--model", "m"], "there is no method 'preferences'"),
    ],
)
def test_the_command_is_checked(arguments: list[str], message: str, tmp_path: Path) -> None:
    path = written(tmp_path, "pairs")
    done = CliRunner().invoke(app, ["train", *(path if a == "PAIRS" else a for a in arguments)])
    assert done.exit_code != 0
    assert message in " ".join((done.output + str(done.exception)).split())
