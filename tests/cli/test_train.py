"""polopt train, report: what they print, write and refuse; Ctrl-C and resume."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from command import flat, lines, polopt, without_clocks
from safetensors.torch import load_file

from polopt.training import recipe as recipes
from polopt.training.estimate import answer_lengths, estimate, memory
from polopt.training.language import LanguageDomain


def test_a_run_says_before_and_after_and_where_to_look(trained: tuple[Path, str]) -> None:
    folder, output = trained
    after = next(e for e in lines(folder, "evaluations") if e["when"] == "after")
    shown = f"{100 * after['pass@1']['estimate']:.1f} % [{100 * after['pass@1']['low']:.1f}"
    table = next(line for line in output.splitlines() if line.startswith("all "))
    assert shown in table
    assert "12" in table.split()
    for kind in ("first", "last"):
        assert any(line.startswith(kind) for line in output.splitlines())
    assert str(folder / "report.html") in output
    assert (folder / "report.html").is_file()
    assert (folder / "policy" / "config.json").is_file()


def test_the_samples_shown_are_solved_or_not(trained: tuple[Path, str]) -> None:
    folder, output = trained
    after = [s for s in lines(folder, "samples") if s["when"] == "after"]
    solved, unsolved = (min(3, sum(s["solved"] is kind for s in after)) for kind in (True, False))
    assert (output.count("✓"), output.count("✗")) == (solved, unsolved)


def test_set_seed_and_method_reach_the_recipe(recipe: Path) -> None:
    changes = ["--set", "stages.rl.but.objective.trust.high=0.28", "--set", "stages.warmup.optimiser.lr=1e-4"]
    result = polopt("train", recipe, "--method", "dr-grpo", "--seed", 7, *changes, "--dry-run")
    assert result.exit_code == 0, result.output
    found = yaml.safe_load(result.output.partition("\nwarmup: ")[0])
    assert found["stages"]["rl"]["method"] == "dr-grpo"
    assert found["stages"]["rl"]["but"] == {"objective.trust.high": 0.28}
    assert found["stages"]["warmup"]["optimiser"]["lr"] == 1e-4
    assert found["seed"] == 7


def test_the_same_method_keeps_the_recipes_settings(recipe: Path) -> None:
    assert recipes.load(recipe, method="grpo").stages["rl"].method == {"name": "grpo", "kl": 0.0}
    assert recipes.load(recipe, method="rloo").stages["rl"].method == "rloo"


def test_dry_run_tells_everything_and_leaves_nothing(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = polopt("train", recipe, "--dry-run")
    assert result.exit_code == 0, result.output
    for word in ("parameters", "memory", "time", "objectives.Surrogate", "sampling.Rollouts"):
        assert word in result.output
    assert list(tmp_path.iterdir()) == []


def test_answers_are_expected_as_long_as_demonstrations(recipe: Path, tmp_path: Path) -> None:
    letters = random.Random(0)
    answers = ["".join(letters.choices("abcdefgh", k=1 + i % 5)) for i in range(50)]  # 1 to 5 letters
    rows = [{"prompt": f"{i}: ", "answer": answer} for i, answer in enumerate(answers)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = {"kind": "dataset", "path": str(tmp_path / "rows.jsonl"), "heldout": 0.02}
    domain = LanguageDomain(recipes.load(recipe, {"limit": 20, "tasks": tasks}))
    solutions = [domain.splits["rl"].train[i].solution for i in range(len(domain.splits["rl"].train))]
    tokens = sorted(len(domain.policy.tokenizer.encode(s)) + 1 for s in solutions)  # and the stop token
    typical, long = answer_lengths(domain, "rl")
    assert tokens[len(tokens) // 2 - 1] <= typical <= tokens[len(tokens) // 2]
    assert long == tokens[-1] > typical > tokens[0]
    alone = recipes.load(recipe, {"limit": 20, "stages": {"rl": {"method": "rloo", "steps": 1, "rows": 4}}})
    assert answer_lengths(LanguageDomain(alone), "rl") == (10, 20)


def test_the_estimate_counts_what_the_run_has(recipe: Path, trained: tuple[Path, str]) -> None:
    found = estimate(recipes.load(recipe), seconds=0.5)
    weights = load_file(trained[0] / "policy" / "model.safetensors")
    parameters = sum(w.numel() for w in weights.values())
    assert found.parameters == parameters
    held = found.memory.items
    assert held["Adam state"] == 2 * held["weights"] == 8 * parameters
    # The same by hand: 1 layer of width 32 with 2 heads; rows of 16, at most "first abca: " and 4 new tokens.
    length = held["KV cache"] / (2 * 4 * 1 * 16 * 32)
    assert length == int(length)
    assert 4 < length <= 1 + 12 + 4
    judged = 6 + 12 + 6 + 12  # after step 2 of each stage, before and after the last
    for end in ("low", "likely", "high"):
        warmup, rl, problem = (getattr(s, end) for s in (found.steps["warmup"], found.steps["rl"], found.problem))
        total = found.preparing + 3 * warmup + 4 * rl + judged * problem
        assert getattr(found.total, end) == pytest.approx(total)
    assert all(s.low < s.likely < s.high for s in (*found.steps.values(), found.total))


def test_the_estimate_knows_of_checkpointing(recipe: Path, tmp_path: Path) -> None:
    """Three layers keep their inputs, and one of them the rest too."""
    width, heads, layers, length = 32, 2, 3, 10 + 4

    def activations(keeps: bool) -> float:
        changes = {"policy.config.n_layer": layers, "policy.checkpointing": keeps, "stages.rl.micro_rows": 1}
        changes |= {"stages.warmup.micro_rows": 1}
        settings = recipes.load(recipe, changes)
        return memory(settings, LanguageDomain(settings).policy, 10).learning["activations"]

    layer = 17 * width + heads + 4
    assert activations(False) == 4 * length * layers * layer
    assert activations(True) == 4 * length * (layers * width + layer)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "stages.rl.stepz=3"], "stages.rl.stepz is not a setting; did you mean 'steps'?"),
        (["--set", "stages.rll.steps=3"], "there is no stage 'rll'; did you mean 'rl'?"),
        (["--set", "stages.rl.steps=many"], "stages.rl.steps = 'many': expected"),
        (["--set", "stages.rl.steps"], "expected key=value"),
        (["--set", "limit=0"], "limit = 0: expected"),
        (["--set", "tasks.kind=datasets"], "tasks.kind = 'datasets' is not a world; did you mean 'dataset'?"),
        (["--set", "tasks.pth=x"], "tasks.pth is not a setting; did you mean 'path'?"),
        (["--set", "stages.rl.but.objective.trust.hihg=1"], "has no setting 'hihg'; did you mean 'high'?"),
        (["--set", "policy.config.n_embed=8"], "n_embed is not a setting of gpt2; did you mean 'n_embd'?"),
        (["--set", "policy.config.model_type=gtp2"], "'gtp2' is no architecture of transformers; did you"),
        (["--method", "gsop"], "there is no method 'gsop'; did you mean 'gspo'?"),
        (["--method", "{name: grpo, clp: 1}"], "has no setting 'clp'; did you mean 'clip'?"),
        (["--resume", "nowhere"], "--resume continues a run as it was begun: give it alone"),
    ],
)
def test_a_mistake_gets_one_sentence(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = polopt("train", recipe, *arguments)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
    assert "Traceback" not in result.output
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_is_never_overwritten(recipe: Path, trained: tuple[Path, str]) -> None:
    """Given again, the command of a finished run trains nothing; that of another recipe is refused."""
    before = {p: p.read_bytes() for p in trained[0].rglob("*") if p.is_file()}
    again = polopt("train", recipe, "--run", trained[0])
    assert again.exit_code == 0, again.output
    assert again.stdout == f"{trained[0]} has finished already: nothing was trained\n"
    for setting, sentence in (
        ("seed=3", "holds a run of another recipe: seed 0 -> 3; name another folder"),
        ("stages.rl.steps=6", f"extend it with --resume {trained[0]} --set stages.rl.steps=6, or name another folder"),
    ):
        other = polopt("train", recipe, "--run", trained[0], "--set", setting)
        assert other.exit_code == 2
        assert sentence in flat(other.stderr)
    assert {p: p.read_bytes() for p in trained[0].rglob("*") if p.is_file()} == before


def test_an_unexpected_error_keeps_its_traceback(recipe: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from polopt.training import launch

    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug of ours")

    monkeypatch.setattr(launch, "train", broken)
    result = polopt("train", recipe, "--run", tmp_path / "run")
    assert isinstance(result.exception, ValueError)
    assert result.exit_code == 1


# Runs polopt and, when it opens the file of its first argument for a third line, sends itself what Ctrl-C sends.
# Another process would be too late on a busy machine: a step takes milliseconds.
INTERRUPTED = """
import os, signal, sys
from polopt.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
metrics, opened = sys.argv.pop(1), []

