"""Release gates of runs: requirements from a file, scores from a run's folder or a file, and the history of reports."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

import polopt
from polopt.config import Config, parse
from polopt.errors import ConfigError, RunError
from polopt.metrics import GateReport, MeasuredScore, Requirement, gate, pass_at_k, t_interval
from polopt.metrics.requirements import RequirementResult
from polopt.names import nearest
from polopt.training.estimates import PREFERENCES, estimates_of
from polopt.training.run import Run
from polopt.yaml_data import read_yaml_file

# The log of a run's reports; resuming a run does not cut it.
HISTORY = "gates"


class RequirementFile(Config):
    """Requirements of a release. use: what for, in words. tier: the user's own label of its risk, which nothing here
    interprets. stakeholders: who is concerned."""

    requirements: list[Requirement]
    use: str | None = None
    tier: str | None = None
    stakeholders: list[str] = pydantic.Field(default_factory=list)


def read_requirements(path: Path) -> RequirementFile:
    """Reads a YAML file: a list of requirements, or a map with a list `requirements`.

    Raises:
        ConfigError: the file is no YAML, or a setting is missing, unknown or wrong; the message names its path.
    """
    data = read_yaml_file(path)
    data = {"requirements": data} if isinstance(data, list) else data
    for i, each in enumerate(data.get("requirements") or () if isinstance(data, Mapping) else ()):
        for key in each if isinstance(each, Mapping) else ():
            if key not in Requirement.model_fields:
                raise ConfigError(
                    f"{path.name}.requirements.{i}.{key} is not a setting{nearest(str(key), Requirement.model_fields)}"
                )
    return parse(RequirementFile, data, path.name)


def score_of_rates(rates: Sequence[float]) -> MeasuredScore:
    """Returns the score of success rates, one for each problem: counts where all are 0 or 1, Student's interval
    elsewhere."""
    if all(rate in (0.0, 1.0) for rate in rates):
        return MeasuredScore.of_counts(round(sum(rates)), len(rates))
    found = t_interval(rates)
    return MeasuredScore(found.estimate, found.low, found.high, found.level, found.n)


def scores_of_record(record: Mapping[str, Any]) -> dict[str, MeasuredScore]:
    """Returns the scores of a record of evaluations.jsonl, or of what `polopt evaluate --json` prints, by name: each
    estimate, `NAME/KIND` of each kind of task, and plain numbers, which have no interval.

    pass@k and rates of preferences are computed from the counts of their problems, where the record has them.
    """
    found: dict[str, MeasuredScore] = {}
    kinds = record.get("kinds") or {}
    problems, samples = record.get("problems"), int(record.get("samples") or 1)
    for name, estimate in estimates_of(record).items():
        found[name] = _score_of_interval(estimate, problems)
        k = int(name.removeprefix("pass@")) if name.startswith("pass@") else 1
        if name != PREFERENCES[0] and not name.startswith("pass@"):
            continue
        rates = {kind: pass_at_k([samples] * len(x["solved"]), x["solved"], k) for kind, x in kinds.items()}
        if rates:
            found[name] = score_of_rates([float(rate) for part in rates.values() for rate in part])
        found |= {f"{name}/{kind}": score_of_rates([float(x) for x in part]) for kind, part in rates.items()}
    for name, value in record.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in found:
            found[name] = MeasuredScore(float(value))
    return found


def _score_of_interval(interval: Mapping[str, Any], n: int | None = None) -> MeasuredScore:
    """Returns the score of an interval as JSON has it; a null end is an endless one."""
    low, high = (
        float(interval[end]) if isinstance(interval.get(end), (int, float)) else sign * math.inf
        for end, sign in (("low", -1), ("high", 1))
    )
    return MeasuredScore(
        float(interval["estimate"]), low, high, float(interval.get("level", 0.95)), interval.get("n", n)
    )


def scores_of_run(run: Run) -> tuple[dict[str, MeasuredScore], dict[str, Any]]:
    """Returns the scores of a finished run's last evaluation, those of its other problems as `OTHER/NAME`, and what
    they were measured on: step, stage and seed.

    Raises:
        RunError: the run has no evaluation of its end.
    """
    ends = [record for record in run.read("evaluations") if record.get("when") == "after"]
    if not ends:
        raise RunError(
            f"{run.folder} has no evaluation of its end, so that there is nothing to compare: finish it with polopt "
            f"train --resume {run.folder}"
        )
    last = ends[-1]
    found = scores_of_record(last)
    for record in run.read("others"):
        if record.get("when") == "after" and record.get("step") == last["step"]:
            found |= {f"{record['name']}/{name}": score for name, score in scores_of_record(record).items()}
    recipe = read_yaml_file(run.recipe)
    return found, {"step": last["step"], "stage": last.get("stage"), "seed": recipe.get("seed")}


def scores_of_file(path: Path) -> dict[str, MeasuredScore]:
    """Returns the scores of a file: the output of `polopt measure --json` or of `polopt evaluate --json`.

    Raises:
        ConfigError: it is neither.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("values"), dict) and isinstance(data.get("intervals"), dict):
        found = {name: MeasuredScore(float(x)) for name, x in data["values"].items() if isinstance(x, (int, float))}
        return found | {name: _score_of_interval(interval) for name, interval in data["intervals"].items()}
    if isinstance(data, dict) and estimates_of(data):
        return scores_of_record(data)
    raise ConfigError(
        f"{path} holds no scores: give a run's folder, or what `polopt measure ... --json` or `polopt evaluate ... "
        "--json` printed"
    )


