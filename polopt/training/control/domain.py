"""The control domain: a network policy, and environments of gymnasium that are stepped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import VectorEnv
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.capabilities import CORE_FIELDS, Capabilities
from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.experience import Experience
from polopt.metrics import Interval, t_interval
from polopt.policies.network import NetworkPolicy
from polopt.training.batches import BatchIterator, SynchronousBatches
from polopt.training.control.recipe import ControlRecipe
from polopt.training.control.source import StepSource
from polopt.training.domain import check_algorithm
from polopt.training.learner import Learner, learning, optimiser_of
from polopt.training.named_policies import with_policies
from polopt.training.process_group import ProcessGroup
from polopt.training.reference_policy import parameters_of
from polopt.training.run import finished_run

_FIELDS = CORE_FIELDS | {
    *("final_value", "advantage", "extras.observation", "extras.action"),
    *("extras.episode_return", "extras.episode_length"),
}
CONTROL = Capabilities(
    name="control training",
    advantage_fields=_FIELDS,
    loss_fields=_FIELDS,
    policy_outputs=frozenset({"entropy", "value"}),
    source_capabilities=frozenset({"fragments"}),
    teaches=False,
    clauses={
        "": "needs {names}, which {loop} cannot provide; take another part",
        "rollouts": "samples answers to tasks, and a control policy learns from fragments; set the stage's but: "
        "{sampling: {part: sampling.Fragments}}",
        "teacher": "reads texts; set teacher to null",
    },
)
# Copies that play the episodes of an evaluation.
COPIES = 16


@dataclasses.dataclass(frozen=True)
class ReturnScore:
    """The mean undiscounted return over episodes, with its interval."""

    returns: list[float]
    lengths: list[int]
    interval: Interval

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl."""
        interval = self.interval
        estimate = {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "unit": "return"}
        lengths = sum(self.lengths) / len(self.lengths)
        return {"problems": len(self.returns), "return": estimate, "length/mean": lengths, "returns": self.returns}


@contextmanager
def open_domain(recipe: ControlRecipe, team: ProcessGroup, address: str | None) -> Iterator[ControlDomain]:
    """Opens the domain of a recipe.

    Raises:
        ConfigError: the recipe cannot be prepared, or several processes were started.
    """
    if team.size > 1:
        raise ConfigError(f"recipes of kind control train in one process, and torchrun started {team.size}")
    domain = ControlDomain(recipe)
    try:
        yield domain
    finally:
        domain.close()


