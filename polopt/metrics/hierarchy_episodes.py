"""Episodes of a hierarchy, a planner above a controller, each alone or both together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.policy_trials import YES_AND_NO
from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]
MODES = ("planner", "controller", "joint")
# Mode -> its columns.
NEEDED = {
    "planner": ("plan_correct",),
    "controller": ("steps", "skills"),
    "joint": ("plan_correct", "success", "steps"),
}
COLUMNS = ("mode", "plan_correct", "success", "steps", "skills", "episode")


@dataclasses.dataclass(frozen=True, eq=False)
class HierarchyEpisodes:
    """N episodes; arrays or lists, [N] each, NaN or None where a column does not belong to the mode.

    mode: "planner": plans alone; "controller": skills by the steps of a right plan; "joint": the controller executes
    the planner's plan. plan_correct: whether the plan is the reference's, or one that reaches the goal if all skills
    succeed; of planner and joint. success: whether the goal is reached at the end; of joint. steps: skills that the
    right plan has, L; of controller and joint. skills: how many of them succeeded; of controller. episode: name of the
    instruction and scene; the same one in several modes; None where each row has its own.

    Raises:
        MetricDataError: arrays of different lengths or without rows, an unknown mode, a column of a mode that is
            missing, or skills outside 0..steps.
    """

    mode: Any
    plan_correct: Any = None
    success: Any = None
    steps: Any = None
    skills: Any = None
    episode: Any = None

    def __post_init__(self) -> None:
        n = len(np.atleast_1d(np.asarray(self.mode)))
        object.__setattr__(self, "mode", np.asarray(self.mode, str))
        for name in COLUMNS[1:5]:
            given = getattr(self, name)
            object.__setattr__(self, name, np.asarray(np.full(n, np.nan) if given is None else given, float))
        own = [f"row {i}" for i in range(n)]
        object.__setattr__(self, "episode", np.asarray(own if self.episode is None else self.episode, str))
        shapes = {name: getattr(self, name).shape for name in COLUMNS}
        if not n or any(shape != (n,) for shape in shapes.values()):
            raise MetricDataError(f"HierarchyEpisodes: every column must be [N] with N >= 1, found {shapes}")
        for mode, needed in NEEDED.items():
            rows = self.mode == mode
            for name in needed:
                if np.isnan(getattr(self, name)[rows]).any():
                    raise MetricDataError(f"HierarchyEpisodes: an episode of mode {mode} needs {name}")
        for i in np.flatnonzero(~self._in_range()):
            check_episode({name: getattr(self, name)[i] for name in COLUMNS})

    def _in_range(self) -> NDArray[np.bool_]:
        """Returns whether each row has values that `check_episode` allows, of those that it has."""

        def whole(values: Numbers, least: float) -> NDArray[np.bool_]:
            return np.isnan(values) | ((values >= least) & (values == np.floor(values)))

        flags = [np.isnan(x) | np.isin(x, (0.0, 1.0)) for x in (self.plan_correct, self.success)]
        counts = whole(self.steps, 1) & whole(self.skills, 0) & ~(self.skills > self.steps)
        found: NDArray[np.bool_] = np.isin(self.mode, MODES) & flags[0] & flags[1] & counts
        return found

    def __len__(self) -> int:
        return len(self.mode)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> HierarchyEpisodes:
        return HierarchyEpisodes(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def resampled(self, resamples: int, seed: int) -> Numbers:
        """Returns how often each row is drawn by a bootstrap over episodes, [1 + resamples, N], first of all once.

        Rows of one episode are drawn together; episodes are drawn among those that have the same modes, so that every
        mode keeps its number of episodes.
        """
        modes: dict[str, list[str]] = {}
        for episode, mode in sorted(zip(self.episode.tolist(), self.mode.tolist(), strict=True)):
            modes.setdefault(episode, []).append(mode)
        kinds: dict[tuple[str, ...], list[str]] = {}
        for episode, of in modes.items():
            kinds.setdefault(tuple(of), []).append(episode)
        draw, counts = np.random.default_rng(seed), np.ones((1 + resamples, len(self)))
        for kind in sorted(kinds):
            names = kinds[kind]
            drawn = draw.multinomial(len(names), np.full(len(names), 1 / len(names)), resamples)
            place = {name: i for i, name in enumerate(names)}
            rows = [(row, place[name]) for row, name in enumerate(self.episode.tolist()) if name in place]
            at, of_name = np.transpose(rows)
            counts[1:, at] = drawn[:, of_name]
        return counts


def check_episode(row: Mapping[str, Any], names: Mapping[str, str] | None = None) -> None:
    """Checks that an episode has the columns of its mode.

    names: the file's name of each column.

    Raises:
        MetricDataError: an unknown mode, a column of the mode that is missing, or numbers out of range.
    """
    called = dict(names or {name: name for name in COLUMNS})
    mode = row["mode"]
    if mode not in MODES:
        raise MetricDataError(f"{called['mode']} must be {', '.join(MODES)}, found {str(mode)!r:.60}")
    for name in NEEDED[mode]:
        if np.isnan(row[name]):
            raise MetricDataError(f"an episode of mode {mode} needs {called[name]}")
    for name in ("plan_correct", "success"):
        if not np.isnan(row[name]) and row[name] not in (0.0, 1.0):
            raise MetricDataError(f"{called[name]} must be true or false, found {row[name]:g}")
    if not np.isnan(row["steps"]) and not (row["steps"] >= 1 and row["steps"] == int(row["steps"])):
        raise MetricDataError(f"{called['steps']} must be a whole number >= 1, found {row['steps']:g}")
    if mode == "controller" and not (0 <= row["skills"] <= row["steps"] and row["skills"] == int(row["skills"])):
        raise MetricDataError(
            f"{called['skills']} must be a whole number from 0 to {called['steps']} = {row['steps']:g}, "
            f"found {row['skills']:g}"
        )


def episode_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks an episode of a file.

    Raises:
        MetricDataError: as `check_episode`, or a value that is no number, or neither true nor false.
    """
    names = column_names(COLUMNS, columns)
    found: dict[str, Any] = {"mode": str(row.get(names["mode"], "")).strip().lower()}
    for name in ("plan_correct", "success"):
        flag = row.get(names[name])
        text = "" if flag is None else str(flag).strip().lower()
        if text and text not in YES_AND_NO:
            raise MetricDataError(f"{names[name]} must be true or false, found {flag!r:.60}")
        found[name] = YES_AND_NO[text] if text else np.nan
    for name in ("steps", "skills"):
        value = number_in(row, names[name], required=False)
        found[name] = np.nan if value is None else value
    check_episode(found, names)
    episode = row.get(names["episode"])
    return found | {"episode": "" if episode is None else str(episode).strip()}


def hierarchy_episodes(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> HierarchyEpisodes:
    """Assembles episodes.

    Raises:
        MetricDataError: an `episode` in some rows only, or as `HierarchyEpisodes`.
    """
    listed = list(rows)
    without = [number for number, row in listed if not row["episode"]]
    if without and len(without) < len(listed):
        raise MetricDataError(f"row {min(without)}: episode is empty; give it in every row or in none")
    found: dict[str, Any] = {name: [row[name] for _, row in listed] for name in COLUMNS}
    return HierarchyEpisodes(**found | {"episode": None if without else found["episode"]})


EPISODE_ROWS = RowFormat("episodes of a planner and a controller", COLUMNS, episode_row, hierarchy_episodes)
