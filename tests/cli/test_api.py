"""Whole runs from Python: train, look, evaluate, compare."""

import ast
import json
import shutil
from pathlib import Path

import pytest
import torch
from command import lines, polopt
from safetensors.torch import load_file

import polopt as po
from polopt import api, errors
from polopt.metrics import Comparison, MethodRuns
from polopt.training import compare as comparing
from polopt.training.run import RunError


def test_names_are_complete_and_typed() -> None:
    """What is offered, what completes, what a type checker sees and where it is fetched from are one list."""
    source = ast.parse(Path(po.__file__).read_text())
    block = next(n for n in source.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    seen = {
        alias.name: (node.module or "").removeprefix("polopt").removeprefix(".")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == po._MODULE_OF
    assert sorted(po.__all__) == sorted(seen)
    assert [name for name in dir(po) if not name.startswith("__")] == sorted(po.__all__)  # and nothing else
    for name in po.__all__:
        assert getattr(po, name) is not None
    assert callable(po.method)  # though polopt.method is a module, and imported by now
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = po.trian  # type: ignore[attr-defined]


def test_train_shows_progress_and_writes_a_report(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Counts:
        steps = 0

        def begin(self, *_: object) -> None: ...

        def step(self, record: dict) -> None:
            self.steps += 1

        def evaluation(self, record: dict) -> None: ...

    counts = Counts()
    run = po.train(recipe, str(tmp_path / "run"), watchers=[counts], **{"stages.rl.steps": 2})
    shown = capsys.readouterr().out
    assert "rl 2/2  reward" in shown
    assert "rl, after  held-out accuracy" in shown
    assert shown.splitlines()[-1] == f"Report  {run.folder / 'report.html'}"
    assert (run.folder / "report.html").is_file()
    assert counts.steps == 5
    assert isinstance(run, po.RunHandle)
    with pytest.raises(errors.UserError, match=r'progress = True: expected "auto", or None'):
        po.train(recipe, tmp_path / "other", progress=True)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


def test_without_progress_nothing_is_printed(
    trained: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(trained[0], tmp_path / "run")
    (folder / "report.html").unlink()
    run = po.resume(str(folder), progress=None)
    assert capsys.readouterr().out == ""
    assert (run.folder / "report.html").is_file()


def test_a_run_is_read_again(trained: tuple[Path, str]) -> None:
    run = po.load_run(str(trained[0]))
    assert run.folder == po.load_run(trained[0]).folder == trained[0]
    assert run.read("metrics") == lines(trained[0], "metrics")
    with pytest.raises(RunError, match="no log 'nonsense'; it has metrics, evaluations, others, samples"):
        run.read("nonsense")
    with pytest.raises(RunError, match="is not a run"):
        po.load_run(trained[0] / "policy")
    weights = load_file(trained[0] / "policy" / "model.safetensors")
    state = run.policy().model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in weights.items())


def test_a_run_as_a_table(trained: tuple[Path, str]) -> None:
    pytest.importorskip("pandas")
    run = po.load_run(trained[0])
    frame = run.frame("evaluations")
    assert list(frame["pass@1.estimate"]) == [e["pass@1"]["estimate"] for e in lines(trained[0], "evaluations")]
    assert len(run.frame()) == 7


def test_a_run_says_what_it_is(trained: tuple[Path, str]) -> None:
    run = po.load_run(trained[0])
    before, after = (e["pass@1"]["estimate"] for e in run.read("evaluations") if e["when"] != "during")
    wanted = f"grpo, 7 of 7, finished, {100 * before:.1f} % -> {100 * after:.1f} %)"
    assert repr(run) == f"RunHandle({str(trained[0])!r}: {wanted}"
    shown = run._repr_html_()
    assert "<th>held-out accuracy before</th>" in shown
    assert f"{100 * after:.1f} %" in shown


def test_the_learning_curve_is_a_plot(trained: tuple[Path, str]) -> None:
    figure = po.load_run(trained[0]).plot()
    curve = next(trace for trace in figure.data if trace.name == "held-out pass@1")
    # Of two evaluations after step 3, the warm-up's and the one before rl, the later counts.
    found = {e["step"]: e["pass@1"]["estimate"] for e in lines(trained[0], "evaluations")}
    assert list(curve.x) == sorted(found)
    assert list(curve.y) == pytest.approx([found[step] for step in sorted(found)], abs=1e-4)
    assert curve.line.color == "#2f62c9"  # the report's
    assert "@" not in json.dumps(figure.to_plotly_json()["layout"])


def test_nothing_to_plot_is_a_sentence(trained: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copy(trained[0] / "recipe.yaml", tmp_path)
    with pytest.raises(errors.UserError, match="nothing to plot"):
        po.load_run(tmp_path).plot()


def test_evaluate_is_the_commands(trained: tuple[Path, str]) -> None:
    found = po.evaluate(po.load_run(trained[0]), problems=6, k=(1, 2), seed=3)
    told = json.loads(polopt("evaluate", trained[0], "--problems", 6, "--k", "1,2", "--seed", 3, "--json").stdout)
    assert found.samples == 2
    assert found.record() == told
    assert len(repr(found)) < 1000


def test_compare_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict = {}

    def trained(methods: list[str], **settings: object) -> Comparison:
        given.update(settings)
        (tmp_path / str(settings["folder"])).mkdir(parents=True)
        (tmp_path / str(settings["folder"]) / "comparison.json").write_text("{}")
        values = {"grpo": [0.25, 0.5], "rloo": [0.5, 0.75]}
        found = Comparison([MethodRuns(m, [0, 1], values[m], [[(0, v)] for v in values[m]]) for m in methods])
        (tmp_path / str(settings["folder"]) / "comparison.json").write_text(json.dumps(comparing.record(found)))
        return found

    monkeypatch.setattr(comparing, "compare", trained)
    found = po.compare(["grpo", "rloo"], seeds=2, recipe="smoke", progress=None)
    assert [row.final.estimate for row in found.table()] == [0.375, 0.625]
    assert (tmp_path / "runs" / "compare-grpo-rloo" / "report.html").is_file()
    assert (given["seeds"], given["recipe"], given["watch"]) == (2, "smoke", None)


def test_without_the_tools_a_run_still_trains(
    trained: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")

    monkeypatch.setattr(api.report, "write_report", missing)
    folder = shutil.copytree(trained[0], tmp_path / "run")
    with pytest.warns(errors.PoloptWarning, match="no report is written, as jinja2 is not installed"):
        assert po.resume(folder, progress=None).about["finished"]
