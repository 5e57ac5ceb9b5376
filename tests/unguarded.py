"""reasoning_gym's own scorers with nothing before them, for worker processes."""

from __future__ import annotations

from typing import Any

import reasoning_gym


def score(completion: str, row: dict[str, Any]) -> float:
    return reasoning_gym.create_dataset(row["dataset"], seed=0, size=1).score_answer(completion, row["entry"])
