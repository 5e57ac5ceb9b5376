"""The recipe of a generative run: points with scores, a flow policy, and stages that learn from batches of points."""

from __future__ import annotations

from typing import Any, Literal

import pydantic

from polopt.config import Config, ConfigError, PlainMap
from polopt.errors import UserError
from polopt.policies.flow import Solver
from polopt.training.recipe import Recipe
from polopt.training.specs import EvaluationSpec, Positive, StageSpec
from polopt.worlds.points import PointTask, find_points


class PointsSpec(Config):
    """Given points, and the reward of others.

    name: digits, modes, or a function that returns a polopt.worlds.points.PointTask, as my_points.py:build.
    settings: what it is built with.
    """

    name: str
    settings: PlainMap = pydantic.Field(default_factory=dict)

    def build(self) -> PointTask:
        """Returns the task.

        Raises:
            ConfigError: it cannot be built; the reason.
        """
        try:
            return find_points({"name": self.name, **self.settings})
        except (UserError, ValueError, TypeError) as error:
            raise ConfigError(f"points: {error}") from None


class FlowSpec(Config):
    """The policy that is trained: a network of the velocity, and the solver that makes points with it.

    hidden: widths of the hidden layers.
    steps: intervals of the solver.
    solver: euler, or midpoint, of the second order with two evaluations an interval.
    draws: how often each point of a batch is noised, to be learned from.
    """

    hidden: tuple[Positive, ...] = (128, 128)
    steps: Positive = 10
    solver: Solver = "midpoint"
    draws: Positive = 4

    @property
    def network(self) -> dict[str, Any]:
        """The settings of the policy itself."""
        return self.model_dump(exclude={"draws"})


class RewardEvaluationSpec(EvaluationSpec):
    """The measurement of the mean held-out reward of points that the policy makes, of each context alike.

    problems: points at the beginning and end of the last stage.
    quick: points of a quick evaluation.
    """

    problems: Positive = 1000
    quick: Positive = 200

    @property
    def estimates(self) -> tuple[str, ...]:
        return ("reward",)


class GenerativeRecipe(Recipe):
    """A complete run of a generative policy.

    points: what it learns from, and how what it makes is rewarded.
    policy: the flow.
    """

    kind: Literal["generative"] = "generative"
    points: PointsSpec
    policy: FlowSpec = FlowSpec()
    stages: dict[str, StageSpec]
    evaluation: RewardEvaluationSpec = RewardEvaluationSpec()
