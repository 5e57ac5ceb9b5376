"""Rows of a log, one decision each, validated and assembled into episodes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from polopt.metrics.logged import LoggedDataError, LoggedDecisions
from polopt.metrics.row_format import RowFormat
from polopt.names import nearest

REQUIRED = ("episode", "step", "reward", "behaviour_probability", "target_probability")
OPTIONAL = ("state", "action", "q", "v")
# Probabilities are assumed to come from float32 softmaxes: sums and repeats of them are equal up to this.
ROUNDING = 1e-4


@dataclasses.dataclass(frozen=True)
class LoggedRow:
    """One decision. episode, state, action: as JSON text. q, v: a model's values, None where the log has none."""

    episode: str
    step: int
    reward: float
    behaviour: float
    target: float
    state: str | None = None
    action: str | None = None
    q: float | None = None
    v: float | None = None


def logged_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> LoggedRow:
    """Validates a row of a log. columns: the log's own name of a column, by polopt's.

    Raises:
        LoggedDataError: a column that is missing, or an invalid value; the message does not name the row.
    """
    names = {name: name for name in (*REQUIRED, *OPTIONAL)} | dict(columns or {})
    for name in REQUIRED:
        if names[name] not in row:
            raise LoggedDataError(f"column {names[name]!r} is missing{nearest(names[name], row)}")

    def known(name: str) -> Any:
        value = row.get(names[name])
        return None if value == "" else value  # an empty cell of a CSV file

    step = _number(row[names["step"]], names["step"])
    if step != int(step) or step < 0:
        raise LoggedDataError(f"{names['step']} must be a whole number >= 0, found {step:g}")
    values = {name: known(name) for name in OPTIONAL}
    texts = {n: None if values[n] is None else _text(values[n], names[n]) for n in ("state", "action")}
    numbers = {n: None if values[n] is None else _number(values[n], names[n]) for n in ("q", "v")}
    return LoggedRow(
        episode=_text(row[names["episode"]], names["episode"]),
        step=int(step),
        reward=_number(row[names["reward"]], names["reward"]),
        behaviour=_probability(row[names["behaviour_probability"]], names["behaviour_probability"], taken=True),
        target=_probability(row[names["target_probability"]], names["target_probability"], taken=False),
        state=texts["state"],
        action=texts["action"],
        q=numbers["q"],
        v=numbers["v"],
    )


def _number(value: Any, name: str) -> float:
    try:
        found = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise LoggedDataError(f"{name} must be a finite number, found {value!r:.60}")
    return found


def _probability(value: Any, name: str, *, taken: bool) -> float:
    """Validates a probability. taken: the action was sampled with it, so that it cannot be 0."""
    found = _number(value, name)
    if not 0 <= found <= 1 + ROUNDING or (taken and found == 0):
        raise LoggedDataError(f"{name} must be a probability in {'(0' if taken else '[0'}, 1], found {found:g}")
    return min(found, 1.0)


def _text(value: Any, name: str) -> str:
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        raise LoggedDataError(f"{name} must be text, a finite number or a list of them, found {value!r:.60}") from None
    if value is None or value == "":
        raise LoggedDataError(f"{name} must not be empty, found {text}")
    return text


def logged_decisions(rows: Iterable[tuple[int, LoggedRow]]) -> LoggedDecisions:
    """Assembles the episodes of a log from rows in any order. rows: number, for messages, and row.

    Raises:
        LoggedDataError: no rows, two rows of one episode and step, a step that is missing, a column that only some rows
            have, or, where rows have a state and an action, probabilities of a state that add up to more than 1, and
            actions of the target policy that the behaviour policy never takes.
    """
    ordered = sorted(rows, key=lambda pair: (pair[1].episode, pair[1].step, pair[0]))
    if not ordered:
        raise LoggedDataError("the log has no rows; give one decision a row")
    _check_columns(ordered)
    episodes = _episodes(ordered)
    if ordered[0][1].state is not None and ordered[0][1].action is not None:
        _check_support(ordered)
    B, T = len(episodes), max(map(len, episodes))

    def column(name: str) -> Any:
        if getattr(ordered[0][1], name) is None:
            return None
        values = np.zeros((B, T))
        for b, episode in enumerate(episodes):
            values[b, : len(episode)] = [getattr(row, name) for row in episode]
        return values

    def codes(name: str) -> Any:
        if getattr(ordered[0][1], name) is None:
            return None
        known = {text: code for code, text in enumerate(sorted({getattr(row, name) for _, row in ordered}))}
        values = np.zeros((B, T), np.int64)
        for b, episode in enumerate(episodes):
            values[b, : len(episode)] = [known[getattr(row, name)] for row in episode]
        return values

    with np.errstate(divide="ignore"):
        behaviour_logp, target_logp = (np.log(column(name)) for name in ("behaviour", "target"))
    return LoggedDecisions(
        lengths=np.array([len(episode) for episode in episodes]),
        reward=column("reward"),
        behaviour_logp=behaviour_logp,
        target_logp=target_logp,
        state=codes("state"),
        action=codes("action"),
        q=column("q"),
        v=column("v"),
    )


