"""Trackers: what they are sent, that a resumed run is whole in them, and that a broken one does not cost the run."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import Stop, StopAt, lines, recipe, training_of

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.training import trackers
from polopt.training.compare import compare
from polopt.training.launch import resume, train
from polopt.training.process_group import ProcessGroup
from polopt.training.run import ReadOnlyRun, Run
from polopt.training.trackers import MLflow, TensorBoard, Tracker, Tracking, Trackio, WeightsAndBiases

EVALUATION = {"problems": 8, "quick": 4, "every": 2}


class Recorded(Tracker):
    """A tracker that notes what it is sent, and raises where it is told to."""

    extra = "recorded"

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[tuple[Any, ...]] = []

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] == self.fails:
            raise ConnectionError("server is down.\nTry again")

    def begin(self, folder: Path, project: str, config: Any, step: int, run_id: str | None) -> str | None:
        self._note("begin", folder.name, project, dict(config), step, run_id)
        return "id-1"

    def log(self, values: Any, step: int) -> None:
        self._note("log", dict(values), step)

    def finish(self, error: BaseException | None) -> None:
        self._note("finish", error)

    @property
    def steps(self) -> list[int]:
        return [call[2] for call in self.calls if call[0] == "log"]


def of(folder: Path, *some: Tracker) -> Tracking:
    folder.mkdir(exist_ok=True)
    return Tracking(some, folder, "project")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in TensorBoard that was stopped between two checkpoints, and resumed."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    with pytest.raises(Stop):
        train(recipe(logging={"report_to": "tensorboard"}, evaluation=EVALUATION), folder, watchers=(StopAt(2),))
    resume(folder)
    return folder


def test_tensorboard_has_the_numbers_of_a_killed_run_once(killed: Path) -> None:
    assert len(list((killed / "tensorboard").glob("events*"))) == 2
    read = EventAccumulator(str(killed / "tensorboard")).Reload()
    names = set(read.Tags()["scalars"])
    records = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
    numbers = {n for r in records for n, v in r.items() if isinstance(v, (int, float)) and n != "step"}
    assert {name for name in names if not name.startswith("heldout/")} == numbers
    for name in numbers:
        ours = [(r["step"], r[name]) for r in records if name in r]
        theirs = [(event.step, event.value) for event in read.Scalars(name)]
        assert [step for step, _ in theirs] == [step for step, _ in ours]
        assert [value for _, value in theirs] == pytest.approx([value for _, value in ours], rel=1e-6)
    for end, name in (("estimate", "heldout/pass@1"), ("low", "heldout/pass@1_low"), ("high", "heldout/pass@1_high")):
        ours = [(e["step"], pytest.approx(e["pass@1"][end], rel=1e-6)) for e in lines(killed, "evaluations")]
        # The evaluation of step 2 was made before the checkpoint of step 2, and is not made again.
        assert [(event.step, event.value) for event in read.Scalars(name)] == ours
        assert [step for step, _ in ours] == [0, 2, 4]
    digits = [e["kinds"]["digit"]["estimate"] for e in lines(killed, "evaluations")]
    assert [e.value for e in read.Scalars("heldout/digit")] == pytest.approx(digits, rel=1e-6)


def test_a_run_goes_on_in_its_services(tmp_path: Path) -> None:
    made = recipe()
    first, again = Recorded(), Recorded()
    of(tmp_path / "run", first).begin(made, {"step": 0})
    (tmp_path / "run" / "evaluations.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "pass@1": {"estimate": step / 8, "low": 0.0, "high": 1.0}}) + "\n"
            for step in (0, 2)
        )
    )
    of(tmp_path / "run", again).begin(made, {"step": 2})
    assert first.calls[0][4:] == (0, None)
    assert first.steps == []
    assert again.calls[0][4:] == (2, "id-1")
    assert again.calls[1:] == [("log", {"heldout/pass@1": 0.25, "heldout/pass@1_low": 0, "heldout/pass@1_high": 1}, 2)]
    config = first.calls[0][3]
    assert config["stages.rl.method"] == "grpo"
    assert config["policy.config.n_embd"] == 16
    (tmp_path / "run" / "trackers.json").write_text("{")
    new = Recorded()
    of(tmp_path / "run", new).begin(made, {"step": 0})
    assert new.calls[0][4:] == (0, None)


def test_only_finite_numbers_are_sent(tmp_path: Path) -> None:
    tracker = Recorded()
    tracking = of(tmp_path, tracker)
    record = {"step": 3, "stage": "rl", "loss": 0.5, "rows": 8, "flag": True, "reward/histogram": {"counts": [1]}}
    tracking.step(record | {"noise": math.nan, "largest": math.inf})
    assert tracker.calls == [("log", {"loss": 0.5, "rows": 8.0}, 3)]


@pytest.mark.parametrize(("fails", "steps"), [("begin", 0), ("log", 1), ("finish", 4)])
def test_a_tracker_that_fails_does_not_cost_the_run(
    fails: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, whole = Recorded(fails), Recorded()
    whole.extra = "whole"  # type: ignore[misc]
    monkeypatch.setitem(trackers.TRACKERS, "wandb", lambda: broken)
    monkeypatch.setitem(trackers.TRACKERS, "mlflow", lambda: whole)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    small = {"evaluation": {"problems": 1}, "stages": {"rl": {"method": "grpo", "steps": 3, "rows": 4, "group": 2}}}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(recipe(logging={"report_to": ["wandb", "mlflow"]}, **small), tmp_path / "run")
    (said,) = [str(w.message) for w in seen if w.category is PoloptWarning]
    assert "recorded failed (ConnectionError: server is down. Try again) and gets no more of this run" in said
    assert json.loads((tmp_path / "run" / "run.json").read_text())["finished"]
    assert whole.steps == [0, 0, 1, 2, 3]
    assert len(broken.steps) == (5 if fails == "finish" else steps)
    assert broken.calls[-1][0] == "finish", "it may still let go of what it has"


def test_a_run_that_ends_early_is_not_finished_in_its_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Recorded()
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", lambda: tracker)
    tmp_path.joinpath("run").mkdir()
    with pytest.raises(Stop), trackers.tracking(recipe(logging={"report_to": "tensorboard"}), tmp_path / "run"):
        raise Stop
    assert isinstance(tracker.calls[-1][1], Stop)
    with trackers.tracking(recipe(logging={"report_to": "tensorboard"}), tmp_path / "run"):
        pass
    assert tracker.calls[-1] == ("finish", None)
    with trackers.tracking(recipe(), tmp_path / "run") as none:
        assert none == ()


class Second(ProcessGroup):
    """One process alone that is not the main one."""

    @property
    def is_main(self) -> bool:
        return False


def test_only_the_main_process_sends_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker, made = Recorded(), recipe(logging={"report_to": "tensorboard", "rollouts": 1})
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", lambda: tracker)
    training_of(made, ReadOnlyRun(tmp_path), team=Second()).run()
    assert tracker.calls == []
    assert list(tmp_path.iterdir()) == []
    training_of(made, Run(tmp_path)).run()
    assert tracker.steps == [0, 0, 1, 2, 3, 4]
    assert (tmp_path / "rollouts.jsonl").exists()


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio", "mlflow"])
def test_a_missing_package_is_refused_before_a_folder_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == name else found(n, *a))
    sentence = rf"logging.report_to: {name} is not installed; run pip install 'polopt\[{name}\]', or leave it out"
    with pytest.raises(ConfigError, match=sentence):
        train(recipe(logging={"report_to": name}), tmp_path / "run")
    text = recipe(logging={"report_to": name}).to_yaml()
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        compare(["grpo"], seeds=1, folder=tmp_path / "compared", recipe=tmp_path / "recipe.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(ConfigError, match="report_to"):
        recipe(logging={"report_to": "tensorbord"})
    assert recipe(logging={"report_to": "wandb"}).logging.report_to == ("wandb",)


class Service(types.ModuleType):
    """Stands in for a package: what is called is noted, with the arguments that the package's signatures allow."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, Any]] = []

    def note(self, name: str, *values: Any) -> None:
        print("* a link, a logo and a question")
        print("INFO", file=sys.stderr)
        assert not sys.stderr.isatty()
        self.calls.append((name, *values))


