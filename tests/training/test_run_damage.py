"""Damaged run folders: each is passed over with one warning, or refused in one sentence; nothing else is trained."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from project_runs import project, small
from tiny_runs import Stop, StopAt, outcome

from polopt.errors import PoloptWarning, UserError
from polopt.training import origin
from polopt.training.checkpoints import Checkpoint
from polopt.training.launch import resume, train
from polopt.training.run import Run, RunError

# Of a run that was stopped after its fifth step: checkpoints of steps 3 and 4.
LAST, BEFORE = "checkpoints/00000004", "checkpoints/00000003"
Damage = Callable[[Path], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(folder of a stopped run, outcome of the same run undisturbed), from a project folder."""
    threads = torch.get_num_threads()
    here = project(tmp_path_factory.mktemp("project") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        train(small(), here / "whole")
        with pytest.raises(Stop):
            train(small(), here / "stopped", watchers=(StopAt(4),))
    yield here / "stopped", outcome(here / "whole")
    torch.set_num_threads(threads)


@pytest.fixture
def run(made: Any, tmp_path: Path) -> Path:
    return shutil.copytree(made[0], tmp_path / "run")


def opened(folder: Path) -> Checkpoint | None:
    """What `resume` does before it trains."""
    found = Run.open(folder)
    origin.require_unchanged(found)
    with origin.entered(found), found.exclusive():
        return found.restore()


def flip(file: str, at: float = 0.5) -> Damage:
    def damage(run: Path) -> None:
        content = bytearray((run / file).read_bytes())
        content[int(at * (len(content) - 1))] ^= 1
        (run / file).write_bytes(content)

    return damage


def cut(file: str, to: float = 0.5) -> Damage:
    return lambda run: os.truncate(run / file, int(to * (run / file).stat().st_size))


def gone(file: str) -> Damage:
    return lambda run: shutil.rmtree(run / file) if (run / file).is_dir() else (run / file).unlink()


def written(file: str, content: bytes) -> Damage:
    return lambda run: (run / file).write_bytes(content)


def edited(file: str, old: str, new: str) -> Damage:
    def damage(run: Path) -> None:
        text = (run / file).read_text()
        assert old in text
        (run / file).write_text(text.replace(old, new))

    return damage


def linked(name: str) -> Damage:
    def damage(run: Path) -> None:
        (run / name).rename(run.parent / "elsewhere")
        (run / name).symlink_to(run.parent / "elsewhere")

    return damage


def both(first: Damage, second: Damage) -> Damage:
    return lambda run: (first(run), second(run))


def folder(name: str, *inside: str) -> Damage:
    def damage(run: Path) -> None:
        (run / name).mkdir()
        for file in inside:
            (run / name / file).write_bytes(b"")

    return damage


STATE, TENSORS = f"{LAST}/state.json", f"{LAST}/state.safetensors"
# The last checkpoint cannot be used, and the one before it is.
FALLS_BACK: dict[str, Damage] = {
    "tensors-flipped": flip(TENSORS),
    "tensors-flipped-in-header": flip(TENSORS, 0.001),
    "tensors-flipped-at-end": flip(TENSORS, 1.0),
    "tensors-cut": cut(TENSORS),
    "tensors-empty": cut(TENSORS, 0.0),
    "tensors-gone": gone(TENSORS),
    "tensors-longer": lambda run: (run / TENSORS).open("ab").write(b"\0"),
    "tensors-of-another": lambda run: shutil.copy(run / BEFORE / "state.safetensors", run / TENSORS),
    "tensors-text": written(TENSORS, b"nonsense"),
    "state-flipped": flip(STATE),
    "state-cut": cut(STATE),
    "state-empty": cut(STATE, 0.0),
    "state-gone": gone(STATE),
    "state-not-text": written(STATE, b"\xff\xfe\0"),
    "state-null": written(STATE, b"null"),
    "state-list": written(STATE, b"[]"),
    "state-object": written(STATE, b"{}"),
    "state-nested": written(STATE, b"[" * 100_000),
    "state-edited": edited(STATE, '"stage_step": 2', '"stage_step": 1'),
    "state-of-another": lambda run: shutil.copy(run / BEFORE / "state.json", run / STATE),
    "both-of-another": lambda run: shutil.copytree(run / BEFORE, run / LAST, dirs_exist_ok=True),
    "both-empty": both(cut(STATE, 0.0), cut(TENSORS, 0.0)),
    "stray-folder": both(gone(LAST), folder("checkpoints/99999999")),
    "stray-folder-with-files": both(gone(LAST), folder("checkpoints/99999999", "state.json", "state.safetensors")),
    "empty-folder": lambda run: [(run / LAST / name).unlink() for name in os.listdir(run / LAST)],
    "stray-file": both(gone(LAST), written("checkpoints/00000009", b"")),
    "metrics-one-line-short": lambda run: _without_lines(run / "metrics.jsonl", 3),
}
# Beside the checkpoints: nothing is lost.
HARMLESS: dict[str, Damage] = {
    "draft-left": folder("checkpoints/.draft-77", "state.json"),
    "old-left": folder("checkpoints/.old-00000002-77", "state.json"),
    "older-gone": gone(BEFORE),
    "older-empty": lambda run: [(run / BEFORE / name).unlink() for name in os.listdir(run / BEFORE)],
    "older-flipped": flip(f"{BEFORE}/state.safetensors"),
    "another-name": folder("checkpoints/last"),
    "short-number": folder("checkpoints/99"),
    "other-digits": folder("checkpoints/００００００９９"),
    "torn-line": lambda run: (run / "metrics.jsonl").open("a").write('{"step": 5, "lo'),
    "bytes-after": lambda run: (run / "samples.jsonl").open("ab").write(b"\0\xff\n"),
    "stale-lock": both(written(".lock", b""), written(".lock.json", b'{"host": "x", "pid": 1}')),
    "lock-not-json": written(".lock.json", b"\xff"),
    "drafts-of-files": both(written(".run.json.draft", b"{"), written(".recipe.yaml.draft", b"x")),
    "copy-of-code-gone": gone("code"),
}
# Nothing can be trusted to give the same run: one sentence with what it names.
REFUSED: dict[str, tuple[Damage, str]] = {
    "no-checkpoint-whole": (both(flip(TENSORS), cut(f"{BEFORE}/state.json")), "no checkpoint of .* is whole"),
    "reference-flipped": (flip("reference-rl.safetensors"), "reference-rl.safetensors holds other bytes"),
    "reference-gone": (gone("reference-rl.safetensors"), "reference-rl.safetensors is missing"),
    "reference-cut": (cut("reference-rl.safetensors"), "reference-rl.safetensors holds other bytes"),
    "metrics-gone": (gone("metrics.jsonl"), "metrics.jsonl has 0 bytes, and had"),
    "metrics-empty": (cut("metrics.jsonl", 0.0), "metrics.jsonl has 0 bytes, and had"),
    "metrics-flipped": (flip("metrics.jsonl", 0.1), "metrics.jsonl holds other lines"),
    "evaluations-cut": (cut("evaluations.jsonl"), "evaluations.jsonl has .* bytes, and had"),
    "samples-flipped": (flip("samples.jsonl", 0.1), "samples.jsonl holds other lines"),
    "about-gone": (gone("run.json"), "run.json does not record what the run began with"),
    "about-cut": (cut("run.json"), "run.json is cut short or damaged"),
    "about-empty": (cut("run.json", 0.0), "run.json is cut short or damaged"),
    "about-list": (written("run.json", b"[]"), "run.json is cut short or damaged"),
    "about-not-text": (written("run.json", b"\xff"), "run.json is cut short or damaged"),
    "about-of-another-torch": (edited("run.json", torch.__version__, "1.0"), "torch 1.0 -> "),
    "recipe-gone": (gone("recipe.yaml"), "is not a run"),
    "recipe-cut": (cut("recipe.yaml", 0.3), "recipe.yaml"),
    "recipe-empty": (cut("recipe.yaml", 0.0), "recipe.yaml: "),
    "recipe-not-yaml": (written("recipe.yaml", b"a: [b"), "recipe.yaml is not YAML"),
    "recipe-not-text": (written("recipe.yaml", b"\xff\xfe\xfa"), "recipe.yaml"),
    "recipe-seed": (edited("recipe.yaml", "seed: 0", "seed: 1"), "recipe.yaml: seed 0 -> 1"),
    "recipe-rows": (edited("recipe.yaml", "rows: 8", "rows: 16"), "recipe.yaml: stages.warmup.rows 8 -> 16"),
    "recipe-comment": (edited("recipe.yaml", "seed: 0", "seed: 0 # x"), "recipe.yaml is written differently"),
    "metrics-linked": (linked("metrics.jsonl"), "metrics.jsonl is a link to "),
    "checkpoints-linked": (linked("checkpoints"), "checkpoints is a link to "),
    "checkpoint-linked": (linked(LAST), "00000004 is a link to "),
    "tensors-linked": (linked(TENSORS), "state.safetensors is a link to "),
    "about-linked": (linked("run.json"), "run.json is a link to "),
    "recipe-linked": (linked("recipe.yaml"), "recipe.yaml is a link to "),
    "reference-linked": (linked("reference-rl.safetensors"), "reference-rl.safetensors is a link to "),
    "policy-linked": (lambda run: (run / "policy").symlink_to(run.parent), "policy is a link to "),
    "code-linked": (linked("code/mine.py"), "mine.py is a link to "),
    "lock-linked": (both(written(".lock.json", b""), linked(".lock.json")), ".lock.json is a link to "),
}


def _without_lines(path: Path, keep: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:keep]))