def gate_source(source: Path, requirements: Path, *, corrected: bool = True) -> tuple[GateReport, dict[str, Any]]:
    """Compares the scores of a run's folder, or of a file, with requirements. Returns the report, and the record of it
    with all that it was computed from.

    Raises:
        ConfigError, RunError: as `read_requirements`, `scores_of_run` and `scores_of_file`.
    """
    asked = read_requirements(requirements)
    if source.is_dir():
        scores, about = scores_of_run(Run.open(source))
    elif source.is_file():
        scores, about = scores_of_file(source), {}
    else:
        raise ConfigError(f"{source} does not exist: give a run's folder, or a file of scores")
    now = datetime.datetime.now(datetime.UTC)
    found = gate(asked.requirements, scores, corrected=corrected, today=now.date())
    header = {"time": now.isoformat(timespec="seconds"), "polopt": polopt.__version__, "source": str(source), **about}
    labels = asked.model_dump(exclude={"requirements"}, exclude_none=True)
    return found, {**header, **labels, "corrected": corrected, **record_of(found)}


def record_of(report: GateReport) -> dict[str, Any]:
    """Returns a report as plain data; an endless bound is null."""
    return {
        "verdict": report.verdict,
        "results": [_result_record(result) for result in report.results],
        "cautions": list(report.cautions),
    }


def _result_record(result: RequirementResult) -> dict[str, Any]:
    score = result.score
    known = {} if score is None else {key: value for key, value in vars(score).items() if value is not None}
    return {
        "requirement": result.requirement.model_dump(mode="json", exclude_none=True),
        "status": result.status,
        "blocks": result.blocks,
        "score": {key: value for key, value in known.items() if math.isfinite(value)},
        "bound": result.bound if result.bound is not None and math.isfinite(result.bound) else None,
        "level": result.level,
        "reason": result.reason,
    }


def read_history(path: Path) -> list[dict[str, Any]]:
    """Returns the reports of a history, the first one first; none where there is no file.

    Raises:
        RunError: a line is no report.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    try:
        found = [json.loads(line) for line in lines]
        if any("results" not in each or "verdict" not in each for each in found):
            raise ValueError
    except (ValueError, TypeError):
        raise RunError(f"{path} is damaged: a line of it is no report of a gate; move it away") from None
    return found


def append_history(path: Path, record: Mapping[str, Any]) -> None:
    """Adds a report to the end of a history; nothing that is there changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def report_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the requirements that two records of reports differ in: their label, and status and estimate in each,
    null where it is not there. Requirements of equal attribute, score and threshold are the same."""

    def by_label(record: Mapping[str, Any]) -> dict[str, tuple[str, float | None]]:
        return {
            Requirement.model_validate(result["requirement"]).label: (
                result["status"],
                result["score"].get("estimate"),
            )
            for result in record["results"]
        }

    one, two = by_label(before), by_label(after)
    return [
        {
            "requirement": label,
            "before": dict(zip(("status", "estimate"), one.get(label, (None, None)), strict=True)),
            "after": dict(zip(("status", "estimate"), two.get(label, (None, None)), strict=True)),
        }
        for label in dict.fromkeys((*one, *two))
        if one.get(label) != two.get(label)
    ]
