"""A run goes on as it began, from wherever it lies: files, recipe and versions are compared, moved ones found again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from project_runs import STAGES, project, small
from tiny_runs import Stop, StopAt, outcome

from polopt.errors import PoloptWarning
from polopt.training import environment, origin
from polopt.training.conversion import policy_at
from polopt.training.launch import resume, train
from polopt.training.run import Run, RunError
from polopt.training.trained import evaluate_folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(project folder with a stopped and a whole run in it, outcome of the whole one)."""
    threads = torch.get_num_threads()
    here = project(tmp_path_factory.mktemp("made") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        train(small(), "whole")
        with pytest.raises(Stop):
            train(small(), "stopped", watchers=(StopAt(3),))
    yield here, outcome(here / "whole")
    torch.set_num_threads(threads)


@pytest.fixture
def home(made: Any, tmp_path: Path) -> Path:
    """A copy of the project, in which the stopped run says that it began."""
    copy = shutil.copytree(made[0], tmp_path / "home")
    for name in ("stopped", "whole"):
        path = copy / name / "run.json"
        path.write_text(path.read_text().replace(str(made[0]), str(copy)))
    return copy


def test_run_json_says_what_the_run_began_with(made: Any) -> None:
    about = json.loads((made[0] / "stopped" / "run.json").read_text())
    data, code = made[0] / "tasks.jsonl", made[0] / "rewards" / "mine.py"
    found = {e["setting"]: (e["named"], e["path"], e["sha256"], e["bytes"]) for e in about["files"]}
    for setting, named, path in (
        ("tasks.path", "tasks.jsonl", data),
        ("tasks.verifier", "rewards/mine.py", code),
    ):
        content = path.read_bytes()
        assert found[setting] == (named, str(path), hashlib.sha256(content).hexdigest(), len(content))
    assert len(found) == 2
    recipe = (made[0] / "stopped" / "recipe.yaml").read_bytes()
    assert about["recipe_sha256"] == hashlib.sha256(recipe).hexdigest()
    assert about["directory"] == str(made[0])
    assert about["torch"] == torch.__version__
    assert about["transformers"] == __import__("transformers").__version__
    assert about["python"] == ".".join(map(str, sys.version_info[:3]))
    assert about["threads"] == 1
    assert about["machine"]["cpu"] == environment.processor()
    assert about["machine"]["cores"] == len(os.sched_getaffinity(0))
    for name in ("tasks.jsonl", "mine.py"):
        source = data if name == "tasks.jsonl" else code
        assert (made[0] / "stopped" / "code" / name).read_bytes() == source.read_bytes()


def test_the_processor_is_named_as_the_system_names_it() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    assert environment.processor() in (names or {environment.platform.machine()})


def test_files_that_a_recipe_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code by path and by module, data, and models by folder; no words that happen to be files, no libraries."""
    for name in (
        "a.py",
        "mod_of_mine.py",
        "data.jsonl",
        "grpo",
        "cache.db",
        "base/config.json",
        "base/model.safetensors",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "base" / "README.md").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("mod_of_mine")
    recipe = {
        "policy": {"model": "base"},
        "tasks": {"path": "data.jsonl", "heldout": str(tmp_path / "data.jsonl"), "text": "no.such"},
        "stages": {"rl": {"method": "grpo", "but": {"reward": [{"part": "a.py:F"}, {"part": "mod_of_mine:G"}]}}},
        "library": "json:loads",
        "cache": "./cache.db",
    }
    found = {(f.setting, f.kind, f.path.name) for f in origin.named_files(recipe, tmp_path)}
    assert found == {
        ("policy.model", "model", "config.json"),
        ("policy.model", "model", "model.safetensors"),
        ("tasks.path", "data", "data.jsonl"),
        ("stages.rl.but.reward.0.part", "code", "a.py"),
        ("stages.rl.but.reward.1.part", "module", "mod_of_mine.py"),
    }


def changed_version(name: str) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        path = home / "stopped" / "run.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {name: "0.0"}))

    return change


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        text = (home / name).read_text()
        assert old in text
        (home / name).write_text(text.replace(old, new, 1))

    return change


# What changed -> what is said of it.
CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "rows": (replaced("tasks.jsonl", '"answer": "0"', '"answer": "1"'), r"tasks\.path = tasks\.jsonl: .* sha256 "),
    "a-row-more": (replaced("tasks.jsonl", "{", '{"prompt": "x", "answer": "y"}\n{'), r"tasks\.path = tasks\.jsonl: "),
    "reward": (replaced("rewards/mine.py", "0.1", "0.2"), r"tasks\.verifier = rewards/mine\.py: .* sha256 "),
    "polopt": (changed_version("polopt"), r"polopt 0\.0 -> "),
    "torch": (changed_version("torch"), r"torch 0\.0 -> "),
    "transformers": (changed_version("transformers"), r"transformers 0\.0 -> "),
    "method": (replaced("stopped/recipe.yaml", "name: grpo", "name: rloo"), r"stages\.rl\.method\.name grpo -> rloo"),
    "steps": (replaced("stopped/recipe.yaml", "steps: 4", "steps: 5"), r"stages\.rl\.steps 4 -> 5"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_run_is_refused(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    change, sentence = CHANGES[name]
    change(home)
    with pytest.raises(RunError, match=sentence) as caught:
        origin.require_unchanged(Run(Path("stopped")))
    assert "--anyway" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert origin.require_unchanged(Run(Path("stopped")), anyway=True)


@pytest.mark.parametrize(("name", "sentence"), [("python", "python 0.0 -> "), ("numpy", "numpy 0.0 -> ")])
def test_what_may_only_matter_is_a_warning(name: str, sentence: str, home: Path) -> None:
    changed_version(name)(home)
    with pytest.warns(PoloptWarning, match=sentence):
        assert origin.require_unchanged(Run(home / "stopped")) == []


def test_another_processor_is_a_warning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "processor", lambda: "Abacus 3000")
    monkeypatch.setattr(origin, "cores", lambda: 0)
    with pytest.warns(PoloptWarning, match="processor .* -> Abacus 3000, 1 threads on 0 cores"):
        origin.require_unchanged(Run(home / "stopped"))


def test_anyway_is_noted_and_is_the_beginning_from_then_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    (home / "tasks.jsonl").open("a").write('{"prompt": "say 99", "answer": "9"}\n')
    before = Run(Path("stopped")).about
    with pytest.raises(RunError):
        resume("stopped")
    assert Run(Path("stopped")).about == before
    with pytest.raises(Stop):
        resume("stopped", anyway=True, watchers=(StopAt(4),))
    (note,) = Run(Path("stopped")).about["anyway"]
    assert note["step"] == 3
    assert "tasks.jsonl" in note["changed"][0]
    resume("stopped")
    assert Run(Path("stopped")).about["finished"]


@pytest.mark.parametrize("there", ["elsewhere", "/", "inside"])
def test_a_run_goes_on_from_any_working_directory(
    there: str, home: Path, tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"elsewhere": tmp_path / "elsewhere", "/": Path("/"), "inside": home / "stopped"}[there]
    place.mkdir(exist_ok=True)
    # Another file of the same name, where the command is given.
    if there == "elsewhere":
        (place / "tasks.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    monkeypatch.chdir(place)
    resume(os.path.relpath(home / "stopped"))
    assert Path.cwd() == place
    assert outcome(home / "stopped") == made[1]


def moved(home: Path, to: Path) -> Path:
    """The run's folder alone, in another place; the project is gone."""
    shutil.move(home / "stopped", to)
    shutil.rmtree(home)
    return to


def test_a_moved_run_uses_its_copies(home: Path, tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = moved(home, tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(PoloptWarning, match="are gone, and their copies are used: .*mine.py") as caught:
        resume("moved")
    assert len(caught) == 1
    assert outcome(run) == made[1]
    assert yaml.safe_load((run / "recipe.yaml").read_text())["tasks"]["path"] == "tasks.jsonl"
    # A copy that is not what was copied is not used.
    (run / "code" / "mine.py").write_text("def near(completion, row):\n    return 0.0\n")
    with pytest.raises(RunError, match=r"tasks\.verifier = rewards/mine\.py: .*code/mine\.py holds other bytes"):
        resume(run)
    shutil.rmtree(run / "code")
    with pytest.raises(RunError, match=r"tasks\.jsonl is gone"):
        resume(run)


def test_a_moved_project_is_found_where_the_command_is_given(
    home: Path, tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.move(home, tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PoloptWarning)
        resume("stopped")
    assert outcome(tmp_path / "new" / "stopped") == made[1]


def test_a_run_is_evaluated_and_read_from_elsewhere(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    here = evaluate_folder("whole", samples=2).record()
    parameters = dict(policy_at("whole").named_parameters())
    monkeypatch.chdir(tmp_path)
    assert evaluate_folder("home/whole", samples=2).record() == here
    again = dict(policy_at("home/whole").named_parameters())
    assert all(torch.equal(again[name], value) for name, value in parameters.items())


def test_the_threads_that_a_run_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that leaves the number open is continued with the number that it began with."""
    here = project(tmp_path / "home")
    monkeypatch.chdir(here)
    stages = {"warmup": STAGES["warmup"]}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    with pytest.raises(Stop):
        train(small(threads=None, stages=stages), "run", watchers=(StopAt(0),))
    assert asked == []
    assert Run(Path("run")).about["threads"] == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(origin, "cores", lambda: 3)
    resume("run")
    assert asked == [3]
