"""The common ground of domains of small network policies, trained in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.capabilities import Capabilities
from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.experience import Experience
from polopt.training.batches import BatchIterator, SynchronousBatches
from polopt.training.domain import check_algorithm, check_update
from polopt.training.learner import Learner, learning
from polopt.training.named_policies import with_policies
from polopt.training.process_group import ProcessGroup
from polopt.training.recipe import Recipe
from polopt.training.reference_policy import parameters_of
from polopt.training.run import finished_run


def check_one_process(recipe: Recipe, team: ProcessGroup) -> None:
    """Raises ConfigError if several processes were started for a recipe whose kind trains in one."""
    if team.size > 1:
        raise ConfigError(f"recipes of kind {recipe.kind} train in one process, and torchrun started {team.size}")


class NetworkDomain:
    """The part of a `Domain` that does not depend on what the policy decides on.

    policy_class: of the policy, with `load`, `save`, `settings`, `own_parameters`, `frozen` and `evaluate`. policy: of
    that class.
    """

    policy_class: ClassVar[Any]
    policy: Any
    learned: Any

    def __init__(self, recipe: Recipe, capabilities: Capabilities) -> None:
        self.recipe, self.capabilities = recipe, capabilities
        recipe.require_installed()
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        self.algorithms = recipe.algorithms
        for name, algorithm in self.algorithms.items():
            try:
                algorithm.check_networks()
            except ValueError as error:
                raise ConfigError(f"stages.{name}: {error}") from None
            if len(algorithm.networks) and recipe.stages[name].micro_rows is not None:
                raise ConfigError(
                    f"stages.{name}.micro_rows: networks beside the policy learn from whole minibatches; leave it out, "
                    "and set minibatches higher"
                )
            check_update(name, recipe.stages[name], algorithm, 1)
            check_algorithm(name, algorithm, with_policies(name, recipe.stages[name], algorithm, capabilities))
        self.sampling = torch.Generator().manual_seed(recipe.seed_of("sampling"))

    def set_policy(self, policy: Any) -> None:
        """Sets the policy that learns, on the recipe's device.

        Raises:
            ConfigError: a stage trains parameters that the policy has not.
        """
        self.policy = self.learned = policy.to(self.recipe.device)
        for stage in self.recipe.stages.values():
            learning(self.policy, stage.train)

    def preflight(self) -> None:
        pass

    def use_folder(self, folder: Path) -> None:
        pass

    def described(self) -> dict[str, Any]:
        """Returns what a run's folder holds of the policy's world."""
        raise NotImplementedError

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        parameters = sum(p.numel() for p in self.policy.parameters())
        if known.get("parameters", parameters) != parameters:
            raise RunError(f"the policy has {parameters} parameters, and this run began with {known['parameters']}")
        return {"parameters": parameters, **self.described()}

    def weights_of(self, run: str, where: str) -> dict[str, Tensor]:
        folder = finished_run(run, where, self.recipe.kind)
        other = self.policy_class.load(folder / "policy")
        for name, value in self.policy.settings.items():
            if other.settings.get(name) != value:
                raise ConfigError(
                    f"{where}: {run} holds a policy of another architecture, {name} is {other.settings.get(name)} "
                    f"there and {value} here; name a run of this one"
                )
        return parameters_of(other)

    def model_policy(self, model: str, where: str) -> Any:
        raise ConfigError(
            f"{where}.model = {model!r:.60}: a {self.recipe.kind} policy is no model of that format; name a run"
        )

    def written(self, experience: Experience) -> Iterator[dict[str, Any]]:
        yield from ()

    def learn_from(self, stage: str, records: list[dict[str, Any]]) -> None:
        raise NotImplementedError(f"no setting of a {self.recipe.kind} recipe leads here")

    @contextmanager
    def batches(
        self, source: Any, algorithm: Algorithm, *, base: int, first: int, steps: int, tensors: Mapping[str, Tensor]
    ) -> Iterator[BatchIterator]:
        yield SynchronousBatches(source, algorithm.sampling)

    def provide(self, experience: Experience, fields: frozenset[str], source: Any, learner: Learner) -> Experience:
        return experience

    def other_scores(self, problems: int, step: int) -> Iterator[tuple[str, Any]]:
        yield from ()

    def samples(self, score: Any) -> Iterator[dict[str, Any]]:
        yield from ()

    def sync_weights(self, version: int) -> None:
        pass

    def save(self, folder: Path) -> None:
        self.policy.save(folder / "policy")

    def state(self) -> dict[str, Tensor]:
        return {"rng.sampling": self.sampling.get_state()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.sampling.set_state(tensors["rng.sampling"])
