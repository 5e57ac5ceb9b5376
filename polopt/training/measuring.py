"""Metrics of files of rows, which are read, checked and measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polopt import catalogue
from polopt.metrics import LoggedDecisions, Measured, Metric, MetricDataError, MetricError, WeightsError
from polopt.metrics.logged_rows import LOGGED_ROWS
from polopt.metrics.row_format import RowFormat, RunScores
from polopt.names import nearest
from polopt.training.estimates import score_of
from polopt.training.run import RECIPE, Run
from polopt.worlds.rows import MalformedRow, read_rows
from polopt.yaml_data import read_yaml

COLUMNS = LOGGED_ROWS.columns


def read_log(path: str | Path, columns: Mapping[str, str] | None = None) -> LoggedDecisions:
    """Reads logged decisions, one a row: JSON lines, a JSON array, CSV or Parquet, by the ending of the file's name.

    columns: the file's own name of a column, by polopt's (`COLUMNS`); `state`, `action`, `q` and `v` may be missing.

    Raises:
        MetricDataError: a column that polopt does not have, or rows that do not fit together, with their numbers.
        ConfigError: the file cannot be read, or rows are malformed, with their lines.
    """
    log: LoggedDecisions = read_data(LOGGED_ROWS, path, columns)
    return log


def read_data(rows: RowFormat, path: str | Path, columns: Mapping[str, str] | None = None) -> Any:
    """Reads the data of a metric's format of rows, as `read_log` does; path may be a run's folder, where the metric
    reads held-out scores."""
    for name in columns or {}:
        if name not in rows.columns:
            raise rows.error(f"{name!r:.60} is no column of {rows.what}{nearest(name, rows.columns)}")

    def parse(row: dict[str, Any]) -> Any:
        try:
            return rows.parse(row, columns)
        except MetricDataError as error:
            raise MalformedRow(str(error)) from None

    try:
        found = _rows_of_run(rows, Path(path), columns) if is_run(path) else read_rows(Path(path), parse)
        return rows.assemble(found)
    except MetricDataError as error:
        raise rows.error(f"{path}, {error}") from None


def is_run(path: str | Path) -> bool:
    """Returns True for the folder of a run."""
    return (Path(path) / RECIPE).is_file()


def run_scores(folder: Path) -> RunScores:
    """Returns the held-out scores of a run. A task is a world, and has the name of the first stage that trains in it.

    Raises:
        RunError: a log is damaged.
        ConfigError: the recipe cannot be read.
    """
    run = Run.open(folder)
    recipe = read_yaml(run.recipe.read_text(encoding="utf-8"), str(run.recipe))
    names: dict[str, str] = {}
    tasks = {}
    for stage, settings in recipe["stages"].items():
        world = json.dumps(settings.get("tasks") or recipe.get("tasks"), sort_keys=True)
        tasks[stage] = names.setdefault(world, stage)
    found = [{**each, "score": score_of(each)[1]["estimate"]} for each in run.read("evaluations")]
    found += [{**each, "score": score_of(each)[1]["estimate"], "other": each["name"]} for each in run.read("others")]
    return RunScores(tasks, found)


def _rows_of_run(rows: RowFormat, folder: Path, columns: Mapping[str, str] | None) -> list[tuple[int, Any]]:
    if rows.rows_of_run is None:
        raise MetricDataError(f"a run's folder has no {rows.what}; give a file of rows")
    if columns:
        raise MetricDataError("the scores of a run have no columns to name; leave out --column")
    return [(n, rows.parse(row, None)) for n, row in enumerate(rows.rows_of_run(run_scores(folder)), 1)]


def data_of(metric: Metric, path: str | Path, columns: Mapping[str, str] | None = None) -> Any:
    """Reads the rows of a file that a metric measures.

    Raises:
        MetricError: a metric that reads no files.
        MetricDataError, ConfigError: as `read_log`.
    """
    rows = getattr(metric, "rows", None)
    if not isinstance(rows, RowFormat):
        raise MetricError(f"{metric!r:.80} reads no files: its class has no `rows`, the format of one")
    return read_data(rows, path, columns)


def measure_policies(
    metric: Metric, path: str | Path, policies: Mapping[str, str], columns: Mapping[str, str] | None = None
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Measures one log for several target policies. Returns the results, and why there is none for the others.

    policies: the column of the target probabilities, by the policy's name. columns: as for `read_log`.

    Raises:
        MetricError: the metric reads no target policy.
        MetricDataError: no policy can be estimated.
        ConfigError: the file cannot be read, or rows are malformed.
    """
    if getattr(metric, "rows", None) is not LOGGED_ROWS:
        raise MetricError(f"{metric!r:.80} estimates no policy's value from a log of decisions; leave out --policy")
    results: dict[str, Measured] = {}
    refused: dict[str, str] = {}
    for name, column in policies.items():
        try:
            results[name] = metric(data_of(metric, path, {**(columns or {}), "target_probability": column}))
        except (MetricDataError, WeightsError) as error:
            refused[name] = str(error)
    if not results:
        raise LOGGED_ROWS.error("; ".join(dict.fromkeys(refused.values())))
    return results, refused


def measure(
    metric: str | Metric, path: str | Path, columns: Mapping[str, str] | None = None, **settings: Any
) -> Measured:
    """Measures a file: of logged decisions, or of the rows that the metric reads.

    metric: a method's name, with `settings`, or a metric. columns: as for `read_log`.

    Raises:
        ValueError, TypeError: no such method or setting, or a method that is no metric.
        MetricError, MetricDataError, ConfigError: as `read_log`, and as the metric.
    """
    found = catalogue.metric(metric, **settings) if isinstance(metric, str) else metric
    result: Measured = found(data_of(found, path, columns))
    return result
