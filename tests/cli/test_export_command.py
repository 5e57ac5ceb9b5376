"""polopt export."""

from pathlib import Path

from command import flat, polopt


def test_a_recipe_is_written_with_the_command_and_what_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    refused = polopt("export", "smoke", "--to", "trl", "--folder", str(folder))
    assert refused.exit_code == 2
    assert "export the run" in flat(refused.output)
    run = tmp_path / "run"
    short = ["--set", "stages.warmup.steps=1", "--set", "stages.rl.steps=1", "--set", "evaluation.problems=2"]
    assert polopt("train", "smoke", "--run", str(run), *short).exit_code == 0
    done = polopt("export", str(run), "--to", "verl", "--method", "gspo", "--folder", str(folder))
    assert done.exit_code == 0
    assert "left out: warmup" in flat(done.output)
    assert f"bash {folder / 'train.sh'}" in flat(done.output)
    assert "loss_mode: polopt/gspo" in (folder / "verl.yaml").read_text()


def test_a_trainer_that_is_not_there_is_refused() -> None:
    refused = polopt("export", "smoke", "--to", "trlx")
    assert refused.exit_code == 2
    assert "trl or verl" in refused.output
