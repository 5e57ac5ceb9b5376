"""The recipe: everything that determines a run, checked before anything runs."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from polopt import recipes
from polopt.algorithm import Algorithm
from polopt.config import Config, ConfigError, parse, plain_data
from polopt.names import nearest
from polopt.training.specs import (
    CheckpointSpec,
    EvaluationSpec,
    LoggingSpec,
    Positive,
    Seed,
    StageSpec,
    without_defaults,
)
from polopt.training.weight_specs import stages_of
from polopt.yaml_data import read_yaml, read_yaml_file, write_yaml

# Kind of recipe -> its class, imported when a recipe of that kind is read.
KINDS = {
    "language": "polopt.training.language_recipe:LanguageRecipe",
    "control": "polopt.training.control.recipe:ControlRecipe",
    "generative": "polopt.training.generative.recipe:GenerativeRecipe",
}


class Recipe(Config):
    """A complete run, without the settings that only one kind of policy or world has.

    kind: of policy and world.
    seed: of everything that is drawn at random.
    device: where the policy is, as cpu, cuda or cuda:1.
    threads: CPU threads, None for all cores. The result is reproducible for a given number of them.
    stages: stretches of training by name, in order; the last one is the main one, whose method `--method` sets.
    rounds: how often all stages are run, in order; a round goes on from where the one before ended, unless the first
        stage has a `start`.
    evaluation: how the policy is measured on held-out problems.
    checkpoint: when checkpoints are written, and which stay; a number is the steps between them.
    logging: where numbers go beside the run's folder, and which rollouts are kept.
    """

    kind: str
    seed: Seed = 0
    device: str = "cpu"
    threads: Annotated[int, pydantic.Field(ge=1, le=1024)] | None = None
    stages: Mapping[str, StageSpec]
    rounds: Positive = 1
    evaluation: EvaluationSpec
    checkpoint: CheckpointSpec = CheckpointSpec()
    logging: LoggingSpec = LoggingSpec()

    @pydantic.model_serializer(mode="wrap")
    def _without_unused(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, handler(self), ("rounds",))

    @pydantic.field_validator("checkpoint", mode="before")
    @classmethod
    def _steps_between(cls, value: Any) -> Any:
        return value if isinstance(value, (Mapping, CheckpointSpec)) else {"every": value}

    @pydantic.model_validator(mode="after")
    def _some_stage(self) -> Recipe:
        if not self.stages:
            raise ValueError("a recipe needs at least one stage, found none")
        for name in self.stages:  # files are named after them
            if not re.fullmatch(r"\w[\w -]{0,59}", name):
                raise ValueError(f"stage {name!r:.70} needs a plain name, of at most 60 letters, digits, _ and -")
        return self

    @pydantic.model_validator(mode="after")
    def _weights_are_there(self) -> Recipe:
        names = list(self.stages)
        for where, spec in (self.weights() | self.network_weights()).items():
            before = names[: names.index(where.split(".")[1])]
            for stage in stages_of(spec):
                if stage not in names:
                    raise ValueError(f"{where} names stage {stage!r:.70}, which is not there{nearest(stage, names)}")
                if stage not in before:
                    choices = f"one of {', '.join(before)}" if before else "initial, or {run: FOLDER}"
                    raise ValueError(f"{where} names stage {stage}, which has not been run by then; give {choices}")
        return self

    def weights(self) -> dict[str, Any]:
        """Returns each setting that names weights, by its dotted path."""
        found: dict[str, Any] = {f"stages.{name}.start": stage.start for name, stage in self.stages.items()}
        for name, stage in self.stages.items():
            found |= {f"stages.{name}.policies.{policy}": spec for policy, spec in stage.policies.items()}
        return {where: spec for where, spec in found.items() if spec is not None}

    def network_weights(self) -> dict[str, Any]:
        """Returns each setting that names networks, by its dotted path."""
        found = {f"stages.{name}.networks": stage.networks for name, stage in self.stages.items()}
        return {where: spec for where, spec in found.items() if spec is not None}

    def writes(self, stage: str) -> str | None:
        """Returns the name under which a stage's rollouts are written; None where they are not."""
        return None

    def reads(self, stage: str) -> str | None:
        """Returns the name of the written rollouts that a stage learns from; None for none."""
        return None

    def starts(self, stage: str, round: int) -> int:
        """Returns how many stages, up to this one of a round, begin with other weights than the one before ended
        with."""
        started, names = [spec.start is not None for spec in self.stages.values()], list(self.stages)
        return (round - 1) * sum(started) + sum(started[: names.index(stage) + 1])

    @property
    def total_steps(self) -> int:
        """Returns the number of steps of all stages in all rounds."""
        return self.rounds * sum(stage.steps for stage in self.stages.values())

    @pydantic.model_validator(mode="after")
    def _best_is_evaluated(self) -> Recipe:
        best, known = self.checkpoint.best, self.estimates
        if best is not None and best not in known:
            raise ValueError(f"checkpoint.best = {best!r} is not evaluated; give {' or '.join(known)}")
        if best is not None and not self.evaluation.every:
            raise ValueError(
                f"checkpoint.best = {best!r} needs evaluations during training, and evaluation.every is 0; set it to "
                "the steps between them"
            )
        return self

    def to_yaml(self) -> str:
        """Returns the complete recipe as YAML, defaults included; `of_yaml` reads it back to an equal one.

        Raises:
            ConfigError: a setting that YAML cannot hold.
        """
        try:
            return write_yaml(plain_data(self.model_dump()))
        except ValueError as error:
            raise ConfigError(f"recipe: {error}") from None

    @classmethod
    def of_yaml(cls, text: str, name: str = "recipe") -> Self:
        """Reads a complete recipe from YAML; the inverse of `to_yaml`.

        Raises:
            ConfigError, YamlError: it is no complete recipe.
        """
        return cls.require(recipe_of(read_yaml(text, name), name))

    @classmethod
    def require(cls, recipe: Recipe) -> Self:
        """Returns the recipe as one of this class.

        Raises:
            ConfigError: it is a recipe of another kind.
        """
        if not isinstance(recipe, cls):
            raise ConfigError(f"this is for recipes of kind {cls.model_fields['kind'].default}, found {recipe.kind}")
        return recipe

    def require_installed(self) -> None:
        """Checks that the packages which the recipe names are installed.

        Raises:
            ConfigError: one is not; how to install it.
        """
        self.logging.require_installed()

    def on_cluster(self, address: str | None) -> Self:
        """Returns the recipe with the settings of a cluster, if an address is given.

        Raises:
            ConfigError: rollouts of this kind are drawn in this process.
        """
        if address is not None:
            raise ConfigError(
                f"a recipe of kind {self.kind} has no workers on a cluster; leave the cluster's address out"
            )
        return self

    def seed_of(self, *purpose: object) -> int:
        """Returns a seed for one purpose, so that no two draw the same numbers; the same in every process."""
        text = "/".join(map(str, (self.seed, *purpose)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")

    def seed_in_round(self, round: int, *purpose: object) -> int:
        """Returns a seed as `seed_of`, another one in each round."""
        return self.seed_of(*purpose) if round == 1 else self.seed_of(*purpose, f"round {round}")

    @property
    def main_stage(self) -> str:
        """Returns the last stage, whose method `--method` sets, and whose held-out accuracy is the result."""
        return list(self.stages)[-1]

    @property
    def estimates(self) -> tuple[str, ...]:
        """Returns the names of the estimates in a record of evaluations.jsonl, the main one first."""
        return self.evaluation.estimates

    def evaluations(self, stage: str) -> dict[int, tuple[str, int]]:
        """Returns the schedule of a stage's evaluations: number of steps before it -> ("before", "during" or "after",
        problems)."""
        spec, steps = self.evaluation, self.stages[stage].steps
        planned = dict.fromkeys(range(spec.every, steps + 1, spec.every), ("during", spec.quick)) if spec.every else {}
        if stage == self.main_stage:
            planned |= {0: ("before", spec.problems), steps: ("after", spec.problems)}
        return planned

    @property
    def algorithms(self) -> dict[str, Algorithm]:
        """Builds each stage's algorithm anew, so that the state of baselines does not pass from one run to the next.

        Raises:
            ConfigError: one cannot be built.
        """
        return {name: stage.algorithm(f"stages.{name}") for name, stage in self.stages.items()}

    def check(self, name: str) -> None:
        """Checks what the types of single settings cannot. name: of the recipe, for messages.

        Raises:
            ConfigError: naming the setting and the fix.
        """
        _ = self.algorithms


def recipe_of(data: Any, name: str = "recipe") -> Recipe:
    """Returns the recipe in plain data, of the class that its `kind` names; without one it is about language.

    Raises:
        ConfigError: an unknown kind, or an unknown or mistyped setting; the nearest name is given.
    """
    kind = data.get("kind", "language") if isinstance(data, Mapping) else "language"
    if kind not in KINDS:
        raise ConfigError(f"{name}: there is no kind of recipe {kind!r:.60}{nearest(str(kind), KINDS)}")
    module, _, cls = KINDS[kind].partition(":")
    return parse(getattr(importlib.import_module(module), cls), data, name)


def load(
    source: Path | str | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    method: str | dict[str, Any] | None = None,
) -> Recipe:
    """Loads a recipe from a YAML file, one of polopt's own by name, or the main one; with dotted changes.

    method: of the last stage. The recipe's settings of that method stay if it names the same one; another method starts
    from its own defaults.

    Raises:
        ConfigError: no such file or recipe, an unknown or mistyped key (the nearest one is named), or a method that
            does not exist. Nothing is generated or trained before all of it is checked.
    """
    path = _find("laptop" if source is None else source)
    data = read_yaml_file(path)
    if isinstance(data, dict):
        if data.get("kind") == "solve":
            raise ConfigError(f"{path} is the recipe of a solver, which `polopt solve` runs, and holds no policy")
        if method is not None:
            _set_method(data, method)
        for key, value in (changes or {}).items():
            set_by_path(data, key, value)
    recipe = recipe_of(data, path.name)
    recipe.check(path.name)
    return recipe


def _find(source: Path | str) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    if str(source) in recipes.names():
        return recipes.path(str(source))
    hint = nearest(str(source), recipes.names())
    raise ConfigError(f"{source} is neither a file nor one of polopt's recipes{hint}")


def name_of_method(method: str | Mapping[str, Any]) -> str:
    """Returns the name in a stage's `method`, which may come with settings."""
    return method if isinstance(method, str) else str(method.get("name", "?"))


def _set_method(data: dict[str, Any], method: str | dict[str, Any]) -> None:
    stages = data.get("stages")
    if not isinstance(stages, dict) or not stages or not isinstance(last := list(stages.values())[-1], dict):
        return  # no stage to change: `parse` refuses it
    if isinstance(method, dict) or method != name_of_method(last.get("method", "")):
        last["method"] = method


def set_by_path(data: Any, key: str, value: Any) -> None:
    """Sets data[a][b][c] = value for the key a.b.c. Maps on the way are made; their content is checked later.

    Raises:
        ConfigError: there is no such stage, or a value on the way holds no settings.
    """
    *path, last = key.split(".")
    # `but` holds dotted paths of its own, which stay whole.
    if "but" in path:
        path, last = path[: path.index("but") + 1], ".".join([*path[path.index("but") + 1 :], last])
    stages = data.get("stages")
    if path[:1] == ["stages"] and len(path) > 1 and isinstance(stages, dict) and path[1] not in stages:
        raise ConfigError(f"{key}: there is no stage {path[1]!r}{nearest(path[1], stages)}")
    for step in path:
        data = data.setdefault(step, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{key}: {step!r} is {data!r:.60}, which holds no settings")
    data[last] = value
