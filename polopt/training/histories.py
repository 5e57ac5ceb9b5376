"""What trained policies score, for `sampling.fit` to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from polopt.sampling import History
from polopt.training.evaluate import HeldOutScore
from polopt.training.preferences import PreferenceScore
from polopt.training.trained import evaluate_folder


def history(accuracy: HeldOutScore | PreferenceScore) -> History:
    """An evaluation as a history: each problem's prompt, and the share of its samples that solved it."""
    solved = torch.tensor([row.solved for row in accuracy.rows], dtype=torch.float64)
    prompts = [row.task.prompt for row in accuracy.rows[:: accuracy.samples]]
    return History(prompts, solved.view(-1, accuracy.samples).mean(1))


def histories(
    folders: Sequence[Path | str],
    tasks: Path | str | None = None,
    *,
    problems: int = 256,
    samples: int = 4,
    seed: int = 0,
) -> list[History]:
    """The histories of the policies in these folders, of runs or in the Hugging Face format, at held-out problems.

    tasks: the recipe whose tasks they are asked; each run's own by default. Policies of several methods, sizes and
    lengths of training make a predictor that knows more than one kind; at the same problems they share a memory.

    Raises:
        ConfigError: as `evaluate_folder`.
    """
    return [history(evaluate_folder(f, tasks, problems=problems, samples=samples, seed=seed)) for f in folders]
