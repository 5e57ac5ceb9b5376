"""Audits of files of demonstrations and of logged transitions."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from polopt import catalogue
from polopt.config import ConfigError
from polopt.metrics import LoggedTransitions, Measured, MetricDataError, MetricError, logged_decisions, logged_row
from polopt.metrics.transitions import (
    DEMONSTRATION_ROWS,
    TRANSITION_LOG_ROWS,
    logged_transitions,
    step_problems,
    unlike_rows,
)
from polopt.names import nearest
from polopt.worlds.rows import MalformedRow, read_rows

Kind = Literal["demos", "logs"]
FORMATS = {"demos": DEMONSTRATION_ROWS, "logs": TRANSITION_LOG_ROWS}
METRICS = {"demos": "il-data-quality", "logs": "dataset-perspective"}
PROBABILITIES = ("behaviour_probability", "target_probability")
# Standard deviations of every coordinate up to which episodes are nearly the same.
NEAR = 0.05


@dataclasses.dataclass(frozen=True)
class TransitionAudit:
    """The audit of a file of transitions.

    kind: "demos" or "logs". data: its well-formed transitions of whole episodes. malformed: row -> what is wrong with
    it. broken: data set and name of an episode -> what is wrong with its steps, which leaves it out. measured: the
    metric of the kind. duplicates, near_duplicates: groups of episodes, by name, that are identical, and whose every
    coordinate differs by `NEAR` standard deviations at most. overlap: off-policy evaluation by `pdis`, where rows have
    the probabilities of both policies. more_cautions: sentences beside those of the metrics.
    """

    kind: Kind
    data: LoggedTransitions
    malformed: dict[int, str]
    broken: dict[tuple[str, str], str]
    measured: Measured | None
    duplicates: tuple[tuple[str, ...], ...]
    near_duplicates: tuple[tuple[str, ...], ...]
    overlap: Measured | None
    more_cautions: tuple[str, ...] = ()

    @property
    def cautions(self) -> tuple[str, ...]:
        """Returns sentences on what the findings mean for training."""
        found = list(self.more_cautions)
        for groups, word in ((self.duplicates, "copies"), (self.near_duplicates, "nearly copies")):
            if groups:
                extra = sum(len(group) - 1 for group in groups)
                found.append(f"episodes that are {word} of others: {extra}; they count as more evidence than they are")
        if self.broken:
            found.append(f"episodes whose steps do not fit together, and which are left out: {len(self.broken)}")
        for measured in (self.measured, self.overlap):
            found += [] if measured is None else list(measured.cautions)
        return tuple(found)

    def record(self) -> dict[str, Any]:
        """Returns plain data; an infinite end of an interval is None."""
        return {
            "rows": len(self.data),
            "episodes": len(self.data.lengths),
            "malformed": self.malformed,
            "broken": [{"dataset": d, "episode": e, "problem": text} for (d, e), text in self.broken.items()],
            "duplicates": self.duplicates,
            "near_duplicates": self.near_duplicates,
            "measured": _plain(self.measured),
            "overlap": _plain(self.overlap),
            "cautions": list(self.cautions),
        }


def audit_transitions(
    path: Path, kind: Kind, columns: Mapping[str, str] | None = None, settings: Mapping[str, Any] | None = None
) -> TransitionAudit:
    """Audits a file of demonstrations or of logged transitions: JSON lines, a JSON array, CSV or Parquet.

    columns: the file's own name of a column, by polopt's. settings: of the kind's metric, `METRICS`.

    Raises:
        ConfigError: the file cannot be read, or no episode of it is whole.
        MetricDataError: a column that polopt does not have.
        ValueError, TypeError: a setting that the metric does not have.
    """
    rows = FORMATS[kind]
    known = (*rows.columns, *(PROBABILITIES if kind == "logs" else ()))
    for name in columns or {}:
        if name not in known:
            raise MetricDataError(f"{name!r:.60} is no column of {rows.what}{nearest(name, known)}")
    good, malformed, raw = _read(path, kind, columns)
    malformed |= unlike_rows(list(good.items())) if good else {}
    whole, broken = _whole({place: row for place, row in good.items() if place not in malformed})
    own = (columns or {}).get("episode", "episode"), (columns or {}).get("dataset", "dataset")
    lost = {tuple(str(raw[place].get(name)).strip() for name in own): place for place in malformed}
    for place, row in list(whole.items()):
        bad = lost.get((row["episode"], row["dataset"])) or lost.get((row["episode"], "None"))
        if bad is not None:
            del whole[place]
            key = row["dataset"], row["episode"]
            broken.setdefault(key, f"episode {row['episode']!r:.60} is left out, as row {bad} of it is malformed")
    if not whole:
        problem = next(iter([*malformed.values(), *broken.values()]))
        raise ConfigError(f"{path}: no episode is whole; {problem}")
    data = logged_transitions(list(whole.items()))
    more: list[str] = []
    metric = catalogue.metric(METRICS[kind], **dict(settings or {}))
    measured = None
    try:
        measured = metric(data)
    except MetricError as error:
        more.append(str(error))
    overlap = None
    if kind == "logs":
        overlap, sentences = _overlap({place: raw[place] for place in whole}, columns)
        more += sentences
    return TransitionAudit(
        kind, data, dict(sorted(malformed.items())), broken, measured, *_copies(data), overlap, tuple(more)
    )


def _read(
    path: Path, kind: Kind, columns: Mapping[str, str] | None
) -> tuple[dict[int, dict[str, Any]], dict[int, str], dict[int, Mapping[str, Any]]]:
    """Returns the well-formed rows by number, what is wrong with the others, and all rows as they are."""
    own = {name: column for name, column in (columns or {}).items() if name in FORMATS[kind].columns}

    def parse(row: dict[str, Any]) -> tuple[dict[str, Any] | str, dict[str, Any]]:
        try:
            return FORMATS[kind].parse(row, own), row
        except (MetricDataError, MalformedRow) as error:
            return str(error), row

    found = dict(read_rows(path, parse))
    good = {place: parsed for place, (parsed, _) in found.items() if not isinstance(parsed, str)}
    bad = {place: parsed for place, (parsed, _) in found.items() if isinstance(parsed, str)}
    return good, bad, {place: row for place, (_, row) in found.items()}


def _whole(rows: Mapping[int, dict[str, Any]]) -> tuple[dict[int, dict[str, Any]], dict[tuple[str, str], str]]:
    """Returns the rows of episodes whose steps fit together, and what is wrong with the other episodes."""
    ordered = sorted(rows.items(), key=lambda item: (item[1]["dataset"], item[1]["episode"], item[1]["step"]))
    keys = [(place, row["dataset"], row["episode"], row["step"]) for place, row in ordered]
    done = [row["done"] for _, row in ordered]
    broken = step_problems(keys, None if None in done else done)
    return {place: row for place, row in ordered if (row["dataset"], row["episode"]) not in broken}, broken


def _copies(data: LoggedTransitions) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """Returns groups of identical episodes, and of nearly identical ones, copies aside."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    points = np.concatenate([data.state, data.action], 1)
    whole = np.array([name in data.categories for name in ("state", "action")])
    spread = np.where(points.std(0) > 0, points.std(0), 1.0)
    # Another category is farther away than any radius.
    spread[np.repeat(whole, [data.state.shape[1], data.action.shape[1]])] = NEAR / 2
    several = len(set(data.dataset.tolist())) > 1
    exact: dict[bytes, list[int]] = defaultdict(list)
    by_length: dict[int, list[int]] = defaultdict(list)
    ends = np.append(data.first, len(data))
    for e, (a, b) in enumerate(itertools.pairwise(ends)):
        exact[points[a:b].tobytes()].append(e)
    for group in exact.values():
        by_length[int(data.lengths[group[0]])].append(group[0])

    def name(e: int) -> str:
        row = data.first[e]
        return f"{data.dataset[row]}: {data.episode[row]}" if several else str(data.episode[row])

    near = []
    for length, episodes in by_length.items():
        flat = np.stack([(points[ends[e] : ends[e] + length] / spread).reshape(-1) for e in episodes])
        pairs = KDTree(flat).query_pairs(NEAR, p=np.inf, output_type="ndarray")
        graph = coo_array((np.ones(len(pairs)), pairs.T), shape=(len(episodes),) * 2)
        label = connected_components(graph, directed=False)[1]
        near += [tuple(name(episodes[i]) for i in np.flatnonzero(label == k)) for k in np.unique(label)]
    copies = tuple(tuple(map(name, group)) for group in exact.values() if len(group) > 1)
    return copies, tuple(group for group in near if len(group) > 1)


