"""The loading and evaluation of policies that were trained earlier."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from polopt.config import ConfigError
from polopt.heap import freed_memory_kept
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import check_policy
from polopt.support import Support
from polopt.threads import giving_way
from polopt.training import recipe as recipes
from polopt.training.conversion import policy_at
from polopt.training.episode_player import EpisodePlayer
from polopt.training.evaluate import HeldOutScore, evaluate
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.origin import entered
from polopt.training.preferences import RatedScore, evaluate_rated
from polopt.training.preflight_models import fitted
from polopt.training.run import CheckpointChoice, Run
from polopt.worlds.protocol import are_verified
from polopt.worlds.recipe import rebuild_tasks
from polopt.yaml_data import read_yaml_file


def load_policy(folder: Path | str) -> LanguagePolicy:
    """Loads the policy of a finished run, or of a folder in the Hugging Face format.

    Raises:
        ConfigError: neither is there, or as `check_policy`.
    """
    folder = Path(folder)
    check_kind(folder)
    for place in (folder / "policy", folder):
        if (place / "config.json").is_file():
            policy = LanguagePolicy.load(place)
            check_policy(policy, str(folder))
            return policy
    if (folder / "solution.json").is_file():
        raise ConfigError(f"{folder} holds the solution of a problem, from `polopt solve`, and no policy")
    if (folder / "recipe.yaml").is_file():
        raise ConfigError(f"{folder} is a run that has not finished: continue it with polopt train --resume {folder}")
    raise ConfigError(f"{folder} holds no policy: give a run's folder, or one with a model's config.json")


def check_kind(folder: Path) -> None:
    """Refuses a folder that holds the run of another kind of policy than a language model.

    Raises:
        ConfigError: the kind of the run's recipe.
    """
    if (kind := kind_of(folder)) in ("control", "generative"):
        raise ConfigError(f"this is for recipes of kind language, found {kind} in {folder}")


def kind_of(folder: Path) -> str:
    """Returns the kind of the recipe of the run in a folder; language for a folder without a recipe."""
    if not (folder / "recipe.yaml").is_file():
        return "language"
    data = read_yaml_file(folder / "recipe.yaml")
    return str(data.get("kind", "language")) if isinstance(data, dict) else "language"


def evaluate_folder(
    folder: Path | str,
    tasks: Path | str | None = None,
    *,
    problems: int | None = None,
    samples: int | None = None,
    k: Sequence[int] = (),
    support: Support | None = None,
    seed: int = 0,
    checkpoint: CheckpointChoice | None = None,
) -> HeldOutScore | RatedScore:
    """Measures the held-out accuracy, or the preference accuracy, of the policy in a folder.

    tasks: the recipe whose tasks, token limit, device, episode executor and sampling support are used; the run's own by
    default.
    problems: how many of its held-out problems, all by default. samples: answers per problem, by default as many as the
    largest k needs.
    checkpoint: of a run, finished or not: a step, "last" or "best"; the policy that it ended with by default.

    Raises:
        RunError: there is no such checkpoint.
        ConfigError: no policy there, no recipe to take tasks from, or a k beyond the samples.
    """
    folder = Path(folder)
    check_kind(folder)
    policy = load_policy(folder) if checkpoint is None else policy_at(folder, checkpoint)
    if tasks is None and not (folder / "recipe.yaml").is_file():
        raise ConfigError(f"{folder} is a model without a recipe: name the recipe whose tasks it is evaluated on")
    samples = max((1, *k)) if samples is None else samples
    if k and max(k) > samples:
        raise ConfigError(f"pass@{max(k)} needs samples >= {max(k)}, found {samples}")
    with entered(Run.open(folder.absolute())) if tasks is None else nullcontext(recipes.load(tasks)) as recipe:
        return _evaluate(
            policy, LanguageRecipe.require(recipe), problems, k=k, samples=samples, support=support, seed=seed
        )


def _evaluate(
    policy: LanguagePolicy, recipe: LanguageRecipe, problems: int | None, *, support: Support | None, **how: Any
) -> HeldOutScore | RatedScore:
    policy.chat_template_kwargs = recipe.policy.chat_template_kwargs
    world = recipe.tasks_of(recipe.main_stage), recipe.seed, "heldout"
    heldout = rebuild_tasks(*world)
    limit = recipe.limit_of(recipe.main_stage)
    heldout = fitted(heldout, policy, limit, recipe.max_prompt_length, "held-out tasks")
    executor = recipe.episodes.build([(heldout, functools.partial(rebuild_tasks, *world))])
    count = len(heldout) if problems is None else min(problems, len(heldout))
    player = EpisodePlayer(policy.to(recipe.device), heldout, limit, executor=executor)
    chosen = [heldout[i] for i in range(count)]
    support = recipe.evaluation.support if support is None else support
    with giving_way(), freed_memory_kept():
        if not are_verified(heldout):
            return evaluate_rated(player, chosen)
        return evaluate(player, chosen, support=support, **how)
