"""The sources of weights that a recipe names: earlier stages, finished runs, the policy of the beginning, and their
means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.config import ConfigError
from polopt.fields import policy_field
from polopt.training.domain import Domain
from polopt.training.process_group import ProcessGroup
from polopt.training.recipe import Recipe
from polopt.training.reference_policy import load_parameters, parameters_of, wholly
from polopt.training.run import Run, finished_run
from polopt.training.weight_specs import INITIAL, AverageWeights, ModelPolicy, RunWeights, StageWeights, parts_of

# The file of the networks that a stage ended with; with the name of a stage, that one
NETWORKS = "networks"


class WeightSources:
    """A store, in the run's folder, of the weights that later stages need, and of no others.

    The weights at the end of a stage are written before the checkpoint of its last step, which lists them: a run that
    is killed in between writes the same bytes again.
    """

    def __init__(self, recipe: Recipe, run: Run, domain: Domain, team: ProcessGroup) -> None:
        self.recipe, self.run, self.domain, self.team = recipe, run, domain, team
        self.stages, self.round = named_stages(recipe), 1

    def begin(self) -> None:
        """Stores the policy as the recipe makes it; to be called before the first step."""
        if any(part == INITIAL for spec in self.recipe.weights().values() for part in parts_of(spec)):
            self._keep(INITIAL)

    def end(self, stage: str) -> None:
        """Stores the weights at the end of a stage."""
        if stage in self.stages:
            self._keep(f"end-{self.label(stage)}")

    def end_networks(self, stage: str, networks: Mapping[str, Tensor]) -> None:
        """Stores the networks at the end of a stage: the latest ones for other runs, and under the stage's name where
        another stage begins with them."""
        named = {spec.stage for spec in self.recipe.network_weights().values() if isinstance(spec, StageWeights)}
        for name in [NETWORKS, *([f"{NETWORKS}-{self.label(stage)}"] if stage in named else [])] if networks else []:
            self.run.keep(name, networks)
        self.team.barrier()

    def networks(self, stage: str) -> dict[str, Tensor]:
        """Returns the weights that a stage's networks begin with, by the names of `NetworkTraining.weights`."""
        spec = self.recipe.stages[stage].networks
        if spec is None:
            return {}
        if isinstance(spec, RunWeights):
            return networks_of(spec.run, f"stages.{stage}.networks", self.recipe.kind)
        return self.run.kept(f"{NETWORKS}-{self.label(spec.stage)}")

    def label(self, stage: str) -> str:
        """Returns the name of a stage in this round, as files have it."""
        return stage if self.round == 1 else f"{stage}.round-{self.round}"

    def needed(self, stage: str) -> frozenset[str]:
        """Returns the names of the kept tensors that a run which goes on from this stage may read."""
        names = list(self.recipe.stages)
        ends = {f"end-{self.label(name)}" for name in names[: names.index(stage) + 1]}
        networks = {f"{NETWORKS}-{self.label(name)}" for name in names[: names.index(stage) + 1]}
        return frozenset({INITIAL, NETWORKS, f"reference-{self.label(stage)}"} | ends | networks)

    def _keep(self, name: str) -> None:
        self.run.keep(name, wholly(parameters_of(self.domain.learned)))
        self.team.barrier()  # the others read what the main process has written

    def start(self, stage: str) -> bool:
        """Loads the weights that a stage starts with into the policy. Returns whether the stage has a start of its
        own."""
        spec = self.recipe.stages[stage].start
        if spec is None:
            return False
        load_parameters(self.domain.learned, self.weights(spec, f"stages.{stage}.start"), partly=True)
        return True

    def policies(self, stage: str) -> dict[str, Any]:
        """Returns the frozen policies that a stage names, by the field of the batch that each fills in."""
        found = {}
        for name, spec in self.recipe.stages[stage].policies.items():
            where = f"stages.{stage}.policies.{name}"
            if isinstance(spec, ModelPolicy):
                found[policy_field(name)] = self.domain.model_policy(spec.model, where)
                continue
            policy = found[policy_field(name)] = self.domain.learned.frozen()
            load_parameters(policy, self.weights(spec, where), partly=True)
        return found

    def weights(self, spec: Any, where: str) -> dict[str, Tensor]:
        """Returns the parameters that a setting names; of the critic only where all of its parts have them."""
        own = self.domain.learned.own_parameters()
        if isinstance(spec, AverageWeights):
            found = [self.weights(part, where) for part in spec.average]
            return mean_of(found, spec.shares)
        if isinstance(spec, StageWeights):
            return self.run.kept(f"end-{self.label(spec.stage)}")
        if isinstance(spec, RunWeights):
            return checked(self.domain.weights_of(spec.run, where), own, where, spec.run)
        return self.run.kept(INITIAL)


