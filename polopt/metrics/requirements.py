"""Requirements on measured scores: each is met only if the end of the score's interval meets its threshold."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from polopt.metrics.compare import holm
from polopt.metrics.intervals import clopper_pearson
from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in
from polopt.names import nearest

Status = Literal["pass", "fail", "unknown"]
Verdict = Literal["ship", "warn", "block"]
# Severity -> the statuses that block a release; any other status than "pass" is a warning.
BLOCKING: dict[str, frozenset[Status]] = {
    "high": frozenset({"fail", "unknown"}),
    "medium": frozenset({"fail"}),
    "low": frozenset(),
}


class Requirement(pydantic.BaseModel):
    """A threshold that a score must meet.

    attribute: what it is about, in words, as "security". metric: the score's name. op, threshold: the score must be
    >= or <= threshold. level: confidence of the one-sided bound, 0.5 compares the estimate itself. severity: what else
    than a pass means: "high" blocks a release, "medium" blocks it where the score is known, "low" warns. owner: who
    answers for it. expires: the day after which the threshold must be reviewed.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    attribute: str = pydantic.Field(min_length=1)
    metric: str = pydantic.Field(min_length=1)
    op: Literal[">=", "<="]
    threshold: float
    level: float = pydantic.Field(default=0.95, ge=0.5, lt=1)
    severity: Literal["high", "medium", "low"] = "high"
    owner: str | None = None
    expires: datetime.date | None = None

    @property
    def label(self) -> str:
        """Returns a name: attribute, score and threshold."""
        return f"{self.attribute}: {self.metric} {self.op} {self.threshold:g}"


@dataclasses.dataclass(frozen=True)
class MeasuredScore:
    """An estimate and what is known of its error: of a rate the counts of independent trials, of another score an
    interval.

    low, high, level: the ends of a two-sided interval; None where unknown, infinite for an endless one. n: independent
    units behind it. successes, trials: of a rate of independent trials.
    """

    estimate: float
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    n: int | None = None
    successes: int | None = None
    trials: int | None = None

    @classmethod
    def of_counts(cls, successes: int, trials: int) -> MeasuredScore:
        """Returns the score of a rate."""
        return cls(successes / trials, n=trials, successes=successes, trials=trials)

    def end(self, op: str) -> float | None:
        """Returns the end of the interval that a requirement compares."""
        return self.low if op == ">=" else self.high

    def known(self, op: str) -> bool:
        """Returns whether the score has an interval on the side that a requirement compares."""
        return self.trials is not None or self.end(op) is not None

    def p_value(self, op: str, threshold: float) -> float:
        """Returns the probability of a score at least as good as this one where the true one is at the threshold: of
        counts the binomial's, of an interval that of Student's t with n - 1 degrees of freedom, the normal's where n is
        unknown."""
        if self.trials is not None and self.successes is not None:
            return _binomial_p(self.successes, self.trials, op, threshold)
        ahead = self.estimate - threshold if op == ">=" else threshold - self.estimate
        deviation = self._deviation(op)
        if not math.isfinite(deviation):
            return 1.0
        if deviation == 0:
            return float(ahead < 0)
        from scipy.stats import norm, t

        found = norm.sf(ahead / deviation) if self.n is None else t.sf(ahead / deviation, self.n - 1)
        return float(found)

    def bound(self, op: str, level: float) -> float:
        """Returns the one-sided bound of a confidence level: the largest threshold whose `p_value` is at most
        1 - level, the smallest for <=."""
        if self.trials is not None and self.successes is not None:
            interval = clopper_pearson(self.successes, self.trials, 2 * level - 1) if level > 0.5 else None
            if interval is None:
                return self.estimate
            return interval.low if op == ">=" else interval.high
        deviation, side = self._deviation(op), -1.0 if op == ">=" else 1.0
        if level == 0.5 or deviation == 0:
            return self.estimate
        if not math.isfinite(deviation):
            return side * math.inf
        return self.estimate + side * self._quantile(level) * deviation

    def _deviation(self, op: str) -> float:
        """Returns the standard error that the interval's end implies."""
        end = self.end(op)
        if end is None or not math.isfinite(end) or (self.n is not None and self.n < 2):
            return math.inf
        return abs(self.estimate - end) / self._quantile((1 + self.level) / 2)

    def _quantile(self, probability: float) -> float:
        from scipy.special import ndtri, stdtrit

        return float(ndtri(probability)) if self.n is None else float(stdtrit(self.n - 1, probability))


