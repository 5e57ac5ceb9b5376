"""The preferences recipe from the command line: trained, evaluated, compared, and its data."""

from __future__ import annotations

from pathlib import Path

from command import flat, polopt

from benchmarks import preferences
from polopt.worlds.rows import read_rows


def test_the_recipe_trains_and_is_judged_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    few = ["--set", "stages.warmup.steps=2", "--set", "stages.dpo.steps=3", "--set", "evaluation.every=2"]
    result = polopt("train", "preferences", "--run", folder, *few)
    assert result.exit_code == 0, result.output
    assert "Held-out preference accuracy" in result.output
    assert (folder / "report.html").is_file()
    again = polopt("evaluate", folder)
    assert again.exit_code == 0, again.output
    assert "preference_accuracy" in again.output
    assert "Share of pairs" in flat(again.output)
    refused = polopt(
        "train", "preferences", "--method", "grpo", "--set", "stages.dpo.group=8", "--run", tmp_path / "other"
    )
    assert refused.exit_code == 2
    assert "nothing verifies them" in flat(refused.output)


def test_the_recipes_pairs_are_what_its_script_writes() -> None:
    assert [row for _, row in read_rows(preferences.PATH, dict)] == preferences.pairs()
    assert len({row["prompt"] for row in preferences.pairs()}) == preferences.COUNT
    assert all(len(row["chosen"]) == len(row["rejected"]) for row in preferences.pairs())
