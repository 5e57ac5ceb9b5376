"""The evaluation of control policies that were trained earlier, beside the rules of a recipe."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from polopt.config import ConfigError
from polopt.policies.network import NetworkPolicy
from polopt.training import recipe as recipes
from polopt.training.control.domain import ControlDomain
from polopt.training.control.recipe import ControlRecipe
from polopt.training.control.returns import ReturnScore
from polopt.training.origin import entered
from polopt.training.run import Run


def evaluate_control(
    folder: Path | str, tasks: Path | str | None = None, *, problems: int | None = None, seed: int = 0
) -> ReturnScore:
    """Measures the mean return of the policy of a finished control run, and of the rules of a recipe.

    tasks: the recipe whose environment and rules are played; the run's own by default. problems: episodes, by default
    the recipe's.

    Raises:
        ConfigError: the run has not finished, the recipe is of another kind, or its environment does not fit.
    """
    folder = Path(folder)
    if not (folder / "policy" / "config.json").is_file():
        raise ConfigError(f"{folder} is a run that has not finished: continue it with polopt train --resume {folder}")
    with entered(Run.open(folder.absolute())) if tasks is None else nullcontext(recipes.load(tasks)) as recipe:
        if not isinstance(recipe, ControlRecipe):
            raise ConfigError(f"{folder} holds a control policy: name a recipe of kind control, found {recipe.kind}")
        count = recipe.evaluation.problems if problems is None else problems
        evaluation = recipe.evaluation.model_copy(update={"problems": count})
        domain = ControlDomain(recipe.model_copy(update={"evaluation": evaluation}))
        try:
            policy = NetworkPolicy.load(folder / "policy")
            if policy.space != domain.policy.space:
                raise ConfigError(
                    f"{folder}: its policy is for {policy.space}, and the environment of the recipe has "
                    f"{domain.policy.space}"
                )
            domain.set_policy(policy)
            return domain.measured(count, seed)
        finally:
            domain.close()
