"""Effects: claims that compare a method with controls, over seeds, each side at its own best step size.

@effect(
    "It needs fewer answers.",
    kind="headline",
    method=lambda: gvm(group=8),
    controls={"equal rollouts": lambda: raft(group=8)},
    step_sizes=(1.0, 2.0, 4.0),
    criteria=[Less("answers", times=0.9)],
)
def sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]: ...
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polopt.claim import Claim, ClaimKind, Cost, Finding
from polopt.metrics.intervals import Interval, t_interval

# Step sizes are chosen on these seeds, the comparison is made on 0, 1, ...: no run counts twice.
FIRST_TRIAL = 50_000

Sides = Mapping[str, Callable[[], Any]]

# Trains or measures one side, and returns named numbers; NaN for what was not reached.
Measurement = Callable[..., Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class _Criterion:
    """A condition on one quantity of the method and of a control, for every control.

    times: the method's over the control's, by geometric means over seeds. by: the difference of the two, by means.
    """

    quantity: str
    times: float | None = None
    by: float | None = None

    def __post_init__(self) -> None:
        if (self.times is None) == (self.by is None):
            raise ValueError(f"{type(self).__name__}({self.quantity!r}): give either times or by")
        if self.times is not None and not self.times > 0:
            raise ValueError(f"{type(self).__name__}({self.quantity!r}): times must be positive, found {self.times:g}")

    sign = 1.0

    def gains(self, method: np.ndarray, control: np.ndarray) -> np.ndarray:
        """Returns the gain of every seed [S]: a difference, of logarithms for a quotient.

        Raises:
            ValueError: a quotient of numbers that are not all positive.
        """
        if self.by is not None:
            return method - control
        if not ((method > 0).all() and (control > 0).all()):
            raise ValueError(f"{self.quantity!r} must be positive for a quotient, found 0 or less; compare with `by`")
        return np.log(method) - np.log(control)

    @property
    def least(self) -> float:
        """Returns the bound in the units of `gains`."""
        return self.by if self.by is not None else math.log(self.times or 1.0)

    def met(self, gains: np.ndarray | float) -> Any:
        """Returns whether a gain lies beyond the bound, for each of them."""
        return self.sign * (gains - self.least) > 0

    def shown(self, interval: Interval) -> tuple[float, float, float]:
        """Returns estimate and ends as a quotient or a difference."""
        found = (interval.estimate, interval.low, interval.high)
        return found if self.by is not None else tuple(map(_exp, found))  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """Returns the word between the two sides in the names of results."""
        return "minus" if self.by is not None else "over"

    def __str__(self) -> str:
        word = ">" if self.sign > 0 else "<"
        if self.by is not None:
            return f"{self.quantity} {word} {f'the control {self.by:+g}' if self.by else 'the control'}"
        return f"{self.quantity} {word} {self.times:g}x the control"


@dataclasses.dataclass(frozen=True)
class More(_Criterion):
    """The method has more than `times` the control's quantity, or more than the control plus `by`."""


@dataclasses.dataclass(frozen=True)
class Less(_Criterion):
    """The method has less than `times` the control's quantity, or less than the control plus `by`."""

    sign = -1.0


def effect(
    statement: str,
    *,
    kind: ClaimKind,
    method: Callable[[], Any],
    controls: Sides,
    criteria: Sequence[_Criterion],
    step_sizes: Sequence[float] = (),
    seeds: int = 10,
    trials: int = 3,
    best: _Criterion | None = None,
    budget: str | None = None,
    cost: Cost = "fast",
    refuted: bool = False,
    note: str = "",
) -> Callable[[Measurement], Claim]:
    """Returns a decorator that makes a claim from the measurement of one side, a function of the side, of `seed` and,
    if there are step sizes, of `step_size`.

    The claim holds if, against every control, the 95 % interval of every criterion's gain lies beyond its bound: paired
    by seed, Student's t. A control in the method's place would gain nothing, and fail.

    method, controls: functions that build the sides; of controls, with their names, the parent first.
    criteria: the conditions; the first asks for a difference.
    step_sizes: the grid. Each side gets the one that is best for it on `trials` other seeds.
    seeds: of the comparison.
    best: the quantity that a step size is chosen by, and its direction; None takes the first criterion's.
    budget: the name of the quantity that counts what a side has spent; the method may not have spent more than a
        control.
    note: what the result does not say by itself.

    Raises:
        ValueError: no control or criterion, or a first criterion that equal sides would meet; fewer than 2 seeds.
    """
    criteria = tuple(criteria)
    if not controls or not criteria:
        raise ValueError("effect: needs a control and a criterion at least")
    if criteria[0].met(0.0):
        raise ValueError(f"effect: two equal sides would meet {str(criteria[0])!r}, which so shows no effect")
    if seeds < 2:
        raise ValueError(f"effect: an interval needs 2 seeds at least, found {seeds}")
    chosen_by = best or criteria[0]
    wanted = {*(criterion.quantity for criterion in criteria), chosen_by.quantity, budget}

    def make(measure: Measurement) -> Claim:
        sides = {"method": method, **controls}

        def run() -> Finding:
            sizes, table = dict[str, float | None](), dict[str, dict[str, np.ndarray]]()
            for name, build in sides.items():
                size = sizes[name] = best_step_size(build, measure, step_sizes, chosen_by, trials)
                columns = _table([_measured(build, measure, seed, size) for seed in range(seeds)])
                table[name] = {quantity: columns[quantity] for quantity in columns if quantity in wanted}
            return compared(table, criteria, budget, sizes, step_sizes, note)

        return Claim(measure.__name__, statement, kind, "; ".join(controls), run, cost, refuted, tuple(controls))

    return make


