"""The entry points of training: start a run from a recipe, resume it, and check a folder before it begins."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.training import origin
from polopt.training import recipe as recipes
from polopt.training.domain import Domain
from polopt.training.extension import extended, same
from polopt.training.loop import Training, Watcher
from polopt.training.process_group import ProcessGroup, assemble
from polopt.training.recipe import Recipe
from polopt.training.run import ReadOnlyRun, Run
from polopt.training.weight_sources import check_networks, check_weights

# Kind of recipe -> the module whose `open_domain` makes its domain; imported when a run of that kind begins.
DOMAINS = {
    "language": "polopt.training.language",
    "control": "polopt.training.control.domain",
    "generative": "polopt.training.generative.domain",
}


def open_domain(recipe: Recipe, team: ProcessGroup, address: str | None) -> AbstractContextManager[Domain]:
    """Opens the domain of a recipe. team: the processes that learn together. address: of a cluster.

    Raises:
        ConfigError: the recipe cannot be prepared here.
    """
    recipe.require_installed()
    found: AbstractContextManager[Domain] = importlib.import_module(DOMAINS[recipe.kind]).open_domain(
        recipe, team, address
    )
    return found


def train(
    recipe: Recipe | Path | str | None = None,
    folder: Path | str = "runs/latest",
    *,
    watchers: tuple[Watcher, ...] = (),
    address: str | None = None,
    anyway: bool = False,
    **changes: Any,
) -> Run:
    """Trains the policy of a recipe (the laptop's by default) in a folder. A folder that holds a run of the same recipe
    is resumed, or returned with a warning if that has finished.

    address: of a Ray cluster that draws the rollouts, with the settings of the recipe's `cluster`: HOST:PORT, "auto"
    for the one that this machine belongs to, or "local" for one that is started here and ends with the run.
    anyway: as in `resume`.
    changes: settings of the recipe by dotted path, as `**{"stages.rl.method": "gspo", "seed": 1}`.

    Raises:
        ConfigError: the recipe is wrong, or there is no cluster. RunError: the folder holds a run of another recipe, or
            another process trains in it.
    """
    recipe = (recipe if isinstance(recipe, Recipe) else recipes.load(recipe, changes)).on_cluster(address)
    team, folder = assemble(recipe.device), Path(folder)
    if team.broadcast_from_main(lambda: Run.exists(folder)):
        if not is_finished(recipe, folder):
            return resume(folder, watchers=watchers, address=address, anyway=anyway)
        warnings.warn(f"{folder} has finished already: nothing was trained", PoloptWarning, stacklevel=2)
        return Run(folder)
    run = Run(folder) if team.is_main else ReadOnlyRun(folder)
    with open_domain(recipe, team, address) as domain:  # what cannot be prepared leaves no folder behind
        team.broadcast_from_main(domain.preflight)
        check_weights(recipe, domain)
        check_networks(recipe, domain)
        domain.try_worlds()
        if team.is_main:
            folder.mkdir(parents=True, exist_ok=True)
        with run.exclusive():
            team.broadcast_from_main(lambda: create(recipe, folder).folder)
            return Training(recipe, run, domain, watchers, team).run()


def is_finished(recipe: Recipe, folder: Path | str) -> bool:
    """Returns whether a folder holds a run of this recipe that has come to its end; False if it holds none.

    Raises:
        RunError: it holds a run of another recipe; the first settings that differ.
    """
    if not Run.exists(Path(folder)):
        return False
    run = Run.open(Path(folder))
    same(run, recipe)
    return bool(run.about.get("finished"))


def create(recipe: Recipe, folder: Path | str) -> Run:
    """Creates the folder of a new run, not begun; `resume` begins it.

    Raises:
        RunError: the folder holds a run already. ConfigError: the recipe read back from its YAML would be another one.
    """
    folder, text = Run.vacant(Path(folder)).folder, recipe.to_yaml()
    if Recipe.of_yaml(text) != recipe:
        raise ConfigError("the recipe cannot be written down and read back; give its settings as plain data")
    return Run.create(folder, text, origin.about_run(recipe, folder))


def resume(
    folder: Path | str,
    *,
    watchers: tuple[Watcher, ...] = (),
    address: str | None = None,
    anyway: bool = False,
    changes: Mapping[str, Any] | None = None,
    wait_s: float = 0.0,
) -> Run:
    """Continues a run to the result it would have had without the interruption, from whatever working directory.

    address: as in `train`. anyway: go on although something has changed that the result depends on: the recipe, a file
    that it names, the version of polopt or of a library. changes: what to extend, see `extension.extended`. wait_s: how
    long another process may take to leave the folder.

    Raises:
        RunError: the folder is not a run, another process trains in it, something has changed since it began, or none
            of its checkpoints is whole. ConfigError: it was begun on a cluster, and there is none, or without one.
    """
    run = Run.open(Path(folder).absolute())
    changed = origin.require_unchanged(run, anyway=anyway)
    with origin.entered(run) as recipe:
        team = assemble(recipe.device)
        run = run if team.is_main else ReadOnlyRun(run.folder)
        with run.exclusive(wait_s):
            if changes:
                recipe = team.main_first(lambda: extended(run, changes))
            if recipe.threads is None:
                torch.set_num_threads(run.about.get("threads", torch.get_num_threads()))
            with open_domain(recipe, team, address) as domain:
                domain.try_worlds()
                if changed and team.is_main:
                    domain.about(run.about)  # refuses another policy than the run's
                    run.describe(origin.about_run(recipe, run.folder) | run.about | origin.accept(run, changed))
                Training(recipe, run, domain, watchers, team).run(with_logs=not anyway)
    return Run(Path(folder))
