"""Rows of a table of transitions with two rewards, validated and assembled into a problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from polopt.metrics.reward_distance import TabularRewardPair
from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

COLUMNS = ("state", "action", "next_state", "probability", "reward", "other_reward", "start", "terminal")


def transition_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, float]:
    """Checks one transition of a file: `state`, `action`, `next_state` are numbers from 0, `probability` is P(s' | s,
    a), `reward` and `other_reward` are R1 and R2. Optional: `start`, the probability of the state as a first one.

    Raises:
        MetricDataError: a column that is missing, or no number.
    """
    names = column_names(COLUMNS, columns)
    found = {name: number_in(row, names[name]) for name in COLUMNS[:6]}
    found |= {name: number_in(row, names[name], required=False) for name in COLUMNS[6:]}
    for name in COLUMNS[:3]:
        value = found[name]
        if value is None or value != int(value) or not 0 <= value < 10_000:
            raise MetricDataError(f"{names[name]} must be a whole number from 0 to 9999, found {value:g}")
    return {name: value for name, value in found.items() if value is not None}


def tabular_rewards(rows: Iterable[tuple[int, Mapping[str, float]]]) -> TabularRewardPair:
    """Assembles a problem from its transitions; those that are missing have probability 0 and reward 0. A state that is
    reached and has no row, or whose rows say `terminal` 1, is terminal.

    Raises:
        MetricDataError: a transition that is there twice, or as `TabularRewardPair`.
    """
    known: dict[tuple[int, int, int], tuple[int, Mapping[str, float]]] = {}
    for number, row in rows:
        key = (int(row["state"]), int(row["action"]), int(row["next_state"]))
        if key in known:
            raise MetricDataError(f"rows {known[key][0]} and {number}: the transition {key} is there twice")
        known[key] = number, row
    S, A = 1 + max(max(s, t) for s, _, t in known), 1 + max(a for _, a, _ in known)
    p, reward, other = (torch.zeros(S, A, S, dtype=torch.double) for _ in range(3))
    start, terminal = torch.zeros(S, dtype=torch.double), torch.ones(S, dtype=torch.bool)
    for (s, a, t), (_, row) in known.items():
        p[s, a, t], reward[s, a, t], other[s, a, t] = row["probability"], row["reward"], row["other_reward"]
        start[s] = row.get("start", 0.0)
        terminal[s] = row.get("terminal", 0.0) != 0
    return TabularRewardPair(p, reward, other, start if start.sum() else None, terminal)


TRANSITION_ROWS = RowFormat("a table of transitions", COLUMNS, transition_row, tabular_rewards)