def named_stages(recipe: Recipe) -> frozenset[str]:
    """Returns the stages whose final weights some setting names."""
    parts = (part for spec in recipe.weights().values() for part in parts_of(spec))
    return frozenset(part.stage for part in parts if isinstance(part, StageWeights))


def check_weights(recipe: Recipe, domain: Domain) -> None:
    """Checks that the runs and models which a recipe names are there and fit the policy.

    Raises:
        ConfigError: naming the setting, what was found and the fix.
    """
    for where, spec in recipe.weights().items():
        for part in parts_of(spec):
            if isinstance(part, ModelPolicy):
                domain.model_policy(part.model, where)
            if isinstance(part, RunWeights):
                checked(domain.weights_of(part.run, where), domain.learned.own_parameters(), where, part.run)


def networks_of(run: str, where: str, kind: str) -> dict[str, Tensor]:
    """Returns the networks of a finished run. where: the setting that names it. kind: of its recipe.

    Raises:
        ConfigError: there is no such run, or it has no networks beside its policy.
    """
    folder = finished_run(run, where, kind)
    if not (folder / f"{NETWORKS}.safetensors").is_file():
        raise ConfigError(f"{where}: {run} has no networks beside its policy; name the run of a method that has some")
    return Run(folder).kept(NETWORKS)


def check_networks(recipe: Recipe, domain: Domain) -> None:
    """Checks that the networks which a stage begins with are there and fit its own.

    Raises:
        ConfigError: naming the setting, what was found and the fix.
    """
    for where, spec in recipe.network_weights().items():
        stage = where.split(".")[1]
        own = _shapes(domain, stage)
        if isinstance(spec, RunWeights):
            loaded = networks_of(spec.run, where, recipe.kind)
            found = {name: tuple(value.shape) for name, value in loaded.items()}
        else:
            found = _shapes(domain, spec.stage)
        there = {name.partition(".")[0] for name in found}
        if not there & {name.partition(".")[0] for name in own}:
            raise ConfigError(
                f"{where}: none of this stage's networks, {sorted({n.partition('.')[0] for n in own}) or 'none'}, is "
                f"there, found {sorted(there) or 'none'}; leave it out, or name a source of the same networks"
            )
        for name, shape in own.items():
            if name.partition(".")[0] in there and found.get(name) != shape:
                raise ConfigError(
                    f"{where}: {name} is {list(shape)} here and {list(found[name]) if name in found else 'missing'} "
                    "there; give the networks the same settings"
                )


def _shapes(domain: Domain, stage: str) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the networks of a stage, without their target copies."""
    shapes: dict[str, tuple[int, ...]] = {}
    for spec in domain.algorithms[stage].networks:
        module = spec.network.build(domain.learned.space, torch.Generator())
        shapes |= {f"{spec.name}.{key}": tuple(value.shape) for key, value in module.state_dict().items()}
    return shapes


def checked(found: dict[str, Tensor], own: Mapping[str, Tensor], where: str, run: str) -> dict[str, Tensor]:
    """Returns those of a run's parameters that the policy has. A critic may be missing on either side.

    Raises:
        ConfigError: another name or shape.
    """
    known = {name: value for name, value in found.items() if name in own or not _of_critic(name)}
    for name in sorted(known.keys() ^ own.keys()):
        if not _of_critic(name):
            lacks = f"the run's policy has no {name}" if name in own else f"it has {name}, which this recipe's lacks"
            raise ConfigError(f"{where}: {run} holds a policy of another architecture: {lacks}; name a run of this one")
    for name, value in known.items():
        if value.shape != own[name].shape:
            raise ConfigError(
                f"{where}: {run} holds a policy of another size: {name} is {list(value.shape)} there and "
                f"{list(own[name].shape)} here; name a run of this architecture"
            )
    return known


def _of_critic(name: str) -> bool:
    return name.startswith("critic.")


@torch.no_grad()
def mean_of(found: list[dict[str, Tensor]], shares: tuple[float, ...]) -> dict[str, Tensor]:
    """Returns the weighted mean of each parameter that all have, in float64."""
    common = [name for name in found[0] if all(name in each for each in found)]
    pairs = list(zip(shares, found, strict=True))
    return {name: torch.stack([share * each[name].double() for share, each in pairs]).sum(0) for name in common}
