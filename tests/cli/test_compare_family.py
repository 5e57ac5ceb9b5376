"""polopt compare --family: two methods, two seeds, two worlds."""

import json
from pathlib import Path

import pytest
from command import flat, polopt

from polopt.training.families import family_settings

METHODS = ("grpo", "{name: rloo, kl: 0.0}")
KEY = "tasks.heldout"


@pytest.fixture(scope="module")
def compared(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("family")
    ways = ("--seeds", 2, "--recipe", recipe, "--run", folder, "--set", "threads=1", "--set", "stages.rl.steps=1")
    result = polopt("compare", *METHODS, *ways, "--family", f"{KEY}=0.25,0.5")
    assert result.exit_code == 0, result.output
    return folder, result.output


def test_the_mean_over_the_family_is_that_of_its_runs(compared: tuple[Path, str]) -> None:
    folder, _ = compared
    found = json.loads((folder / "family.json").read_text())
    assert found["settings"] == {f"{KEY}=0.25": {KEY: 0.25}, f"{KEY}=0.5": {KEY: 0.5}}
    ends = {}
    for name in ("grpo", "rloo-kl-0.0"):
        each = []
        for setting in found["settings"]:
            for seed in (0, 1):
                log = (folder / setting / f"{name}-seed-{seed}" / "evaluations.jsonl").read_text().splitlines()
                each.append(json.loads(log[-1])["pass@1"]["estimate"])
        ends[name] = sum(each) / 4
    assert found["values"]["grpo"] == pytest.approx(ends["grpo"])
    assert found["values"]["rloo(kl=0.0)"] == pytest.approx(ends["rloo-kl-0.0"])
    for name in ("grpo", "rloo(kl=0.0)"):
        interval = found["intervals"][name]
        assert interval["low"] <= found["values"][name] <= interval["high"]


def test_the_table_has_every_setting_and_the_page_is_there(compared: tuple[Path, str]) -> None:
    folder, output = compared
    assert "in each setting, over seeds, 95 % intervals" in flat(output)
    assert all(flat(output).count(f"{KEY}={value} ") == 2 for value in ("0.25", "0.5"))
    assert "Over the family" in output
    assert "mdp-family-eval" in (folder / "report.html").read_text()
    assert all((folder / f"{KEY}={value}" / "report.html").is_file() for value in ("0.25", "0.5"))


@pytest.mark.parametrize(
    ("ways", "sentence"),
    [
        (("--family", "tasks.heldout"), "expected key=values, as in --family tasks.size=4,8,16"),
        (("--family", "tasks.heldout=0.5"), "a family has two settings or more, found 1"),
        (("--family", "tasks.heldout=0.5,0.5"), "the family has tasks.heldout = 0.5 twice"),
        (("--family", "tasks.heldout=[1],[2]"), "values must be numbers, words, true or false"),
        (("--family", "tasks.heldout=0.2,0.5", "--family", "tasks.heldout=1,2"), "is given twice"),
        (("--family", "tasks.heldout=0.2,0.5", "--set", "tasks.heldout=0.5"), "is set for the whole family"),
        (("--family", "stages.rl.steps=1,2"), "stages.rl.steps does not change the environment"),
        (("--family", "seed=1,2"), "seed does not change the environment"),
        (("--family", "tasks.heldot=0.2,0.5"), "heldot"),
        (("--family", "tasks.heldout=0.2,0.5", "--anytime"), "--anytime has no intervals of a family"),
        (("--family", "tasks.heldout=0.2,0.5", "--seeds", "1"), "its intervals are over seeds, two or more"),
    ],
)
def test_wrong_settings_are_refused_before_any_run(
    recipe: Path, tmp_path: Path, ways: tuple[str, ...], sentence: str
) -> None:
    result = polopt("compare", *METHODS, "--seeds", 2, "--recipe", recipe, "--run", tmp_path / "c", *ways)
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
    assert not (tmp_path / "c").exists()


def test_one_method_is_no_comparison_over_a_family(recipe: Path, tmp_path: Path) -> None:
    ways = ("--seeds", 2, "--recipe", recipe, "--run", tmp_path / "c", "--family", "tasks.heldout=0.2,0.5")
    result = polopt("compare", "grpo", *ways)
    assert result.exit_code == 2
    assert "compares two methods or more" in flat(result.stderr)


def test_a_family_is_every_combination_and_names_differ() -> None:
    found = family_settings({"tasks.a": [1, -1], "tasks.b": ["x", "y"]}, {})
    assert list(found.values()) == [{"tasks.a": a, "tasks.b": b} for a in (1, -1) for b in ("x", "y")]
    assert len(set(found)) == 4