def test_wandb_is_silent_and_has_a_step_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service("wandb")

    class Run:
        id = "abc"

        def define_metric(self, name: str, step_metric: str | None = None) -> None:
            service.note("define_metric", name, step_metric)

        def log(self, data: dict[str, Any], step: int | None = None) -> None:
            service.calls.append(("log", data, step))

        def finish(self, exit_code: int | None = None) -> None:
            service.note("finish", exit_code)

    def init(
        project: str | None = None,
        name: str | None = None,
        dir: str | None = None,
        config: dict[str, Any] | None = None,
        id: str | None = None,
        resume: Any = None,
        settings: Any = None,
    ) -> Run:
        service.note("init", project, name, id, resume, settings)
        return Run()

    service.init, service.Settings = init, lambda **settings: settings  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", service)
    tracking = of(tmp_path / "run", WeightsAndBiases())
    tracking.begin(recipe(), {"step": 0})
    tracking.step({"step": 0, "loss": 1.0})
    tracking.finish(KeyboardInterrupt())
    assert service.calls == [
        ("init", "project", "run", None, "allow", {"silent": True, "console": "off"}),
        ("define_metric", "step", None),
        ("define_metric", "*", "step"),
        ("log", {"loss": 1.0, "step": 0}, None),
        ("finish", 1),
    ]
    assert json.loads((tmp_path / "run" / "trackers.json").read_text()) == {"wandb": "abc"}
    again = of(tmp_path / "run", WeightsAndBiases())
    again.begin(recipe(), {"step": 2})
    again.finish()
    assert service.calls[5][:4] == ("init", "project", "run", "abc")
    assert service.calls[-1] == ("finish", 0)
    assert capsys.readouterr() == ("", "")


