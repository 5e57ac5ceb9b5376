"""Summary of a run in words and numbers: headline, task types, stages, warnings."""

from __future__ import annotations

import dataclasses
from typing import Any

from polopt.metrics import RewardDivergence, reward_parting
from polopt.report.run import Record, RunData, number, rate
from polopt.training.estimates import SHARE, estimates_of, label_of, score_of, unit_of
from polopt.training.evaluate import change as measured_change

Rate = tuple[float, float, float]


@dataclasses.dataclass(frozen=True)
class Change:
    """The held-out score before and after one stage.

    final: False while the stage is still running.
    change: the paired change on the same problems, with its interval; None where results by problem are missing.
    """

    stage: str
    before: Rate | None
    after: Rate | None
    final: bool
    first: Record
    last: Record
    change: Rate | None = None

    @property
    def unit(self) -> str:
        """Unit of the score: a fraction of problems, or another one."""
        return unit_of(score_of(self.last)[1]) if estimates_of(self.last) else SHARE

    @property
    def label(self) -> str:
        """Label of the score."""
        found = label_of(*score_of(self.last)) if estimates_of(self.last) else "held-out accuracy"
        return found.capitalize()


def changes(run: RunData) -> list[Change]:
    """Returns one change for each evaluated stage: from its own "before", else from the preceding evaluation."""
    measured = [e for e in run.evaluations if rate(e) is not None]
    result = []
    for stage in dict.fromkeys(str(e.get("stage", "")) for e in measured):
        places = [i for i, e in enumerate(measured) if str(e.get("stage", "")) == stage]
        own_before = [i for i in places if measured[i].get("when") == "before"]
        first = own_before[0] if own_before else max(places[0] - 1, 0)
        later = [i for i in places if i != first]
        last = later[-1] if later else first
        result.append(
            Change(
                stage=stage,
                before=rate(measured[first]),
                after=rate(measured[last]) if later else None,
                final=measured[last].get("when") == "after"
                and measured[last].get("round", 1) == run.recipe.get("rounds", 1),
                first=measured[first],
                last=measured[last],
                change=_change(measured[first], measured[last]) if later else None,
            )
        )
    return result


def kinds(change: Change) -> list[Record]:
    """Returns a row for each task type: kind, before and after (rates or None), problems; most improved first."""
    first, last = _mapping(change.first.get("kinds")), _mapping(change.last.get("kinds"))
    rows = [
        {
            "kind": kind,
            "before": rate(first, kind) if kind in first else None,
            "after": rate(last, kind) if kind in last and change.after else None,
            "problems": _problems(last.get(kind, first.get(kind))),
            "change": _change(change.first, change.last, kind) if change.after else None,
        }
        for kind in dict.fromkeys([*first, *last])
    ]
    return sorted(rows, key=lambda r: -_gain(r))


def others(run: RunData) -> list[Record]:
    """Returns a row for each set of other problems, as `kinds`, with its name as `kind`."""
    found = []
    for name in dict.fromkeys(str(e.get("name")) for e in run.others):
        measured = [e for e in run.others if str(e.get("name")) == name and rate(e) is not None]
        before = [e for e in measured if e.get("when") == "before"]
        after = [e for e in measured if e.get("when") == "after"]
        first, last = before[0] if before else None, after[-1] if after else None
        found.append(
            {
                "kind": name,
                "before": first and rate(first),
                "after": last and rate(last),
                "problems": _problems(first or last),
                "change": _change(first, last) if first and last else None,
            }
        )
    return found


def _change(first: Record, last: Record, kind: str | None = None) -> Rate | None:
    found = measured_change(first, last, kind)
    return None if found is None else (found.estimate, found.low, found.high)


