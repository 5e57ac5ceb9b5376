"""The scores of trained policies, as training data of `sampling.fit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from polopt.sampling import History
from polopt.training.evaluate import HeldOutScore
from polopt.training.preferences import RatedScore
from polopt.training.trained import evaluate_folder


def history(accuracy: HeldOutScore | RatedScore) -> History:
    """Converts an evaluation to a history: each problem's prompt, and the share of its samples that solved it."""
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
    """Evaluates the policies in these folders, of runs or in the Hugging Face format, at held-out problems, as
    histories.

    tasks: the recipe whose tasks are used; each run's own by default. A predictor that is fitted to policies of several
    methods, sizes and lengths of training covers more than one kind of policy; at the same problems they share a
    memory.

    Raises:
        ConfigError: as `evaluate_folder`.
    """
    return [history(evaluate_folder(f, tasks, problems=problems, samples=samples, seed=seed)) for f in folders]
