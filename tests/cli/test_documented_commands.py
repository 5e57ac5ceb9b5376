"""Every command that the README and the docs show runs, in order, on a recipe of seconds in the laptop's place."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import vllm_stand_in
from command import polopt

from polopt import recipes

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^    polopt (.*?)(?:  +#.*)?$", re.MULTILINE)
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def place(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, where the main recipe is the tiny one."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "laptop.yaml").write_text(recipe.read_text())
    monkeypatch.setattr(recipes, "FOLDER", tmp_path / "recipes")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def run(page: str) -> None:
    for line in COMMAND.findall((ROOT / page).read_text()):
        arguments = shlex.split(line.replace("--seeds 5", "--seeds 1").replace("steps=50", "steps=3"))
        result = polopt(*arguments)
        assert result.exit_code == 0, f"polopt {line}\n{result.output}\n{result.exception!r}"


def test_readme(place: Path) -> None:
    run("README.md")
    assert (place / "runs" / "mine" / "report.html").is_file()


def test_getting_started(place: Path) -> None:
    run("docs/getting-started.md")
    assert (place / "runs" / "first" / "report.html").is_file()
    assert "gspo" in (place / "runs" / "third" / "recipe.yaml").read_text()


def test_vllm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", vllm_stand_in)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    run("docs/vllm.md")
    (made,) = (place / "runs").iterdir()
    assert "engine: vllm" in (made / "recipe.yaml").read_text()


def test_plan(place: Path) -> None:
    run("docs/plan.md")
    assert not (place / "runs").exists()


def test_solve(place: Path) -> None:
    page = "docs/solve.md"
    (code,) = (code for code in SNIPPET.findall((ROOT / page).read_text()) if "def one_card" in code)
    (place / "my_game.py").write_text(code)
    run(page)
    assert (place / "runs" / "kuhn" / "report.html").is_file()


def test_generative(place: Path) -> None:
    (place / "digits").write_text((ROOT / "polopt/recipes/digits.yaml").read_text())
    run("docs/generative.md")
    assert (place / "runs" / "digits" / "report.html").is_file()


def test_control(place: Path) -> None:
    (place / "cartpole").write_text((ROOT / "polopt/recipes/cartpole.yaml").read_text())
    run("docs/control.md")
    assert (place / "runs" / "cartpole" / "report.html").is_file()


def written(page: str, place: Path, **files: str) -> None:
    """Writes a page's blocks of code as files, by a word that only one of them holds."""
    blocks = re.findall(r"```(?:python|yaml)\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    for name, word in files.items():
        (code,) = (block for block in blocks if word in block)
        (place / name.replace("_", ".")).write_text(code)


def test_own_environment(place: Path) -> None:
    page = "docs/own-environment.md"
    written(page, place, heater_py="class Heater", heater_yaml="heater.py:Heater-v0")
    run(page)
    assert "How often must it look?" in (place / "runs" / "heater" / "report.html").read_text()


def test_offline_data(place: Path) -> None:
    page = "docs/offline-data.md"
    written(page, place, log_py="np.savez", offline_yaml="transitions: log.npz")
    exec((place / "log.py").read_text(), {})
    run(page)
    assert (place / "runs" / "offline" / "report.html").is_file()


def test_swarm(place: Path) -> None:
    text = (ROOT / "polopt/recipes/sapo-swarm.yaml").read_text()
    text = text.replace("steps: 20", "steps: 2").replace("steps: 60", "steps: 2").replace("rows: 64", "rows: 16")
    (place.parent / "recipes" / "sapo-swarm.yaml").write_text(text)
    run("docs/swarm.md")
    assert sorted(node.name for node in (place / "runs" / "swarm").iterdir()) == ["one", "two"]


def test_bridges(place: Path) -> None:
    run("docs/bridges.md")
    assert (place / "out" / "trl" / "train.py").is_file()
    assert "loss_mode: polopt/gspo" in (place / "out" / "verl" / "verl.yaml").read_text()


def test_adding_a_method(place: Path) -> None:
    page = "docs/adding-a-method.md"
    snippets = SNIPPET.findall((ROOT / page).read_text())
    kept = [code for code in snippets if "class GroupDeviation" in code or "def deviation_grpo" in code]
    (place / "deviation.py").write_text("\n".join(kept))
    run(page)


def test_measure(place: Path) -> None:
    page = "docs/measure.md"
    exec("\n".join(SNIPPET.findall((ROOT / page).read_text())[:2]), {})
    run(page)


def test_compare_while_trials_run(place: Path) -> None:
    page = "docs/compare-while-trials-run.md"
    exec(SNIPPET.findall((ROOT / page).read_text())[0], {})
    run(page)
    assert "Policies that share a letter" in (place / "trials.html").read_text()


def test_judges(place: Path) -> None:
    """The pairs are those of the recipe `preferences`."""
    text = (ROOT / "polopt/recipes/data/preferences.jsonl").read_text()
    (place / "pairs.jsonl").write_text("\n".join(text.splitlines()[:40]))
    (place / "judges.csv").write_text("judge,cost,accuracy\nsmall,0.01,0.7\nlarge,0.05,0.9\n")
    run("docs/judges.md")
    names = ["compares", "gaussian", "hiring-agents-paid-judges-1", "judge"]
    assert sorted(fit.name for fit in (place / "runs").iterdir()) == names
    assert (place / "runs" / "judge" / "results.json").is_file()


def test_guards(place: Path) -> None:
    page = "docs/guards.md"
    (place.parent / "recipes" / "smoke.yaml").write_text((ROOT / "polopt/recipes/smoke.yaml").read_text())
    exec("\n".join(SNIPPET.findall((ROOT / page).read_text())[:2]), {})
    run(page)
    (made,) = (place / "runs").iterdir()
    assert "signal/refused" in (made / "metrics.jsonl").read_text()


def test_claims(place: Path) -> None:
    run("docs/claims.md")