def _mapping(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _problems(value: Any) -> int | None:
    return int(n) if isinstance(value, dict) and (n := number(value.get("problems"))) is not None else None


def _gain(row: Record) -> float:
    return row["after"][0] - row["before"][0] if row["before"] and row["after"] else -2.0


def notices(run: RunData, change: Change | None) -> list[str]:
    """Returns warnings about a run, one sentence each: unread files, weak evidence, no training signal and the like."""
    result = list(run.troubles)
    if run.info.get("finished") is not True:
        result.append("This run has not finished; the report shows what has been written so far.")
    if change is None and not run.solves:
        result.append("No held-out evaluation has been written yet, so it is unknown whether the policy is better.")
    elif change is not None and change.change is not None and change.change[1] <= 0 <= change.change[2]:
        result.append(
            "The interval of the change holds 0: this run alone is weak evidence of a change. "
            "More held-out problems or more seeds would settle it."
        )
    still = without_steps(run)
    if still:
        result.append(
            f"No optimiser step was made in stage {' and '.join(still)}: every advantage was 0, or filters left no "
            "row, so the policy did not change there, and a difference in accuracy is chance."
        )
    cut = _recent(run, "truncated")
    if cut is not None and cut > 0.2 and run.recipe.get("kind") != "control":  # a time limit is no fault
        result.append(f"{cut:.0%} of the last completions were cut off at the length limit; consider raising it.")
    size = _recent(run, "mismatch/ess")
    if size is not None and size < 0.5:
        result.append(
            f"The effective sample size is {size:.0%}: sampler and learner disagree so much that "
            "most of a batch carries no weight."
        )
    signal = _recent(run, "groups/signal")
    solved = _recent(run, "solved")
    if signal is not None and signal < 0.2:
        mixed = _recent(run, "groups/mixed")
        if (solved or 0) > 0.9:
            why = "by now nearly every answer is right"
        elif mixed is not None and mixed >= 0.2:
            why = "answers differ in outcome, and the method gives them no advantage all the same"
        elif (size := _recent(run, "groups/size_max")) is not None and size <= 1:
            why = "a group is one answer, which there is nothing to compare with"
        else:
            why = "the answers of a group came out alike, as they do where tasks are too easy or too hard"
        result.append(f"Only {signal:.0%} of the last groups had any signal: {why}.")
    found = parting(run)
    if found is not None and found.parts:
        what = "falls while it rises" if found.hacked else "falls behind"
        result.append(
            f"From about step {found.step.estimate:.0f} on ({found.step.low:.0f} to {found.step.high:.0f}) the truth "
            f"no longer follows the reward: it {what}."
        )
    return result


def without_steps(run: RunData) -> list[str]:
    """Returns the stages that have trained without any batch that gave a gradient."""
    stages: dict[str, bool] = {}
    for record in run.metrics:
        if "stage" in record:
            name = str(record["stage"])
            stages[name] = stages.get(name, False) or "grad_norm" in record
    return [name for name, stepped in stages.items() if not stepped]


def parting(run: RunData, points: int = 40) -> RewardDivergence | None:
    """Detects where reward and truth diverge in the last stage, from means of `points` stretches of it.

    None where one of the two was not measured, or there are too few steps.
    """
    truth = dict(run.series("signal/true"))
    stages = run.stages()
    first = stages[-1][1] if stages else 0.0
    outcomes = [(step, value) for step, value in run.series("outcome/mean") if step >= first and step in truth]
    size = max(1, len(outcomes) // points)
    cut = [outcomes[i : i + size] for i in range(0, len(outcomes) - size + 1, size)]
    if len(cut) < 8:
        return None
    mean = lambda values: sum(values) / size  # noqa: E731
    steps = [mean([s for s, _ in part]) for part in cut]
    return reward_parting(
        steps, [mean([v for _, v in part]) for part in cut], [mean([truth[s] for s, _ in part]) for part in cut]
    )


def _recent(run: RunData, key: str) -> float | None:
    """Returns the mean of the last tenth of a series, at least one value; None for an empty series."""
    values = [v for _, v in run.series(key)]
    tail = values[-max(len(values) // 10, 1) :]
    return sum(tail) / len(tail) if tail else None


def headline(run: RunData) -> list[tuple[str, str]]:
    """Returns (label, value) of the facts under the title."""
    recipe, info = run.recipe, run.info
    method = info.get("method") or recipe.get("method")
    known = [step for m in run.metrics if (step := number(m.get("step"))) is not None]
    steps = max(known, default=0.0) if run.solves else len(set(known))
    seconds = number(info.get("seconds")) or max((s for _, s in run.series("seconds")), default=None)
    facts = [
        ("method", _brief(method)),
        ("policy", _brief(recipe.get("policy"))),
        ("tasks", _brief(recipe.get("tasks"))),
        ("points", _brief(recipe.get("points"))),
        ("problem", _brief(recipe.get("problem"))),
        ("seed", _brief(recipe.get("seed"))),
        ("parameters", count(number(info.get("parameters")))),
        ("steps", count(steps) if steps else ""),
        ("time", duration(seconds)),
    ]
    return [(label, value) for label, value in facts if value]


def _brief(value: Any) -> str:
    """Formats a setting in a few words: names and scalars as they are, of a mapping its name or its entries."""
    if value is None:
        return ""
    if isinstance(value, dict):
        for key in ("name", "part", "kind", "model", "path", "model_type"):
            if isinstance(value.get(key), str):
                return str(value[key])
        if isinstance(value.get("config"), dict):
            return _brief(value["config"])
        return ", ".join(
            f"{name} {_brief(one)}" for name, one in value.items() if one is not None and one is not False
        )[:60]
    if isinstance(value, (list, tuple)):
        return ", ".join(_brief(v) for v in value)[:60]
    return str(value)[:60]


def count(value: float | None) -> str:
    if value is None:
        return ""
    for size, unit in ((1e9, " billion"), (1e6, " million")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
