"""Export of a recipe for another trainer: `export(recipe, "trl", folder)`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from polopt.bridges.export.job import Exported, ExportedStage, prepare, vacant
from polopt.bridges.export.trl import write_trl
from polopt.bridges.export.verl import write_verl
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.run import Run

__all__ = ["TRAINERS", "Exported", "export"]

TRAINERS: dict[str, Callable[[ExportedStage], Exported]] = {"trl": write_trl, "verl": write_verl}


def export(recipe: LanguageRecipe, to: str, folder: Path | str, run: Run | None = None) -> Exported:
    """Exports the last stage of a recipe as a folder that the trainer `to` runs: model, tasks, rewards, method,
    settings.

    run: the run whose policy is the starting model; None takes the recipe's own.

    Raises:
        ConfigError: the folder is not empty, or the recipe has a setting that would be lost silently.
        BridgeError: the trainer does not provide all fields that the method needs.
    """
    folder = vacant(Path(folder))
    try:
        return TRAINERS[to](prepare(recipe, folder, run))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # no partial export is left behind
        raise
