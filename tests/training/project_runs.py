"""A project folder with data and a reward of its own, named by relative paths, and a run of a few steps on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_runs import MODEL, recipe

from polopt.training.language_recipe import LanguageRecipe

REWARD = """
def near(completion: str, row: dict) -> float:
    return 0.1 * len(set(completion) & set(row["answer"]))
"""
STAGES: dict[str, Any] = {
    "warmup": {"method": "sft", "steps": 2, "rows": 8, "optimiser": {"lr": 0.01}},
    "rl": {"method": {"name": "grpo", "kl": 0.1}, "steps": 4, "rows": 8, "group": 4, "optimiser": {"lr": 0.005}},
}


def project(folder: Path) -> Path:
    """Makes the folder."""
    (folder / "rewards").mkdir(parents=True)
    rows = [{"prompt": f"say {i % 7}{i // 7}", "answer": str(i % 10)} for i in range(49)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards" / "mine.py").write_text(REWARD)
    return folder


def small(**changes: Any) -> LanguageRecipe:
    """The recipe of a run in the project folder, which must be the working directory."""
    tasks = {"kind": "dataset", "path": "tasks.jsonl", "verifier": "rewards/mine.py:near", "heldout": 0.2}
    evaluation = {"problems": 4, "quick": 4}
    settings = {"tasks": tasks, "stages": STAGES, "evaluation": evaluation, "checkpoint": {"every": 1}}
    return recipe(policy={"config": MODEL}, **(settings | changes))
