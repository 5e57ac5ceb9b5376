"""The page of a run."""

import json
import math
import random
import sys

import fake_run
import numpy as np
import plotly.graph_objects as go
import pytest
from report_reader import Reader, written

from polopt.metrics import Comparison
from polopt.report import compare_figures, run_figures, summary, write_report
from polopt.report.figures import LIMIT, heat, line
from polopt.report.page import as_json
from polopt.report.run import read_run
from polopt.report.samples import SAMPLES, choose


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fake_run.write_run(tmp_path_factory.mktemp("runs") / "grpo-seed7")


@pytest.fixture(scope="module")
def page(folder):
    return write_report(folder).read_text()


def test_says_what_was_measured(folder, page):
    words = Reader(page).words
    records = [json.loads(r) for r in (folder / "evaluations.jsonl").read_text().splitlines()]
    before = next(r for r in records if (r["stage"], r["when"]) == ("rl", "before"))
    for rate in (before["pass@1"], records[-1]["pass@1"], *records[-1]["kinds"].values()):
        low, high = rate["low"] * 100, rate["high"] * 100
        assert f"{100 * rate['estimate']:.1f} %{low:.1f} – {high:.1f} %" in words.replace(" % ", " %")
    gain = records[-1]["pass@1"]["estimate"] - before["pass@1"]["estimate"]
    assert f"+{100 * gain:.1f}" in words
    for fact in (
        "3.21 million",
        "char-transformer-3m",
        "240",
        "9 min",
        "2.13.0",
        "shao2024",
    ):
        assert fact in words
    assert fake_run.RECIPE in "".join(Reader(page).text), "the recipe stands there letter by letter"
    assert "overlap" not in words


def test_is_one_small_file_that_asks_for_nothing(page):
    assert len(page.encode()) < 6_000_000
    addresses = [v for k, v in Reader(page).attributes if k in ("src", "href")]
    assert addresses == ["data:,"]
    assert any(v.startswith("default-src 'none'; script-src 'sha256-") for k, v in Reader(page).attributes if v)


def test_what_a_model_wrote_stays_text(page):
    read = Reader(page)
    # Its prompt and answer whole; its completion in shaded tokens, whose texts join to the same.
    assert "".join(read.text).count(fake_run.HOSTILE) >= 3
    assert read.elements.count("script") == 3, "figures, plotly, ours"
    assert "img" not in read.elements


def test_hostile_task_names_stay_text_in_plots(tmp_path):
    run = fake_run.write_run(tmp_path / "run")
    name = '</script><b onmouseover="x">'
    for file in ("metrics", "evaluations"):
        path = run / f"{file}.jsonl"
        path.write_text(path.read_text().replace("letter_counting", json.dumps(name)[1:-1]))
    read = Reader(write_report(run).read_text())
    assert read.elements.count("script") == 3
    assert read.figures["by-kind"]["layout"]["yaxis"]["dtick"] == 1, "the name of every kind is shown"
    drawn = read.figures["by-kind"]["data"][0]["y"]
    assert "&lt;/script&gt;&lt;b onmouseover=&quot;x&quot;&gt;" in drawn


def painted(value, key=""):
    """A colour wherever the page's script would put one."""
    if isinstance(value, str):
        return "#123456" if "color" in key and value.startswith("@") else value
    if isinstance(value, list):
        return [painted(v, key) for v in value]
    return {k: painted(v, k) for k, v in value.items()} if isinstance(value, dict) else value


def test_plotly_accepts_every_figure(folder):
    run = read_run(folder)
    found = run_figures.run_figures(run)
    assert [f.name for f in found] == [m.__name__ for m in run_figures.FIGURES]
    found += [run_figures.learning_curve(run), run_figures.by_kind(summary.kinds(summary.changes(run)[-1]))]
    found += compare_figures.figures(Comparison.from_dict(fake_run.comparison()))
    for figure in found:
        go.Figure(painted(json.loads(as_json(figure.spec()))))


