"""Extensions of an existing run: more steps, evaluations or checkpoints; any other change makes another run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import yaml

from polopt.errors import PoloptWarning, RunError
from polopt.training import files
from polopt.training import recipe as recipes
from polopt.training.origin import changed_settings, shown
from polopt.training.recipe import Recipe
from polopt.training.run import Run

# Settings, and what lies under them, that never change what has been trained so far.
FREE = ("evaluation", "checkpoint", "logging")


def same(run: Run, recipe: Recipe) -> None:
    """Checks that a run has this recipe.

    Raises:
        RunError: it has another; the first settings that differ.
    """
    there = yaml.safe_load(run.recipe.read_text(encoding="utf-8"))
    found = changed_settings(there, yaml.safe_load(recipe.to_yaml()))
    if found:
        listed = ", ".join(shown(*each) for each in found[:3]) + (f" and {len(found) - 3} more" if found[3:] else "")
        extends = all(_is_free(name) or name == f"stages.{recipe.main_stage}.steps" for name, _, _ in found)
        settings = " ".join(f"--set {name}={new}" for name, _, new in found)
        fix = f"extend it with --resume {run.folder} {settings}, or name" if extends else "name"
        raise RunError(f"{run.folder} holds a run of another recipe: {listed}; {fix} another folder")


def extended(run: Run, changes: Mapping[str, Any]) -> Recipe:
    """Returns the recipe of a run with more steps in its last stage (with more rounds, of a run with several), or other
    evaluations or checkpoints, and writes it into the run's folder. The result is that of the longer recipe from the
    start, to the bit, unless the learning rate decays to the end of the stage: then a warning is given, and run.json
    records it.

    Raises:
        RunError: another setting is changed, or the last stage has no steps to add to.
        ConfigError: the changed recipe is wrong.
    """
    before = run.recipe.read_text(encoding="utf-8")
    recipe = recipes.load(run.recipe.absolute(), changes)
    found = changed_settings(yaml.safe_load(before), yaml.safe_load(recipe.to_yaml()))
    if not found:
        return recipe
    steps = f"stages.{recipe.main_stage}.steps"
    for name, old, new in found:
        if name == steps and recipe.rounds == 1:
            _check_steps(run, recipe, old, new)
        elif name == "rounds" and old is not None and new is not None and new > old:
            continue
        elif not _is_free(name):
            raise RunError(
                f"{run.folder} can be extended in {steps}, {' and '.join(FREE)}, and {shown(name, old, new)} would "
                "make it another run: begin one with --run"
            )
    rate, names = recipe.stages[recipe.main_stage].optimiser, {name for name, _, _ in found}
    more, exact = bool(names & {steps, "rounds"}), steps not in names or rate.decay == "constant"
    if not exact:
        warnings.warn(
            f"stages.{recipe.main_stage}.optimiser.decay = {rate.decay} depends on the number of steps: what is added "
            "goes on with the schedule of the longer stage, so the run ends otherwise than one of so many steps from "
            "the start",
            PoloptWarning,
            stacklevel=3,
        )
    note = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "step": run.checkpoint,
        "changed": [shown(*each) for each in found],
        "exact": exact,
    }
    text, about = recipe.to_yaml(), run.about
    about |= {"recipe_before": before, "recipe": text, "recipe_sha256": files.digest_of(text)}
    about |= {
        "extensions": [*about.get("extensions", []), note],
        "best_by": recipe.checkpoint.best or recipe.estimates[0],
    }
    run.describe(about | ({"finished": False} if more else {}))
    files.write_text(run.recipe, text)  # a process killed before this line leaves the run as it was
    return recipe


def _is_free(name: str) -> bool:
    return name.partition(".")[0] in FREE


def _check_steps(run: Run, recipe: Recipe, old: int, new: int) -> None:
    if new < old:
        raise RunError(
            f"stages.{recipe.main_stage}.steps {old} -> {new} would shorten {run.folder}, and a run can only be "
            "extended: begin another one with --run"
        )
    if recipe.stages[recipe.main_stage].until is not None and run.about.get("finished"):
        raise RunError(
            f"{run.folder} has finished, and its stage {recipe.main_stage} may have ended by its `until`: steps cannot "
            "be added; begin another run with --run"
        )
