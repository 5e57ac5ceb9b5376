"""The Python interface of whole runs: train, resume, load, evaluate, compare."""

from __future__ import annotations

import contextlib
import html
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from polopt import report
from polopt.display import leading
from polopt.display.format import rate
from polopt.errors import PoloptWarning, UserError
from polopt.metrics import Comparison
from polopt.support import Support
from polopt.training import compare as comparing
from polopt.training import launch
from polopt.training.estimates import label_of, score_of
from polopt.training.evaluate import HeldOutScore
from polopt.training.loop import Watcher
from polopt.training.preferences import RatedScore
from polopt.training.recipe import Recipe
from polopt.training.run import LOGS, Run, RunError
from polopt.training.run_executor import ComparedRun
from polopt.training.trained import evaluate_folder, load_policy

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

    from polopt.policies.language import LanguagePolicy

# "auto": a live page in a terminal or notebook, lines elsewhere. None shows nothing.
Display = Literal["auto"] | None


class RunHandle(Run):
    """A run's folder, finished or not: its logs, its policy, its learning curve.

    `read("metrics")` gives a log's records as dictionaries, `frame("metrics")` as a pandas table, `policy()` the
    trained policy, `plot()` the learning curve; `folder / "report.html"` is the report.
    """

    def read(self, name: str) -> list[dict[str, Any]]:
        """Reads the records of a log: "metrics", one a step, "evaluations", "others" or "samples".

        Raises:
            RunError: there is no such log.
        """
        if name not in LOGS:
            raise RunError(f"a run has no log {name!r}; it has {', '.join(LOGS)}")
        return super().read(name)

    def frame(self, name: str = "metrics") -> pandas.DataFrame:
        """Reads a log as a table, a record a row; nested values are columns as `pass@1.estimate`.

        Raises:
            RunError: there is no such log, or pandas is not installed.
        """
        records = self.read(name)
        try:
            import pandas
        except ModuleNotFoundError:
            raise RunError("run.frame needs pandas, which is not installed: pip install pandas") from None
        return pandas.json_normalize(records)

    def policy(self) -> LanguagePolicy:
        """Loads the policy of the run's end.

        Raises:
            ConfigError: the run has not finished.
        """
        return load_policy(self.folder)

    def plot(self) -> plotly.graph_objects.Figure:
        """Plots the learning curve of the report.

        Raises:
            RunError: nothing was measured yet.
        """
        return report.learning_curve(self.folder)

    def facts(self) -> dict[str, str]:
        """Returns folder, method, progress and scores, as text."""
        about, last = self.about, self.last("metrics")
        stages = yaml.safe_load(self.recipe.read_text(encoding="utf-8"))["stages"].values()
        done, total = (last["step"] + 1 if last else 0), sum(stage["steps"] for stage in stages)
        found = {
            "folder": str(self.folder),
            "method": str(about.get("method", "?")),
            "steps": f"{done} of {total}, {'finished' if about.get('finished') else 'not finished'}",
        }
        evaluations = [e for e in self.read("evaluations") if e["when"] != "during"]
        found |= {f"{label_of(*score_of(e))} {e['when']}": rate(score_of(e)[1]) for e in evaluations}
        return found

    def __repr__(self) -> str:
        found = self.facts()
        measured = [rate(score_of(e)[1]).partition(" [")[0] for e in self.read("evaluations") if e["when"] != "during"]
        shown = [found["method"], f"{found['steps']}"] + ([" -> ".join(measured)] if measured else [])
        return f"RunHandle({str(self.folder)!r}: {', '.join(shown)})"

    def _repr_html_(self) -> str:
        rows = {**self.facts(), "report": str(self.folder / "report.html")}
        cells = (f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows.items())
        return f"<table>{''.join(cells)}</table>"


def train(
    recipe: Recipe | Path | str | None = None,
    folder: Path | str = "runs/latest",
    *,
    progress: Display = "auto",
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    **changes: Any,
) -> RunHandle:
    """Trains a language policy: a recipe (the laptop's by default) into a folder, with a report at the end.

    progress: "auto" shows it, in a terminal, a notebook or a log; None does not. watchers: objects that are called at
    every step and evaluation, see `Watcher`.
    address: of a Ray cluster that samples the rollouts, as configured by the recipe's `cluster`: HOST:PORT, "auto" for
    the one that this machine belongs to, or "local" for one that is started here and ends with the run.
    changes: settings of the recipe by dotted path, as `**{"stages.rl.method": "gspo", "seed": 1}`.

    Raises:
        ConfigError: the recipe is wrong, or there is no cluster. RunError: the folder holds a run already.
    """

    def work(watching: tuple[Watcher, ...]) -> Run:
        return launch.train(recipe, folder, watchers=watching, address=address, **changes)

    return _shown(work, Path(folder), progress, watchers)