def interrupt(event, arguments):
    if event == "open" and str(arguments[0]) == metrics and arguments[1] == "a":
        opened.append(True)
        if len(opened) == 3:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
main()
"""


def test_ctrl_c_then_resume_gives_equal_weights(recipe: Path, trained: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", INTERRUPTED, str(folder / "metrics.jsonl")]
    command += ["train", str(recipe), "--run", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    output, trouble = process.communicate(timeout=120)
    assert process.returncode == 130, trouble
    assert trouble == ""
    assert output.splitlines()[-1].endswith(f"polopt train --resume {folder}")
    assert len(lines(folder, "metrics")) == 2

    # As a job that is started again with the same command does; `--resume` is the other way.
    result = polopt("train", recipe, "--run", folder)
    assert result.exit_code == 0, result.output
    whole, resumed = (load_file(f / "policy" / "model.safetensors") for f in (trained[0], folder))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[k], resumed[k]) for k in whole)
    for log in ("metrics", "evaluations", "samples"):
        assert without_clocks(lines(folder, log)) == without_clocks(lines(trained[0], log))


def test_a_run_is_extended(recipe: Path, trained: tuple[Path, str], tmp_path: Path) -> None:
    folder = shutil.copytree(trained[0], tmp_path / "run")
    longer = polopt("train", "--resume", folder, "--set", "stages.rl.steps=6", "--set", "checkpoint.best=pass@1")
    assert longer.exit_code == 0, longer.output
    assert [m["stage_step"] for m in lines(folder, "metrics")] == [0, 1, 2, *range(6)]
    after = [e for e in lines(folder, "evaluations") if e["when"] == "after"]
    assert [e["step"] for e in after] == [7, 9]
    shown = f"{100 * after[-1]['pass@1']['estimate']:.1f} % [{100 * after[-1]['pass@1']['low']:.1f}"
    assert shown in next(line for line in longer.output.splitlines() if line.startswith("all "))
    judged = [polopt("evaluate", folder, "--json", *more).stdout for more in ((), ("--checkpoint", "last"))]
    assert json.loads(judged[0]) == json.loads(judged[1])
    assert polopt("evaluate", folder, "--checkpoint", "best").exit_code == 0
    wrong = polopt("evaluate", folder, "--checkpoint", "first")
    assert wrong.exit_code == 2
    assert "'first' is no checkpoint: give its step, best or last" in flat(wrong.stderr)
    for setting, sentence in (
        ("stages.rl.rows=32", "stages.rl.rows 16 -> 32 would make it another run"),
        ("stages.warmup.steps=9", "stages.warmup.steps 3 -> 9 would make it another run"),
        ("stages.rl.steps=5", "stages.rl.steps 6 -> 5 would shorten"),
    ):
        refused = polopt("train", "--resume", folder, "--set", setting)
        assert refused.exit_code == 2
        assert sentence in flat(refused.stderr)


def test_changed_data_needs_anyway(recipe: Path, tmp_path: Path) -> None:
    data = tmp_path / "tasks.jsonl"
    shutil.copy(recipe.parent / "tasks.jsonl", data)
    command = ("train", recipe, "--run", tmp_path / "run", "--set", f"tasks.path={data}")
    short = ("--set", "stages.warmup.steps=1", "--set", "stages.rl.steps=1", "--set", "evaluation.every=0")
    assert polopt(*command, *short).exit_code == 0
    data.write_text(data.read_text().replace('"answer": "a"', '"answer": "b"', 1))
    refused = polopt("train", "--resume", tmp_path / "run")
    assert refused.exit_code == 2
    assert "tasks.jsonl holds other bytes, sha256" in flat(refused.stderr)
    assert polopt("train", "--resume", tmp_path / "run", "--anyway").exit_code == 0


def test_fresh_folders_are_numbered(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--set", "stages.warmup.steps=1", "--set", "stages.rl.steps=1", "--set", "evaluation.every=0"]
    for n in (1, 2):
        assert polopt("train", recipe, *short).exit_code == 0
        assert (tmp_path / "runs" / f"tiny-grpo-{n}" / "report.html").is_file()


def test_report_is_written_again(trained: tuple[Path, str], tmp_path: Path) -> None:
    (trained[0] / "report.html").unlink()
    assert polopt("report", trained[0]).exit_code == 0
    assert (trained[0] / "report.html").is_file()
    refused = polopt("report", tmp_path / "nowhere")
    assert refused.exit_code == 2
    assert "is not a folder" in flat(refused.stderr)