class ControlDomain:
    """The domain of a control recipe: policy, environments and sources of its stages; see `Domain`."""

    def __init__(self, recipe: ControlRecipe) -> None:
        self.recipe, self.capabilities = recipe, CONTROL
        recipe.require_installed()
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        self.algorithms = recipe.algorithms
        for name, algorithm in self.algorithms.items():
            capabilities = with_policies(name, recipe.stages[name], algorithm, self.capabilities)
            check_algorithm(name, algorithm, capabilities)
        self._opened: list[VectorEnv] = []
        self.evaluated = self._environments(min(COPIES, recipe.evaluation.problems))
        self.policy = self.learned = _policy_for(self.evaluated, recipe).to(recipe.device)
        for stage in recipe.stages.values():
            optimiser_of(learning(self.policy, stage.train), stage.optimiser)
        self.sampling = torch.Generator().manual_seed(recipe.seed_of("sampling"))

    def _environments(self, copies: int) -> VectorEnv:
        spec = self.recipe.environment
        try:
            environments = gymnasium.make_vec(spec.id, num_envs=copies, vectorization_mode="sync", **spec.settings)
        except (gymnasium.error.Error, TypeError, ValueError, ImportError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(f"environment.id = {spec.id!r:.60} cannot be made: {reason}") from None
        self._opened.append(environments)
        return environments

    def close(self) -> None:
        """Closes all environments."""
        while self._opened:
            self._opened.pop().close()

    def preflight(self) -> None:
        pass

    def try_worlds(self) -> None:
        self.evaluated.reset(seed=0)

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        parameters = sum(p.numel() for p in self.policy.parameters())
        if known.get("parameters", parameters) != parameters:
            raise RunError(f"the policy has {parameters} parameters, and this run began with {known['parameters']}")
        return {"parameters": parameters, "environment": self.recipe.environment.id}

    def weights_of(self, run: str, where: str) -> dict[str, Tensor]:
        folder = finished_run(run, where, self.recipe.kind)
        other = NetworkPolicy.load(folder / "policy")
        for name, value in self.policy.settings.items():
            if other.settings.get(name) != value:
                raise ConfigError(
                    f"{where}: {run} holds a policy of another architecture, {name} is {other.settings.get(name)} "
                    f"there and {value} here; name a run of this one"
                )
        return parameters_of(other)

    def model_policy(self, model: str, where: str) -> NetworkPolicy:
        raise ConfigError(f"{where}.model = {model!r:.60}: a control policy is no model of that format; name a run")

    def written(self, experience: Experience) -> Iterator[dict[str, Any]]:
        yield from ()

    def learn_from(self, stage: str, records: list[dict[str, Any]]) -> None:
        raise NotImplementedError("no setting of a control recipe leads here")

    def source(self, stage: str, *, round: int = 1) -> StepSource:
        while len(self._opened) > 1:  # those of the stage before
            self._opened.pop().close()
        environments = self._environments(self.recipe.stages[stage].rows)
        seed = self.recipe.seed_in_round(round, "environments", stage)
        return StepSource(environments, self.policy, seed=seed, generator=self.sampling)

    @contextmanager
    def batches(
        self,
        source: StepSource,
        algorithm: Algorithm,
        *,
        base: int,
        first: int,
        steps: int,
        tensors: Mapping[str, Tensor],
    ) -> Iterator[BatchIterator]:
        yield SynchronousBatches(source, algorithm.sampling)

    def provide(
        self, experience: Experience, fields: frozenset[str], source: StepSource, learner: Learner
    ) -> Experience:
        return experience

    def describe(self, experience: Experience) -> dict[str, Any]:
        """Computes the returns and lengths of the episodes that ended in the batch, and its rewards and advantages."""
        mask, over = experience.mask, experience.terminated | experience.truncated
        record: dict[str, Any] = {
            "reward/mean": float(ops.masked_mean(experience.reward, mask)),
            "advantage/std": float(experience.advantage[mask].std(correction=0)),
            "episodes": int(over.sum()),
        }
        if over.any():
            returns, lengths = experience.extras["episode_return"][over], experience.extras["episode_length"][over]
            record |= {"return/mean": float(returns.mean()), "return/max": float(returns.max())}
            truncated = float(experience.truncated[over].double().mean())
            record |= {"length/mean": float(lengths.mean()), "truncated": truncated}
        return record

    def rollouts(self, experience: Experience) -> Iterator[dict[str, Any]]:
        over = experience.terminated | experience.truncated
        for row, column in over.nonzero().tolist():
            yield {
                "copy": row,
                "return": float(experience.extras["episode_return"][row, column]),
                "length": int(experience.extras["episode_length"][row, column]),
                "truncated": bool(experience.truncated[row, column]),
            }

    def score(self, stage: str, problems: int, step: int) -> ReturnScore:
        """Plays whole episodes, numbers per copy differing by at most one, so that short ones are not preferred."""
        environments, policy = self.evaluated, self.policy
        seed, greedy = self.recipe.seed_of("evaluation", step), self.recipe.evaluation.greedy
        source = StepSource(environments, policy, seed=seed % 2**31, generator=torch.Generator().manual_seed(seed))
        copies = environments.num_envs
        targets = torch.tensor([problems // copies + (i < problems % copies) for i in range(copies)])
        finished: list[list[tuple[float, int]]] = [[] for _ in range(copies)]
        while any(len(finished[i]) < int(targets[i]) for i in range(copies)):
            batch = source.fragments(64, greedy=greedy)
            for row, column in (batch.terminated | batch.truncated).nonzero().tolist():
                if len(finished[row]) < int(targets[row]):
                    extras = batch.extras
                    ended = float(extras["episode_return"][row, column]), int(extras["episode_length"][row, column])
                    finished[row].append(ended)
        episodes = [episode for row in finished for episode in row]
        returns = [value for value, _ in episodes]
        return ReturnScore(returns, [length for _, length in episodes], t_interval(returns))

    def other_scores(self, problems: int, step: int) -> Iterator[tuple[str, ReturnScore]]:
        yield from ()

    def samples(self, score: ReturnScore) -> Iterator[dict[str, Any]]:
        yield from ()

    def sync_weights(self, version: int) -> None:
        pass

    def save(self, folder: Path) -> None:
        self.policy.save(folder / "policy")

    def state(self) -> dict[str, Tensor]:
        return {"rng.sampling": self.sampling.get_state()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.sampling.set_state(tensors["rng.sampling"])


def _policy_for(environments: VectorEnv, recipe: ControlRecipe) -> NetworkPolicy:
    observed, decided = environments.single_observation_space, environments.single_action_space
    if not isinstance(observed, Box):
        raise ConfigError(
            f"environment.id = {recipe.environment.id!r}: observations must be a Box, found {observed}; wrap the "
            "environment, as with gymnasium.wrappers.FlattenObservation"
        )
    settings: dict[str, Any] = {"observations": int(torch.tensor(observed.shape).prod())}
    if isinstance(decided, Discrete):
        settings["actions"] = int(decided.n)
    elif isinstance(decided, Box):
        settings["dimensions"] = int(torch.tensor(decided.shape).prod())
    else:
        raise ConfigError(
            f"environment.id = {recipe.environment.id!r}: actions must be Discrete or a Box, found {decided}"
        )
    return NetworkPolicy(**settings, **recipe.policy.model_dump(), seed=recipe.seed_of("policy"))
