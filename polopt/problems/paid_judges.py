"""Paid judges as agents: which of them to ask about an answer, and what to pay them so that they look."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from polopt.problems.hiring import HiringError, HiringProblem

# The linear program of n judges has 4^n 2 n payments.
MOST_JUDGES = 5


def paid_judges(
    *,
    accuracies: Sequence[float] = (0.9, 0.75, 0.75),
    costs: Sequence[float] = (0.05, 0.02, 0.02),
    file: str | None = None,
    prior: float = 0.5,
    value: float = 1.0,
    cap: float = 1.0,
) -> HiringProblem:
    """Builds the problem of asking judges whether an answer is right. Each may skip, at no cost and with a signal that
    is a coin's, or look, at its cost, and then sees the truth with the probability of its accuracy; judges err
    independently. The principal accepts or rejects the answer, and later finds out.

    accuracies, costs: one for each judge; costs in units of payment.
    file: a CSV file with columns judge, cost and accuracy instead.
    prior: the probability that an answer is right. value: what a right decision is worth, in units of payment.
    cap: the largest payment to a judge for an answer.

    Raises:
        HiringError: no judge, more than 5, an accuracy outside [0, 1], a negative cost, or a file that has others.
    """
    names = tuple(f"judge {i + 1}" for i in range(len(accuracies)))
    if file is not None:
        names, costs, accuracies = _read(file)
    if not 1 <= len(accuracies) <= MOST_JUDGES or len(accuracies) != len(costs):
        raise HiringError(
            f"paid-judges: need one to {MOST_JUDGES} judges with an accuracy and a cost each, found "
            f"{len(accuracies)} accuracies and {len(costs)} costs"
        )
    if not 0 < prior < 1 or not value > 0:
        raise HiringError(f"paid-judges: need 0 < prior < 1 and value > 0, found {prior} and {value}")
    for name, accuracy, cost in zip(names, accuracies, costs, strict=True):
        if not 0 <= accuracy <= 1 or not 0 <= cost < float("inf"):
            raise HiringError(
                f"paid-judges: {name} needs 0 <= accuracy <= 1 and cost >= 0, found {accuracy} and {cost}"
            )
    n = len(names)
    joint = np.array(list(itertools.product((0, 1), repeat=n)))  # of efforts, and of signals
    right = np.where(joint[:, None], np.array(accuracies), 0.5)  # [B, 1, n]: skipping is a coin
    seen = np.stack([joint == 0, joint == 1], axis=-1)[None]  # whether a signal is the truth, [1, S, n, Th]
    signals = np.where(seen, right[..., None], 1 - right[..., None]).prod(2)
    return HiringProblem(
        prior=torch.tensor([1 - prior, prior], dtype=torch.double),
        utility=value * torch.eye(2, dtype=torch.double),
        signals=torch.from_numpy(signals),
        costs=tuple(torch.tensor([0.0, cost], dtype=torch.double) for cost in costs),
        signal_counts=(2,) * n,
        cap=cap,
        agents=names,
        efforts=(("skips", "looks"),) * n,
        signal_names=(("says wrong", "says right"),) * n,
        states=("wrong", "right"),
        actions=("reject", "accept"),
        name="paid-judges",
        unit="units of payment",
    )


def _read(file: str) -> tuple[tuple[str, ...], list[float], list[float]]:
    """Returns names, costs and accuracies of a CSV file."""
    path = Path(file)
    if not path.is_file():
        raise HiringError(f"paid-judges: file = {file!r:.100} is not there")
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    names: list[str] = []
    numbers: list[list[float]] = []
    for i, row in enumerate(rows, start=1):
        if missing := [c for c in ("judge", "cost", "accuracy") if not row.get(c)]:
            raise HiringError(f"{path.name}, row {i}: the column {missing[0]} is missing or empty")
        if row["judge"] in names:
            raise HiringError(f"{path.name}, row {i}: the judge {row['judge']!r:.60} has a row already")
        try:
            numbers.append([float(row["cost"]), float(row["accuracy"])])
        except ValueError:
            raise HiringError(
                f"{path.name}, row {i}: cost and accuracy must be numbers, found {row['cost']!r:.40} and "
                f"{row['accuracy']!r:.40}"
            ) from None
        names.append(row["judge"])
    return tuple(names), [c for c, _ in numbers], [a for _, a in numbers]
