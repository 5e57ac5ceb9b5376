"""The rollouts of one stage as demonstrations, or pairs of answers, that a later stage learns from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polopt.algorithm import Algorithm
from polopt.config import Config, ConfigError
from polopt.experience import Experience
from polopt.worlds import RatedAnswer, Task, TaskList
from polopt.worlds.rated import RatedTasks

Record = Mapping[str, Any]


class StageData(Config):
    """The rollouts of an earlier stage that `writes` them, in place of training tasks. A method that learns from pairs
    gets each group's answer of the highest outcome and that of the lowest, where the two differ; one that imitates,
    every answer. Answers that were cut off are left out.

    stage: its name.
    min_outcome: the lowest outcome of an answer that is imitated, or preferred in a pair; None for any.
    all_rounds: take what it wrote in earlier rounds, too.
    """

    stage: str
    min_outcome: float | None = None
    all_rounds: bool = False


def records_of(experience: Experience) -> Iterator[dict[str, Any]]:
    """Yields the rollouts of a batch of single answers, as a line of a file holds each: task, its index, prompt,
    answer, outcome and group."""
    index, tasks = experience.extras.get("index"), experience.extras["task"]
    numbers = [None] * len(experience) if index is None else index.tolist()
    shown, cut = experience.is_demonstration.tolist(), experience.truncated.tolist()
    for row, group in enumerate(experience.group.tolist()):
        if not shown[row]:
            yield {
                "task": tasks[row].id,
                "index": numbers[row],
                "kind": tasks[row].kind,
                **({"history": list(tasks[row].history)} if tasks[row].history else {}),
                "prompt": tasks[row].prompt,
                "answer": experience.extras["answer"][row],
                "outcome": float(experience.outcome[row]),
                "group": group,
                "truncated": cut[row],
            }


def is_paired(algorithm: Algorithm) -> bool:
    """Returns whether a method learns from pairs."""
    return any("pairs" in part.source_capabilities for part in algorithm.parts())


def check_data(stage: str, algorithm: Algorithm) -> None:
    """Checks that a method learns from given answers alone.

    Raises:
        ConfigError: it samples answers, or reads texts.
    """
    capabilities = {name for part in algorithm.parts() for name in part.source_capabilities}
    if algorithm.sampling.rollout_support is not None or not capabilities & {"pairs", "demonstrations"}:
        raise ConfigError(
            f"stages.{stage}.data holds answers to imitate or to compare, and the method learns from others; take one "
            "that learns from these alone, as sft or dpo, or leave data out"
        )


def tasks_of(stage: str, spec: StageData, records: Sequence[Record], *, paired: bool) -> TaskList:
    """Returns the tasks that a stage learns from. records: the file's lines, those of the latest round last.

    Raises:
        ConfigError: there are none.
    """
    if records and not spec.all_rounds:
        records = [r for r in records if r.get("round", 1) == records[-1].get("round", 1)]
    complete = [r for r in records if not r["truncated"]]
    found = _pairs(complete) if paired else [(record, None) for record in complete]
    least = spec.min_outcome
    found = [(r, other) for r, other in found if least is None or r["outcome"] >= least]
    if not found:
        expected = "pair of answers with different outcomes" if paired else "whole answer"
        raise ConfigError(
            f"stages.{stage}.data: stage {spec.stage} wrote {len(records)} rollouts, and no {expected}"
            f"{'' if least is None else f' of outcome {least:g} or more'} among them; the stage has nothing to learn "
            "from"
        )
    tasks = [_task(f"{spec.stage}:{i}", record, rejected) for i, (record, rejected) in enumerate(found)]
    return (RatedTasks if paired else TaskList)(tasks, _score)


def _pairs(records: Sequence[Record]) -> list[tuple[Record, str | None]]:
    """Returns the best answer of each group, the first of equals, and the text of the worst."""
    groups: dict[tuple[int, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record["step"], record["group"]), []).append(record)
    found: list[tuple[Record, str | None]] = []
    for rows in groups.values():
        best, worst = max(rows, key=lambda r: r["outcome"]), min(rows, key=lambda r: r["outcome"])
        if best["outcome"] > worst["outcome"] and best["answer"] != worst["answer"]:
            found.append((best, worst["answer"]))
    return found


def _task(name: str, record: Record, rejected: str | None) -> Task:
    history = tuple(record.get("history", ()))
    rated = () if rejected is None else (RatedAnswer(record["answer"], 1.0), RatedAnswer(rejected, 0.0))
    return Task(name, record["kind"], record["prompt"], record["answer"], {}, history, rated=rated)


def _score(completion: str, task: Task) -> tuple[float, dict[str, Any]]:
    """Returns reward 1 for the answer of the file, word for word, and 0 otherwise."""
    return float(completion == task.solution), {}