def _overlap(
    rows: Mapping[int, Mapping[str, Any]], columns: Mapping[str, str] | None
) -> tuple[Measured | None, list[str]]:
    """Measures how far the log covers what the target policy does, where the rows have both probabilities."""
    names = [(columns or {}).get(name, name) for name in PROBABILITIES]
    held = {name: sum(row.get(name) not in (None, "") for row in rows.values()) for name in names}
    if not any(held.values()):
        return None, []
    missing = [name for name in names if held[name] < len(rows)]
    if missing:
        return None, [f"overlap is not known: {' and '.join(missing)} must be in every row of a whole episode"]
    try:
        table = logged_decisions([(place, logged_row(row, columns)) for place, row in rows.items()])
        found: Measured = catalogue.metric("pdis")(table)
        return found, []
    except (MetricDataError, MetricError) as error:
        return None, [f"overlap is not known: {error}"]


def _plain(found: Measured | None) -> dict[str, Any] | None:
    if found is None:
        return None
    intervals = {name: dataclasses.asdict(interval) for name, interval in found.intervals.items()}
    for interval in intervals.values():
        interval |= {end: None for end in ("low", "high") if not np.isfinite(interval[end])}
    values = {name: None if np.isnan(value) else value for name, value in found.values.items()}
    return {"values": values, "intervals": intervals}