def logged_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str] | None = None) -> LoggedDecisions:
    """Assembles the episodes of a log from a list of mappings with the columns `episode`, `step`, `reward`,
    `behaviour_probability` and `target_probability`, and, where they are known, `state`, `action`, `q` and `v`.

    Raises:
        LoggedDataError: as `logged_row`, with the row's number from 1, and as `logged_decisions`.
    """
    found = []
    for number, row in enumerate(rows, start=1):
        try:
            found.append((number, logged_row(row, columns)))
        except LoggedDataError as error:
            raise LoggedDataError(f"row {number}: {error}") from None
    return logged_decisions(found)


def _check_columns(ordered: Sequence[tuple[int, LoggedRow]]) -> None:
    for name in OPTIONAL:
        without = [number for number, row in ordered if getattr(row, name) is None]
        if without and len(without) < len(ordered):
            raise LoggedDataError(f"row {min(without)}: {name} is empty; give it in every row or in none")


def _episodes(ordered: Sequence[tuple[int, LoggedRow]]) -> list[list[LoggedRow]]:
    """Returns the rows of each episode, one for each step."""
    first = min(row.step for _, row in ordered)
    found: list[list[LoggedRow]] = []
    before: tuple[int, LoggedRow] | None = None
    for number, row in ordered:
        if before is None or before[1].episode != row.episode:
            if row.step != first or first > 1:
                expected = first if first <= 1 else 0
                raise LoggedDataError(
                    f"row {number}: episode {row.episode:.60} begins at step {row.step}, expected {expected}; give all "
                    "of its decisions"
                )
            found.append([])
        elif row.step == before[1].step:
            raise LoggedDataError(
                f"rows {before[0]} and {number}: episode {row.episode:.60} has step {row.step} twice; give every "
                "episode a name of its own and every decision one row"
            )
        elif row.step != before[1].step + 1:
            raise LoggedDataError(
                f"row {number}: episode {row.episode:.60} goes from step {before[1].step} to step {row.step}; give the "
                "decisions in between"
            )
        found[-1].append(row)
        before = number, row
    return found


def _check_support(ordered: Sequence[tuple[int, LoggedRow]]) -> None:
    """Checks the sum of the probabilities of a state's logged actions. States in which an action has several
    probabilities are not the policies' complete input, and are left out."""
    states: dict[str | None, dict[str | None, tuple[float, float]]] = {}
    place: dict[str | None, int] = {}
    unclear: set[str | None] = set()
    for number, row in ordered:
        found = row.behaviour, row.target
        known = states.setdefault(row.state, {}).setdefault(row.action, found)
        place[row.state] = min(number, place.get(row.state, number))
        if max(abs(a - b) for a, b in zip(found, known, strict=True)) > ROUNDING:
            unclear.add(row.state)
    for state in sorted(states.keys() - unclear, key=place.__getitem__):
        sums = [sum(column) for column in zip(*states[state].values(), strict=True)]
        where = f"row {place[state]}: in state {state:.60}"
        for policy, total in zip(("behaviour", "target"), sums, strict=True):
            if total > 1 + ROUNDING * len(states[state]):
                raise LoggedDataError(
                    f"{where} the {policy} probabilities of {len(states[state])} logged actions add up to {total:.4g}; "
                    "log the probability of the action that was taken, and a state that tells situations apart"
                )
        if sums[0] > 1 - ROUNDING and sums[1] < 1 - ROUNDING * len(states[state]):
            raise LoggedDataError(
                f"{where} the behaviour policy takes none but the logged actions, and the target policy takes those "
                f"with probability {sums[1]:.4g} only: what others are worth cannot be estimated from this log"
            )


LOGGED_ROWS = RowFormat("a log of decisions", (*REQUIRED, *OPTIONAL), logged_row, logged_decisions, LoggedDataError)
