"""polopt compare: two methods, two seeds, in processes of their own."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from command import flat, lines, polopt, without_clocks
from scipy import stats

import polopt as po
from polopt.cli.compare import result_table, seeds_line
from polopt.metrics import Comparison, MethodRuns
from polopt.part_diff import diff
from polopt.training.compare import label

METHODS = ("grpo", "{name: rloo, kl: 0.0}")
NAMES = ("grpo", "rloo(kl=0.0)")
FOLDERS = ("grpo", "rloo-kl-0.0")


@pytest.fixture(scope="module")
def compared(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("compared")
    result = polopt("compare", *METHODS, "--seeds", 2, "--recipe", recipe, "--run", folder, "--set", "threads=1")
    assert result.exit_code == 0, result.output
    return folder, result.output


def test_every_run_is_a_run_folder(compared: tuple[Path, str]) -> None:
    for name in FOLDERS:
        for seed in (0, 1):
            folder = compared[0] / f"{name}-seed-{seed}"
            assert (folder / "policy" / "config.json").is_file()
            assert json.loads((folder / "run.json").read_text())["finished"]
    assert (compared[0] / "report.html").is_file()


def test_a_process_of_its_own_changes_nothing(compared: tuple[Path, str], trained: tuple[Path, str]) -> None:
    for log in ("metrics", "evaluations", "samples"):
        alone, among = lines(trained[0], log), lines(compared[0] / "grpo-seed-0", log)
        assert without_clocks(among) == without_clocks(alone)


def test_runs_of_one_seed_share_their_warm_up(compared: tuple[Path, str]) -> None:
    for seed in (0, 1):
        first, second = (
            [m for m in lines(compared[0] / f"{name}-seed-{seed}", "metrics") if m["stage"] == "warmup"]
            for name in FOLDERS
        )
        assert without_clocks(first) == without_clocks(second)


def test_letters_of_three_methods() -> None:
    """Of two methods the star is enough; of three, letters stand beside the star, whose pairs are fewer."""
    draw = np.random.default_rng(0)
    means = {"a": 0.3, "b": 0.6, "c": 0.61}
    runs = [MethodRuns(name, range(5), (x + 0.01 * draw.standard_normal(5)).tolist()) for name, x in means.items()]
    table = result_table(Comparison(runs))
    assert [column.header for column in table.columns][-1] == "letters"
    assert list(table.columns[-1].cells) == list(map(Comparison(runs).letters().get, "abc"))
    assert "letters" not in [column.header for column in result_table(Comparison(runs[:2])).columns]


def of_scores(base: list[float], other: list[float], unit: str) -> Comparison:
    seeds = range(len(base))
    return Comparison([MethodRuns("a", seeds, base), MethodRuns("b", seeds, other)], unit=unit)


def test_what_so_many_seeds_can_find_is_said_before_any_run(compared: tuple[Path, str]) -> None:
    # With one degree of freedom the test needs a shift of sqrt(2) d for which the noncentral t passes 12.706.
    size = next(float(x) for x in re.findall(r"2 seeds find a difference of ([\d.]+) standard", flat(compared[1])))
    assert stats.nct.sf(12.706, 1, (size + 0.05) * 2**0.5) > 0.8 > stats.nct.sf(12.706, 1, (size - 0.05) * 2**0.5)
    assert flat(compared[1]).index("seeds find") < flat(compared[1]).index("Held-out")


def test_the_table_says_how_many_seeds_a_difference_takes(compared: tuple[Path, str]) -> None:
    data = json.loads((compared[0] / "comparison.json").read_text())
    line = seeds_line(Comparison.from_dict(data))
    assert flat(line) in flat(compared[1])
    base, other = [0.5, 0.6, 0.4], [0.58, 0.6, 0.5]
    (count,) = re.findall(
        r"a difference of 5 points four times in five, by this spread: b (\d+)$",
        seeds_line(of_scores(base, other, "share")),
    )
    deviation, found = np.subtract(other, base).std(ddof=1), []
    for n in (int(count) - 1, int(count)):
        bound, shift = stats.t.ppf(0.975, n - 1), 0.05 / deviation * n**0.5
        found.append(stats.nct.sf(bound, n - 1, shift) + stats.nct.cdf(-bound, n - 1, shift))
    assert found[0] < 0.8 <= found[1]


def test_no_number_of_seeds_where_there_is_no_spread_or_too_much() -> None:
    assert seeds_line(of_scores([0.5, 0.6], [0.6, 0.7], "share")) == ""
    assert seeds_line(of_scores([0.5], [0.6], "share")) == ""
    assert seeds_line(of_scores([1e-4, -1e-4, 1e-5], [900.0, -900.0, 3.0], "return")) == ""
    assert "a difference of 10 four" in seeds_line(of_scores([100.0, 90.0, 110.0], [120.0, 90.0, 100.0], "return"))


def test_the_numbers_are_those_of_the_runs(compared: tuple[Path, str]) -> None:
    data = json.loads((compared[0] / "comparison.json").read_text())
    assert tuple(m["name"] for m in data["methods"]) == NAMES
    final = {}
    for m, name in zip(data["methods"], FOLDERS, strict=True):
        of_seed = []
        for seed, curve in zip(m["seeds"], m["curves"], strict=True):
            found = [e for e in lines(compared[0] / f"{name}-seed-{seed}", "evaluations") if e["stage"] == "rl"]
            assert curve == [[e["step"], e["pass@1"]["estimate"]] for e in found]
            of_seed.append(next(e["pass@1"]["estimate"] for e in found if e["when"] == "after"))
        assert m["final"] == of_seed
        final[m["name"]] = np.array(of_seed)
    difference = final[NAMES[1]] - final[NAMES[0]]
    row = data["table"][1]
    assert row["paired"]
    assert row["difference"]["estimate"] == pytest.approx(difference.mean())
    half = stats.t.ppf(0.975, 1) * difference.std(ddof=1) / np.sqrt(2)
    assert row["difference"]["high"] - row["difference"]["estimate"] == pytest.approx(half)
    assert Comparison.from_dict(data).table()[1].difference is not None


def test_the_table_shows_both(compared: tuple[Path, str]) -> None:
    output = compared[1]
    assert "against grpo" in output
    for name in NAMES:
        assert any(line.startswith(name) and "[" in line for line in output.splitlines())


def test_the_record_names_what_was_compared(compared: tuple[Path, str], recipe: Path) -> None:
    folder = compared[0]
    data = json.loads((folder / "comparison.json").read_text())
    assert Comparison.from_dict(data) == Comparison.from_dict({k: v for k, v in data.items() if k != "about"})
    about = data["about"]
    assert about["recipe"] == (folder / "grpo-seed-0" / "recipe.yaml").read_text()
    assert about["stage"] == "rl"
    assert about["run"]["torch"] == torch.__version__
    assert tuple(about["methods"]) == NAMES
    for method, place in zip(about["methods"].values(), FOLDERS, strict=True):
        assert method["runs"] == [f"{place}-seed-0", f"{place}-seed-1"]
        runs = [folder / name for name in method["runs"]]
        infos = [json.loads((run / "run.json").read_text()) for run in runs]
        assert method["seconds"] == pytest.approx(sum(info["seconds"] for info in infos) / 2)
        sampled = [sum(m.get("sampled", 0) for m in lines(run, "metrics")) for run in runs]
        assert min(sampled) > 0
        assert method["tokens"] == sum(sampled) / 2
        finals = [next(e for e in lines(run, "evaluations") if e["when"] == "after") for run in runs]
        for kind in ("first", "last"):
            assert method["kinds"][kind] == pytest.approx(sum(f["kinds"][kind]["estimate"] for f in finals) / 2)
    assert about["methods"]["grpo"]["diff"] == []
    changed = {path: (a, b) for path, a, b in about["methods"][NAMES[1]]["diff"]}
    grpo, rloo = (po.method(name, kl=0.0).but(**{"sampling.group": 4}) for name in ("grpo", "rloo"))
    assert changed == {path: (repr(a), repr(b)) for path, a, b in diff(grpo, rloo)}
    assert "credit.scale" in changed


def test_the_page_links_to_reports_that_are_there(compared: tuple[Path, str]) -> None:
    page = (compared[0] / "report.html").read_text()
    links = re.findall(r'<a href="([^"]+)"', page[: page.index("<script")])
    assert len(links) == 4
    for link in links:
        assert (compared[0] / unquote(link)).is_file()
    assert "What was compared" in page


def test_from_python_the_page_is_the_same(compared: tuple[Path, str], recipe: Path) -> None:
    page, run = compared[0] / "report.html", compared[0] / "grpo-seed-0" / "report.html"
    text, written = page.read_text(), run.stat().st_mtime_ns
    page.unlink()
    methods = ("grpo", {"name": "rloo", "kl": 0.0})
    po.compare(methods, seeds=2, folder=compared[0], recipe=recipe, changes={"threads": 1}, progress=None)
    assert page.read_text() == text
    assert run.stat().st_mtime_ns == written, "a report that is there is not written again"


def test_again_takes_what_is_there(compared: tuple[Path, str], recipe: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in compared[0].glob("*/metrics.jsonl")}
    again = polopt(
        *("compare", *METHODS, "--seeds", 2, "--recipe", recipe, "--run", compared[0], "--set", "threads=1", "--json")
    )
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == json.loads((compared[0] / "comparison.json").read_text())
    assert {p: p.stat().st_mtime_ns for p in compared[0].glob("*/metrics.jsonl")} == before


def test_another_recipe_is_refused(compared: tuple[Path, str], recipe: Path) -> None:
    arguments = ("--seeds", 2, "--recipe", recipe, "--run", compared[0], "--set", "limit=3")
    result = polopt("compare", *METHODS, *arguments)
    assert result.exit_code == 2
    assert "holds a run of another recipe" in flat(result.stderr)


def test_a_run_that_fails_says_why(recipe: Path, tmp_path: Path) -> None:
    arguments = ("--seeds", 1, "--recipe", recipe, "--run", tmp_path / "c", "--set", "policy.config.n_embed=3")
    result = polopt("compare", "grpo", *arguments)
    assert result.exit_code == 2
    assert "n_embed is not a setting of gpt2" in flat(result.stderr)
    assert "grpo with seed 0 failed" in flat(result.stderr)


@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        (("grpo", "grpo"), "each method needs a name of its own"),
        (("grpo", "{kl: 0}"), "is not a method"),
        (("grpo", "gropo"), "there is no method 'gropo'"),
    ],
)
def test_a_mistake_gets_one_sentence(recipe: Path, tmp_path: Path, methods: tuple[str, str], sentence: str) -> None:
    result = polopt("compare", *methods, "--seeds", 1, "--recipe", recipe, "--run", tmp_path / "c")
    assert result.exit_code == 2
    assert sentence in flat(result.stderr)
    assert not (tmp_path / "c").exists()


def test_labels() -> None:
    assert label("gspo") == "gspo"
    assert label({"name": "rloo", "kl": 0, "group": 4}) == "rloo(kl=0, group=4)"


def test_intervals_for_any_time(compared: tuple[Path, str], recipe: Path) -> None:
    """Finished runs are taken as they are; two seeds have no bound yet, and nothing claims one."""
    ways = ("--seeds", 2, "--recipe", recipe, "--run", compared[0], "--set", "threads=1")
    result = polopt("compare", *METHODS, *ways, "--anytime")
    assert result.exit_code == 0, result.output
    assert "at any number of seeds" in flat(result.output)
    assert "2 seeds: no bound yet" in flat(result.output)
    assert "better on a new seed" not in flat(result.output)
    assert json.loads((compared[0] / "comparison.json").read_text())["anytime"]
    again = polopt("compare", *METHODS, *ways)
    assert "better on a new seed" in flat(again.output)