def test_the_run_is_as_this_file_says(made: Any, run: Path) -> None:
    assert Run(run)._checkpoints.steps() == [3, 4]
    assert len(Run(run).read("metrics")) == 5
    assert not [w for w in _warned(lambda: opened(run)) if issubclass(w.category, PoloptWarning)]
    assert len(Run(run).read("metrics")) == 4


def _warned(work: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return found


@pytest.mark.parametrize("name", FALLS_BACK)
def test_a_damaged_checkpoint_is_passed_over(name: str, run: Path) -> None:
    before = (run / BEFORE / "state.safetensors").read_bytes()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    FALLS_BACK[name](run)
    found: list[Any] = []
    (warning,) = _warned(lambda: found.append(opened(run)))
    assert issubclass(warning.category, PoloptWarning)
    assert "goes on from step 3" in str(warning.message)
    (checkpoint,) = found
    assert checkpoint.step == checkpoint.state["step"] == 3
    # What was loaded is what the file of that step holds, and the logs end with that step.
    again = Run(run)._checkpoints.place / "00000003" / "state.safetensors"
    assert again.read_bytes() == before
    assert (run / "metrics.jsonl").read_text().splitlines() == lines[:3]
    assert [p.name for p in (run / "checkpoints").iterdir() if p.name.startswith("damaged-")]
    assert not _warned(lambda: opened(run))


@pytest.mark.parametrize("name", HARMLESS)
def test_what_lies_beside_does_no_harm(name: str, run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    HARMLESS[name](run)
    found: list[Any] = []
    assert not _warned(lambda: found.append(opened(run)))
    assert found[0].step == 4
    assert (run / "metrics.jsonl").read_text().splitlines() == lines[:4]
    assert not [p for p in (run / "checkpoints").iterdir() if p.name.startswith((".draft", ".old"))]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_go_on_is_one_sentence(name: str, run: Path) -> None:
    damage, sentence = REFUSED[name]
    damage(run)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=sentence) as caught:
        resume(run)
    assert "\n" not in str(caught.value)
    after = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != ".lock"}
    assert after == {p: content for p, content in before.items() if p.name != ".lock"}