def _binomial_p(successes: int, trials: int, op: str, threshold: float) -> float:
    """Returns the tail of the binomial distribution; of a threshold that no rate can miss 0, that none can meet 1."""
    if not 0 <= threshold <= 1:
        return float((threshold > 1) == (op == ">="))
    from scipy.special import bdtr, bdtrc

    if op == ">=":
        return 1.0 if successes == 0 else float(bdtrc(successes - 1, trials, threshold))
    return 1.0 if successes == trials else float(bdtr(successes, trials, threshold))


@dataclasses.dataclass(frozen=True)
class RequirementResult:
    """One requirement's result. bound: the score's one-sided bound at `level`, the confidence after the correction for
    several requirements. reason: in words. blocks: whether it blocks the release."""

    requirement: Requirement
    status: Status
    score: MeasuredScore | None
    bound: float | None
    level: float
    reason: str

    @property
    def blocks(self) -> bool:
        return self.status in BLOCKING[self.requirement.severity]


@dataclasses.dataclass(frozen=True)
class GateReport:
    """The results of all requirements, and sentences on what makes them weak."""

    results: tuple[RequirementResult, ...]
    cautions: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Returns "block" if a result blocks, "warn" if one is no pass or there is none, and "ship" otherwise."""
        if any(result.blocks for result in self.results):
            return "block"
        return "ship" if self.results and all(r.status == "pass" for r in self.results) else "warn"


def gate(
    requirements: Sequence[Requirement],
    scores: Mapping[str, MeasuredScore],
    *,
    corrected: bool = True,
    today: datetime.date | None = None,
) -> GateReport:
    """Compares the bounds of scores with requirements.

    scores: by name. corrected: whether the levels are Holm's, for the number of requirements whose scores are known.
    today: the day on which expired requirements are named; None names none.

    Raises:
        MetricDataError: a requirement is given twice.
    """
    _check_distinct(requirements)
    known = [r for r in requirements if r.metric in scores and scores[r.metric].known(r.op)]
    tests = _tests(known, scores, corrected)
    results = []
    for each in requirements:
        score = scores.get(each.metric)
        if each.label in tests:
            results.append(_result(each, scores[each.metric], *tests[each.label]))
        else:
            reason = f"no score is called {each.metric!r:.60}{nearest(each.metric, scores)}"
            if score is not None:
                reason = f"{each.metric} has no interval, so that its error is unknown"
            results.append(RequirementResult(each, "unknown", score, None, each.level, reason))
    cautions = [] if requirements else ["there are no requirements, so that anything ships"]
    for each in requirements:
        if today is not None and each.expires is not None and each.expires < today:
            who = f"; {each.owner} answers for it" if each.owner else ""
            cautions.append(f"{each.label} expired on {each.expires} and must be reviewed{who}")
    return GateReport(tuple(results), tuple(cautions))


def _check_distinct(requirements: Sequence[Requirement]) -> None:
    labels = [requirement.label for requirement in requirements]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise MetricDataError(f"the requirement {twice!r:.100} is given twice; leave one of the two")


def _tests(
    known: Sequence[Requirement], scores: Mapping[str, MeasuredScore], corrected: bool
) -> dict[str, tuple[bool, float]]:
    """Returns of each requirement whether it is met, and the level of its bound. Holm's steps are in the order of
    p / (1 - level), so that requirements may have levels of their own; the ones after the first that is not met have
    the level of that step."""
    shares = {r.label: scores[r.metric].p_value(r.op, r.threshold) / (1 - r.level) for r in known}
    ordered = sorted(known, key=lambda r: (shares[r.label], r.label))
    if not corrected:
        return {r.label: (shares[r.label] <= 1, r.level) for r in known}
    met = holm([shares[r.label] for r in ordered], 1.0)
    last = sum(met)  # the step of the first that is not met
    return {
        r.label: (found, 1 - (1 - r.level) / (len(known) - min(step, last)))
        for step, (r, found) in enumerate(zip(ordered, met, strict=True))
    }


def _result(requirement: Requirement, score: MeasuredScore, met: bool, level: float) -> RequirementResult:
    bound = score.bound(requirement.op, level)
    end = "lower" if requirement.op == ">=" else "upper"
    does = "meets" if met else "does not meet"
    reason = f"the {end} bound {bound:.4g} {does} {requirement.op} {requirement.threshold:g}"
    return RequirementResult(requirement, "pass" if met else "fail", score, bound, level, reason)


COLUMNS = (*Requirement.model_fields, "estimate", "low", "high", "interval_level", "n", "successes", "trials")


@dataclasses.dataclass(frozen=True, eq=False)
class GatedRequirements:
    """N requirements, each with its score, None where there is none.

    Raises:
        MetricDataError: lists of different lengths, or a requirement that is given twice.
    """

    requirements: Sequence[Requirement]
    scores: Sequence[MeasuredScore | None]

    def __post_init__(self) -> None:
        if len(self.requirements) != len(self.scores):
            raise MetricDataError(
                f"GatedRequirements: {len(self.requirements)} requirements need as many scores, or None for those that "
                f"have none, found {len(self.scores)}"
            )
        _check_distinct(self.requirements)

    def __len__(self) -> int:
        return len(self.requirements)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> GatedRequirements:
        index = [int(i) for i in np.asarray(rows)]
        return GatedRequirements([self.requirements[i] for i in index], [self.scores[i] for i in index])

    def report(self, *, corrected: bool) -> GateReport:
        """Returns the gate's report; each requirement has its own score, even if two name the same metric."""
        keyed = [
            requirement.model_copy(update={"metric": requirement.label}) if score is not None else requirement
            for requirement, score in zip(self.requirements, self.scores, strict=True)
        ]
        scores = {k.metric: s for k, s in zip(keyed, self.scores, strict=True) if s is not None}
        found = gate(keyed, scores, corrected=corrected)
        restored = [
            dataclasses.replace(result, requirement=requirement)
            for result, requirement in zip(found.results, self.requirements, strict=True)
        ]
        return GateReport(tuple(restored), found.cautions)