def best_step_size(
    build: Callable[[], Any], measure: Measurement, step_sizes: Sequence[float], best: _Criterion, trials: int
) -> float | None:
    """Returns the step size that is best by the mean over `trials` seeds; the least one of the grid if none reaches
    what is measured, and None if there is no grid."""
    if len(step_sizes) < 2:
        return step_sizes[0] if step_sizes else None

    def score(step_size: float) -> float:
        found = [_measured(build, measure, FIRST_TRIAL + trial, step_size)[best.quantity] for trial in range(trials)]
        return best.sign * float(np.mean(found)) if np.isfinite(found).all() else -math.inf

    return max(sorted(step_sizes), key=score)


def compared(
    table: Mapping[str, Mapping[str, np.ndarray]],
    criteria: Sequence[_Criterion],
    budget: str | None = None,
    sizes: Mapping[str, float | None] | None = None,
    step_sizes: Sequence[float] = (),
    note: str = "",
) -> Finding:
    """Returns the finding of a table {side: {quantity: [S] values}}, whose side "method" is compared with the others.

    Raises:
        ValueError: a quantity of the criteria that was not measured.
    """
    method, controls = table["method"], [name for name in table if name != "method"]
    for criterion in criteria:
        if criterion.quantity not in method:
            raise ValueError(f"{criterion.quantity!r} was not measured; found {', '.join(method)}")
    measured, intervals = _means(table)
    won = np.ones(len(method[criteria[0].quantity]), dtype=bool)
    holds, notes = True, [note] if note else []
    for criterion in criteria:
        ours = method[criterion.quantity]
        for name in controls:
            theirs = table[name][criterion.quantity]
            if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
                missing = {"method": ours, name: theirs}
                holds = False
                won &= np.isfinite(ours) & np.isfinite(theirs)
                notes += [
                    f"{criterion.quantity} was not reached on {np.sum(~np.isfinite(values))} seeds by {side}."
                    for side, values in missing.items()
                    if not np.isfinite(values).all()
                ]
                continue
            gains = criterion.gains(ours, theirs)
            interval = t_interval(gains)
            key = f"{criterion.quantity} {criterion.name} {name}"
            measured[key], *ends = criterion.shown(interval)
            intervals[key] = (ends[0], ends[1])
            holds &= bool(criterion.met(interval.low if criterion.sign > 0 else interval.high))
            won &= criterion.met(gains)
    if budget is not None:
        spent = method[budget].sum()
        for name in controls:
            if not spent <= 1.001 * table[name][budget].sum():  # also where it is not a number
                holds = False
                notes.append(f"The method spent more {budget} than {name}.")
    chosen = {name: size for name, size in (sizes or {}).items() if size is not None}
    if len(step_sizes) > 1:
        notes += _at_the_edge(chosen, step_sizes)
    seeds = len(won)
    return Finding(
        measured=measured,
        criterion=_in_words(criteria, seeds, step_sizes),
        holds=holds,
        note=" ".join(notes),
        intervals=intervals,
        won=(int(won.sum()), seeds),
        step_sizes=chosen,
    )


def _means(
    table: Mapping[str, Mapping[str, np.ndarray]],
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Returns means and intervals of all quantities, over the seeds that reached them."""
    measured: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for quantity in table["method"]:
        for name, columns in table.items():
            key = quantity if name == "method" else f"{quantity}, {name}"
            values = columns[quantity][np.isfinite(columns[quantity])]
            if values.size:
                interval = t_interval(values)
                measured[key], intervals[key] = interval.estimate, (interval.low, interval.high)
    return measured, intervals


def _at_the_edge(sizes: Mapping[str, float], step_sizes: Sequence[float]) -> list[str]:
    """Returns a sentence on the sides that have their best step size at an end of the grid, so that a better one may
    lie beyond."""
    edges = [name for name, size in sizes.items() if size in (min(step_sizes), max(step_sizes))]
    return [f"Best step size at an end of the grid: {', '.join(edges)}."] if edges else []


def _in_words(criteria: Sequence[_Criterion], seeds: int, step_sizes: Sequence[float]) -> str:
    text = f"{'; '.join(map(str, criteria))}: the 95 % interval over {seeds} seeds, for every control"
    if len(step_sizes) == 1:
        text += f"; one step size, {step_sizes[0]:g}, for all"
    if len(step_sizes) > 1:
        text += f"; each at its best of the step sizes {', '.join(f'{size:g}' for size in sorted(step_sizes))}"
    return text


def _measured(
    build: Callable[[], Any], measure: Measurement, seed: int, step_size: float | None
) -> Mapping[str, float]:
    ways: dict[str, Any] = {"seed": seed}
    if step_size is not None:
        ways["step_size"] = step_size
    return measure(build(), **ways)


def _table(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