def test_trackio_goes_on_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service("trackio")

    def init(
        project: str,
        name: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str = "never",
        embed: bool = True,
    ) -> Any:
        service.note("init", project, name, resume, embed)
        return types.SimpleNamespace(id="xyz")

    service.init = init  # type: ignore[attr-defined]
    service.log = lambda metrics, step=None: service.calls.append(("log", metrics, step))  # type: ignore[attr-defined]
    service.finish = lambda: service.note("finish")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", service)
    for _ in range(2):  # killed before its first checkpoint, too
        tracking = of(tmp_path / "run", Trackio())
        tracking.begin(recipe(), {"step": 0})
        tracking.step({"step": 0, "loss": 1.0})
        tracking.finish()
    assert [call for call in service.calls if call[0] == "init"] == [
        ("init", "project", "run", "never", False),
        ("init", "project", "run", "allow", False),
    ]
    assert service.calls[1:3] == [("log", {"loss": 1.0}, 0), ("finish",)]
    assert capsys.readouterr() == ("", "")


def mlflow_stand_in() -> Service:
    service = Service("mlflow")

    def start_run(run_id: str | None = None, run_name: str | None = None) -> Any:
        service.note("start_run", run_id, run_name)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"))

    def named(name: str) -> str:
        # What MLflow's validation asks of names.
        assert re.fullmatch(r"[/\w.\- :]{1,250}", name, re.ASCII), name
        return name

    service.set_experiment = lambda name: service.note("set_experiment", name)  # type: ignore[attr-defined]
    service.start_run = start_run  # type: ignore[attr-defined]
    service.log_params = lambda params: service.note("log_params", *map(named, params))  # type: ignore[attr-defined]
    service.log_metrics = lambda metrics, step=None: service.calls.append(  # type: ignore[attr-defined]
        ("log", {named(n): v for n, v in metrics.items()}, step)
    )
    service.end_run = lambda status="FINISHED": service.note("end_run", status)  # type: ignore[attr-defined]
    return service


def test_mlflow_gets_names_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = mlflow_stand_in()
    monkeypatch.setitem(sys.modules, "mlflow", service)
    tracking = of(tmp_path / "run", MLflow())
    tracking.begin(recipe(), {"step": 0})
    rate = {"estimate": 0.5, "low": 0.25, "high": 0.75}
    tracking.evaluation({"step": 0, "pass@1": rate, "kinds": {"sums (hard), ü": rate}})
    tracking.finish(KeyboardInterrupt())
    again = of(tmp_path / "run", MLflow())
    again.begin(recipe(), {"step": 0})
    again.finish()
    assert [call for call in service.calls if call[0] != "log_params"] == [
        ("set_experiment", "project"),
        ("start_run", None, "run"),
        (
            "log",
            {
                "heldout/pass_at_1": 0.5,
                "heldout/pass_at_1_low": 0.25,
                "heldout/pass_at_1_high": 0.75,
                "heldout/sums _hard__ _": 0.5,
            },
            0,
        ),
        ("end_run", "KILLED"),
        ("start_run", "m1", None),
        ("end_run", "FINISHED"),
    ]
    assert sum(call[0] == "log_params" for call in service.calls) == 1
    assert capsys.readouterr() == ("", "")


def test_a_live_page_is_drawn_on_while_a_service_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    console = Console()
    with trackers._quiet():
        print("lost")
        console.print("seen")
    assert capsys.readouterr().out == "seen\n"


def test_every_name_has_its_tracker() -> None:
    assert {name: made.extra for name, made in trackers.TRACKERS.items()} == {name: name for name in trackers.TRACKERS}
    assert trackers.TRACKERS["tensorboard"] is TensorBoard