def gated_row(
    row: Mapping[str, Any], columns: Mapping[str, str] | None = None
) -> tuple[Requirement, MeasuredScore | None]:
    """Checks a requirement of a file with its score: `estimate` with the ends `low` and `high` of an interval and,
    where they are known, its `interval_level` (0.95 if none) and the number `n` of independent units; or `successes`
    and `trials`; or none of these for a score that is unknown.

    Raises:
        MetricDataError: an invalid value; the message does not name the row.
    """
    names = column_names(COLUMNS, columns)
    given = {name: row[names[name]] for name in Requirement.model_fields if row.get(names[name]) not in (None, "")}
    try:
        requirement = Requirement.model_validate(given)
    except pydantic.ValidationError as error:
        raise MetricDataError(sentence_of(error)) from None
    score_names = COLUMNS[len(Requirement.model_fields) :]
    number = {name: number_in(row, names[name], required=False) for name in score_names}
    successes, trials = number["successes"], number["trials"]
    if successes is not None and trials is not None:
        if successes != int(successes) or trials != int(trials) or not 0 <= successes <= trials or trials < 1:
            raise MetricDataError(
                f"successes and trials must be whole numbers, 0 <= successes <= trials, found {successes:g}, {trials:g}"
            )
        return requirement, MeasuredScore.of_counts(int(successes), int(trials))
    if successes is not None or trials is not None:
        raise MetricDataError("successes and trials must be given together")
    estimate, low, high, units = (number[name] for name in ("estimate", "low", "high", "n"))
    if estimate is None:
        return requirement, None
    level = 0.95 if number["interval_level"] is None else number["interval_level"]
    if not 0 < level < 1:
        raise MetricDataError(f"interval_level must lie between 0 and 1, found {level:g}")
    if (low is not None and low > estimate) or (high is not None and high < estimate):
        raise MetricDataError(f"low <= estimate <= high must hold, found {low}, {estimate:g}, {high}")
    return requirement, MeasuredScore(estimate, low, high, level, None if units is None else int(units))


def sentence_of(error: pydantic.ValidationError) -> str:
    """Returns the first problem of a requirement as a sentence."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"column {name!r} is missing"
    message = first["msg"].removeprefix("Input should be ")
    return f"{name} must be {message}, found {first['input']!r:.60}"


def gated_requirements(
    rows: Iterable[tuple[int, tuple[Requirement, MeasuredScore | None]]],
) -> GatedRequirements:
    """Assembles requirements with their scores.

    Raises:
        MetricDataError: as `GatedRequirements`.
    """
    found = [row for _, row in rows]
    return GatedRequirements([requirement for requirement, _ in found], [score for _, score in found])


REQUIREMENT_ROWS = RowFormat("requirements and scores", COLUMNS, gated_row, gated_requirements)