def resume(
    folder: Path | str,
    *,
    progress: Display = "auto",
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
) -> RunHandle:
    """Continues a run to the result it would have had without the interruption. The settings are those of `train`.

    Raises:
        RunError: the folder is not a run. ConfigError: it was begun on a cluster, and there is none, or without one.
    """

    def work(watching: tuple[Watcher, ...]) -> Run:
        return launch.resume(folder, watchers=watching, address=address)

    return _shown(work, Path(folder), progress, watchers)


def load_run(folder: Path | str) -> RunHandle:
    """Opens an earlier run, finished or not.

    Raises:
        RunError: the folder is not a run.
    """
    return RunHandle.open(Path(folder))


def evaluate(
    run: RunHandle | Path | str,
    tasks: Path | str | None = None,
    *,
    problems: int | None = None,
    samples: int | None = None,
    k: Sequence[int] = (1,),
    support: Support | None = None,
    seed: int = 0,
) -> HeldOutScore | RatedScore:
    """Computes held-out accuracy, pass@1 and pass@k with 95 % intervals, of a run's policy or of a model's folder.

    tasks: the recipe whose held-out tasks are used, the run's own by default; problems: how many of them, all by
    default. samples: answers per problem, by default as many as the largest k needs. support: temperature, top-k and
    top-p, the recipe's by default.

    Raises:
        ConfigError: no policy there, no recipe to take tasks from, or a k beyond the samples.
    """
    folder = run.folder if isinstance(run, Run) else run
    return evaluate_folder(folder, tasks, problems=problems, samples=samples, k=k, support=support, seed=seed)


def compare(
    methods: Sequence[str | dict[str, Any]],
    *,
    seeds: int,
    folder: Path | str | None = None,
    recipe: Path | str | None = None,
    changes: Mapping[str, Any] | None = None,
    processes: int | None = None,
    cluster: str | None = None,
    progress: Display = "auto",
) -> Comparison:
    """Trains methods on one recipe with several seeds, compares their held-out accuracy, and writes a report.

    methods: names, or {"name": "rloo", "kl": 0}; the others are compared with the first. folder: runs/compare-A-B by
    default; called again, it takes finished runs as they are and continues the others.
    The other settings are those of `polopt.training.compare.compare`.

    Raises:
        ConfigError: the recipe or a method is wrong, or a name is given twice.
        RunError: the folder holds runs of another recipe, or a run failed.
    """
    place = comparing.default_folder(methods) if folder is None else Path(folder)
    with _board(progress) as watch:
        found = comparing.compare(
            methods,
            seeds=seeds,
            folder=place,
            recipe=recipe,
            changes=changes,
            processes=processes,
            cluster=cluster,
            watch=watch,
        )
    with _optional("no report is written"):
        report.write_comparison(found, place, comparing.about_folder(place))
    return found


def _shown(
    work: Callable[[tuple[Watcher, ...]], Run], folder: Path, progress: Display, watchers: Sequence[Watcher]
) -> RunHandle:
    """Runs `work` with a progress display, and a report at its end, both on the main process only."""
    if progress not in ("auto", None):
        raise UserError(f'progress = {progress!r}: expected "auto", or None to show nothing')
    with contextlib.ExitStack() as stack:
        extra: tuple[Watcher, ...] = ()
        if progress is not None and leading():
            with _optional("no progress is shown"):
                from rich.console import Console

                from polopt.display.live import watching
                from polopt.display.progress import Progress

                extra = (stack.enter_context(watching(Console(highlight=False, markup=False), Progress(folder))),)
        run = work((*watchers, *extra))
    if leading():
        with _optional("no report is written"):
            page = report.write_report(run.folder)
            if extra:
                print(f"Report  {page}")
    return RunHandle(run.folder)


@contextlib.contextmanager
def _board(progress: Display) -> Iterator[Callable[[Sequence[ComparedRun]], None] | None]:
    if progress is None:
        yield None
        return
    from rich.console import Console

    from polopt.display.trials import Board

    board = Board(Console(highlight=False, markup=False))
    with board:
        yield board.update


@contextlib.contextmanager
def _optional(without: str) -> Iterator[None]:
    """Replaces a missing module in its body by a warning: the body needs the extra `tools`."""
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = f"{without}, as {error.name} is not installed: pip install 'polopt[tools]'"
        warnings.warn(sentence, PoloptWarning, stacklevel=4)
