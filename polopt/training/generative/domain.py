"""The generative domain: a flow policy, and batches of points that it makes or is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from polopt.capabilities import CORE_FIELDS, Capabilities
from polopt.experience import Experience
from polopt.metrics import Interval, t_interval
from polopt.policies.flow import FlowPolicy
from polopt.policies.point_source import PointSource
from polopt.training.generative.recipe import GenerativeRecipe
from polopt.training.network_domain import NetworkDomain, check_one_process
from polopt.training.process_group import ProcessGroup

_FIELDS = CORE_FIELDS - {"value"} | {
    *("advantage", "extras.point", "extras.context", "extras.index", "extras.noise", "extras.noise_level"),
}
GENERATIVE = Capabilities(
    name="generative training",
    advantage_fields=_FIELDS,
    loss_fields=_FIELDS,
    policy_outputs=frozenset({"extras.velocity"}),
    old_outputs=True,
    source_capabilities=frozenset({"rollouts", "demonstrations", "pairs", "rated", "weights"}),
    updates=frozenset({"optimiser"}),
    teaches=False,
    clauses={
        "": "needs {names}, which {loop} cannot provide; take another part",
        "value": "needs a critic, which a flow policy has not; take a method without one, as grpo or gspo",
        "entropy": "needs {names}, which no flow policy has in closed form; take another part",
        "teacher": "reads texts; set teacher to null",
    },
)


@dataclasses.dataclass(frozen=True)
class RewardScore:
    """The mean held-out reward over points, with its interval."""

    rewards: list[float]
    interval: Interval

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl."""
        interval = self.interval
        estimate = {"estimate": interval.estimate, "low": interval.low, "high": interval.high, "unit": "reward"}
        return {"problems": len(self.rewards), "reward": estimate, "rewards": self.rewards}


@contextmanager
def open_domain(recipe: GenerativeRecipe, team: ProcessGroup, address: str | None) -> Iterator[GenerativeDomain]:
    """Opens the domain of a recipe.

    Raises:
        ConfigError: the recipe cannot be prepared, or several processes were started.
    """
    check_one_process(recipe, team)
    yield GenerativeDomain(recipe)


class GenerativeDomain(NetworkDomain):
    """The domain of a generative recipe: policy, points and sources of its stages; see `Domain`."""

    policy_class = FlowPolicy
    policy: FlowPolicy
    recipe: GenerativeRecipe

    def __init__(self, recipe: GenerativeRecipe) -> None:
        super().__init__(recipe, GENERATIVE)
        self.task = recipe.points.build()
        self.set_policy(
            FlowPolicy(
                dimensions=self.task.points.shape[1],
                contexts=self.task.contexts,
                seed=recipe.seed_of("policy"),
                **recipe.policy.network,
            )
        )

    def try_worlds(self) -> None:
        self.task.held_out(self.task.points[:1], self.task.context[:1])

    def described(self) -> dict[str, Any]:
        return {"points": self.recipe.points.name}

    def source(self, stage: str, *, round: int = 1) -> PointSource:
        return self._source(self.recipe.stages[stage].rows, self.sampling)

    def _source(self, rows: int, generator: torch.Generator) -> PointSource:
        task, draws = self.task, self.recipe.policy.draws
        given = {"points": task.points, "context": task.context, "score": task.score}
        return PointSource(self.policy, task.reward, rows=rows, generator=generator, draws=draws, **given)

    def describe(self, experience: Experience) -> dict[str, Any]:
        """Computes the spread of the batch's advantages and, of points that the policy made, the mean reward."""
        record = {"advantage/std": float(experience.advantage[experience.mask].std(correction=0))}
        if experience.rollout_logp is not None:
            record["reward/mean"] = float(experience.reward.mean())
        return record

    def rollouts(self, experience: Experience) -> Iterator[dict[str, Any]]:
        columns = (experience.group, experience.extras["context"], experience.outcome, experience.extras["point"])
        for group, context, outcome, point in zip(*(column.tolist() for column in columns), strict=True):
            yield {"group": group, "context": context, "outcome": outcome, "point": point}

    def score(self, stage: str, problems: int, step: int) -> RewardScore:
        """Makes points for the contexts in turn, and rewards them by the held-out reward."""
        context = torch.arange(problems) % self.task.contexts
        generator = torch.Generator().manual_seed(self.recipe.seed_of("evaluation", step))
        rewards = [
            float(reward) for reward in self.task.held_out(self.policy.sample(context, generator).cpu(), context)
        ]
        return RewardScore(rewards, t_interval(rewards))