@pytest.mark.parametrize("name", ["tensors-flipped", "stray-folder", "empty-folder", "metrics-one-line-short"])
@pytest.mark.filterwarnings("ignore::polopt.errors.PoloptWarning")
def test_passing_over_ends_with_the_same_bits(name: str, run: Path, made: Any) -> None:
    FALLS_BACK[name](run)
    resume(run)
    assert outcome(run) == made[1]


def test_an_edited_log_is_taken_as_it_is_with_anyway(run: Path, made: Any) -> None:
    """And damaged weights are not."""
    edited("samples.jsonl", '"solved": false', '"solved": true ')(run)
    with pytest.raises(RunError, match=r"samples\.jsonl holds other lines .* continue with --anyway"):
        resume(run)
    resume(run, anyway=True)
    whole, found = made[1], outcome(run)
    assert found.pop("samples") != whole["samples"]
    assert found == {name: value for name, value in whole.items() if name != "samples"}
    flip("checkpoints/00000006/state.safetensors")(run)
    flip("checkpoints/00000005/state.safetensors")(run)
    with pytest.raises(RunError, match=r"state\.safetensors holds other bytes"):
        resume(run, anyway=True)


def test_a_removed_checkpoint_loses_its_name_first(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies while it removes an old checkpoint leaves nothing that looks like one."""

    def dies(path: Path, **_: Any) -> None:
        if Path(path).exists():
            (Path(path) / "state.json").unlink()
            raise Stop

    monkeypatch.setattr(shutil, "rmtree", dies)
    with pytest.raises(Stop):
        Run(run)._checkpoints.discard(run / BEFORE)
    monkeypatch.undo()
    assert [p.name for p in Run(run)._checkpoints.folders()] == ["00000004"]
    assert not _warned(lambda: opened(run))
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["00000004"]


def test_reading_a_damaged_checkpoint_is_refused(run: Path) -> None:
    flip(TENSORS)(run)
    with pytest.raises(RunError, match=r"step 4 .* is damaged: state.safetensors holds other bytes .* others are 3"):
        Run(run).tensors()
    assert Run(run).tensors(3)
    written("metrics.jsonl", b"{]\n")(run)
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged"):
        Run(run).read("metrics")


def test_digests_are_of_the_bytes(run: Path) -> None:
    """The recorded digests are sha256, computed by another program."""
    import subprocess

    state = json.loads((run / STATE).read_text())
    files = {run / TENSORS: state["files"]["state.safetensors"]}
    files[run / "reference-rl.safetensors"] = state["files"]["reference-rl.safetensors"]
    printed = subprocess.run(["sha256sum", *map(str, files)], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in printed.splitlines()] == list(files.values())
