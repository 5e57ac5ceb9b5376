"""A recipe written out for another trainer: `export(recipe, "trl", folder)`."""

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
    """The last stage of a recipe as a folder that the trainer `to` runs: model, tasks, rewards, method, settings.

    run: whose policy is the starting model; without one it is the recipe's own.

    Raises:
        ConfigError: the folder holds something already, or the recipe asks for what would be lost without a word.
        BridgeError: the trainer does not hand over what the method needs.
    """
    folder = vacant(Path(folder))
    try:
        return TRAINERS[to](prepare(recipe, folder, run))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # no half of an export
        raise