def test_any_part_of_a_run_gives_a_report(folder, tmp_path):
    files = ("recipe.yaml", "run.json", "metrics.jsonl", "evaluations.jsonl", "samples.jsonl")
    for i, kept in enumerate(files):
        run = tmp_path / str(i)
        run.mkdir()
        (run / kept).write_text((folder / kept).read_text())
        words = Reader(write_report(run).read_text()).words
        assert ("has not finished" in words) == (kept != "run.json")


def test_a_kill_at_any_byte_gives_a_report(folder, tmp_path):
    generator = random.Random(0)
    for i in range(8):
        run = tmp_path / str(i)
        run.mkdir()
        for path in (p for p in folder.iterdir() if p.suffix != ".html"):
            whole = path.read_bytes()
            (run / path.name).write_bytes(whole[: generator.randrange(len(whole))])
        write_report(run)
    assert not list(tmp_path.glob("*/*.part"))


def test_a_cut_line_is_said_and_the_rest_is_shown(tmp_path):
    lines = '{"step": 0, "loss": 1.5, "stage": "rl"}\n{"step": 1, "loss": NaN}\n{"step": 2, "lo'
    (tmp_path / "metrics.jsonl").write_text(lines)
    read = Reader(write_report(tmp_path).read_text())
    assert "metrics.jsonl: 1 unreadable line(s) left out (line 3)" in read.words
    assert "No held-out evaluation" in read.words
    assert read.figures["loss"]["data"][0]["y"] == [1.5]


def test_values_of_the_wrong_kind_are_left_out(tmp_path):
    odd = [
        {"step": 1, "loss": "high", "reward/mean": None, "reward/histogram": {"edges": [0, 1], "counts": []}},
        {"step": None, "loss": 2.0, "entropy": True, "reward/histogram": 3},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, [*odd, [1], 7])))
    (tmp_path / "evaluations.jsonl").write_text('{"step": 1, "pass@1": 0.25, "kinds": null}\n{"pass@1": {"low": 0}}')
    (tmp_path / "samples.jsonl").write_text('{"completion": "hm", "tokens": ["h"], "logp": [-1, -2], "reward": "no"}')
    (tmp_path / "run.json").write_text('{"machine": "a laptop", "citation": "one", "seconds": null}')
    read = Reader(write_report(tmp_path).read_text())
    assert "25.0 %" in read.words
    assert set(read.figures) == {"learning-curve"}


def test_a_folder_without_a_run_is_one_clear_error(tmp_path):
    with pytest.raises(ValueError, match=r"holds no run, expected one of recipe.yaml, .*give the run folder"):
        write_report(tmp_path)
    with pytest.raises(ValueError, match="is not a folder"):
        write_report(tmp_path / "absent")


def test_without_plotly_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.delitem(sys.modules, "plotly.offline", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'polopt\[tools\]'"):
        write_report(folder)


def test_a_long_run_stays_small(tmp_path):
    generator = np.random.default_rng(0)
    step = fake_run.rl_step(100, generator)
    line_ = json.dumps(step)[1:]
    (tmp_path / "metrics.jsonl").write_text("\n".join(f'{{"step": {i}, "stage": "rl", {line_}' for i in range(8000)))
    sample = fake_run.samples(generator)[1] | {"tokens": ["word "] * 900, "logp": [-1.0] * 900}
    (tmp_path / "samples.jsonl").write_text("\n".join([json.dumps(sample)] * 300))
    assert write_report(tmp_path).stat().st_size < 6_000_000


def test_thinning_keeps_means_and_peaks():
    points = [(float(i), 50.0 if i == 777 else 1.0) for i in range(LIMIT * 10)]
    assert max(line(points, "max", peaks=True)["y"]) == 50
    mean = line(points, "mean")["y"]
    assert len(mean) == LIMIT
    assert np.mean(mean) == pytest.approx(np.mean([y for _, y in points]), rel=1e-4)


def test_heat_map_keeps_mass_and_place_when_bins_change():
    # All of step 0 in [0, 1), all of step 1 in [3, 4), over bins that differ: common bins cover [0, 4].
    trace = heat([(0, [0, 1, 2], [10, 0]), (1, [0, 3, 4], [0, 6])], length=1)
    shares, middles = np.array(trace["z"]), np.array(trace["y"])
    assert shares.sum(0) == pytest.approx([1, 1], abs=1e-3)
    assert middles @ shares == pytest.approx([0.5, 3.5], abs=0.01)


def test_samples_are_drawn_evenly_and_stand_in_pairs():
    records = [{"when": "after", "kind": "a", "solved": True, "prompt": str(i)} for i in range(500)]
    records += [{"when": w, "kind": "b", "solved": False, "prompt": "rare"} for w in ("after", "before")]
    chosen = choose(records)
    assert len(chosen) == SAMPLES
    rare = [i for i, s in enumerate(chosen) if s.prompt == "rare"]
    assert [chosen[i].when for i in rare] == ["before", "after"]
    assert rare[1] == rare[0] + 1


@pytest.mark.parametrize(("probability", "shade"), [(0.95, 0), (0.6, 1), (0.3, 2), (0.1, 3), (0.02, 4), (0.001, 5)])
def test_shades_follow_probability(probability, shade):
    record = {"tokens": ["x", "y"], "logp": [math.log(probability), -1.0], "decided": [True, False]}
    tokens = choose([record])[0].tokens
    assert [t.shade for t in tokens] == [shade, None]


def test_what_the_world_read_stands_beside_its_reference(tmp_path):
    sample = {"step": 1, "when": "after", "kind": "sort", "prompt": "3 8 8 3", "completion": "3 8 3 8", "solved": False}
    apart = written(tmp_path, samples=[sample | {"answer": "3 8 3 8", "reference": "3 8 3 3"}])
    words = Reader(write_report(apart).read_text()).words
    assert "answer read from it: 3 8 3 8" in words
    assert "reference answer: 3 8 3 3" in words
    words = Reader(write_report(written(tmp_path, samples=[sample | {"answer": None}])).read_text()).words
    assert "answer read" not in words
    assert "reference answer" not in words


def panel(figure, label):
    """The axis and the traces of one strip of a figure."""
    place = [a["text"] for a in figure.layout["annotations"]].index(label)
    suffix = "" if place == 0 else str(place + 1)
    return figure.layout[f"yaxis{suffix}"], [t for t in figure.data if t["yaxis"] == f"y{suffix}"]


def test_axes_show_all_of_a_number_and_no_share_beyond_all(folder):
    run = read_run(folder)
    agree = run_figures.mismatch(run)
    axis, _ = panel(agree, "KL (sampler || learner)")
    assert axis["automargin"], "a label as long as 1.5e-13 gets room"
    assert axis["tickformat"] == ".2~g"
    for figure, label in ((agree, "effective sample size"), (run_figures.signal(run), "share of groups")):
        low, high = panel(figure, label)[0]["range"]
        assert low == 0
        assert 1 < high <= 1.05


def test_a_line_beneath_another_is_seen(folder):
    _, (first, second) = panel(run_figures.signal(read_run(folder)), "share of groups")
    assert second["line"]["dash"] == "dot"
    assert "dash" not in first["line"]


def test_no_line_is_drawn_where_noise_was_not_measured(folder):
    _, (noise,) = panel(run_figures.gradient(read_run(folder)), "noise scale")
    assert noise["mode"] == "markers"


def test_the_band_of_rewards_stays_among_them(folder):
    run = read_run(folder)
    spread = dict(run.series("reward/std"))
    assert min(m - spread[s] for s, m in run.series("reward/mean")) < 0, "else this test shows nothing"
    _, (around, _) = panel(run_figures.reward(run), "mean, and one standard deviation either side")
    seen = [
        edge
        for m in run.metrics
        if (h := m.get("reward/histogram"))
        for count, *ends in zip(h["counts"], h["edges"], h["edges"][1:], strict=False)
        if count
        for edge in ends
    ]
    assert min(seen) <= min(around["y"])
    assert max(around["y"]) <= max(seen)
