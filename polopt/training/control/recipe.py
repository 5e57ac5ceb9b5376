"""The recipe of a control run: an environment of gymnasium, a network, and stages that learn from fragments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import pydantic

from polopt.config import Config, ConfigError, PlainMap
from polopt.metrics import frequency_averaged_score
from polopt.policies.head import HeadName
from polopt.policies.network import Activation
from polopt.training.control.returns import FrequencyScore, ReturnScore
from polopt.training.recipe import Recipe
from polopt.training.specs import EvaluationSpec, Positive, StageSpec, without_defaults


class EnvironmentSpec(Config):
    """An environment of gymnasium.

    id: its registered name, as CartPole-v1; or module:name or path/to/file.py:name, where the module or file registers
        it.
    settings: what it is made with.
    vectorization: how its copies are stepped: "vector_entry_point" all at once, in the environment's own vectorised
        version; "sync" one after another; "async" each in a process of its own; "envpool" by EnvPool, in C++, which
        has its own versions of MuJoCo's, Atari's and other environments. "auto" takes the vectorised version if the
        environment registers one, else "sync".
    chunk: actions in a decision, which are played one after the other without a look at what they lead to; its reward
        is the sum of theirs. Steps and discounts are of decisions.
    """

    id: str
    settings: PlainMap = pydantic.Field(default_factory=dict)
    vectorization: Literal["auto", "sync", "async", "vector_entry_point", "envpool"] = "auto"
    chunk: Positive = 1
    unused: ClassVar[tuple[str, ...]] = ("chunk",)

    @pydantic.model_serializer(mode="wrap")
    def _without_unused(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, handler(self), self.unused)


class NetworkSpec(Config):
    """The policy that is trained: an actor and a critic, two multilayer perceptrons.

    hidden: widths of their hidden layers.
    activation: between the layers.
    head: the distribution of an action: categorical for choices, or action_values, of which the largest is taken; for
        vectors gaussian, squashed_gaussian, beta, dirichlet or deterministic. null is categorical or gaussian.
    normalise: whether observations are normalised by the mean and standard deviation of those of training so far.
    base: the folder of a finished run whose policy is frozen, and corrected by a residual that is learned; it
        determines hidden, activation and head of the policy.
    base_std: the standard deviation of the residual at first.
    """

    hidden: tuple[Positive, ...] = (64, 64)
    activation: Activation = "tanh"
    head: HeadName | None = None
    normalise: bool = False
    base: str | None = None
    base_std: pydantic.PositiveFloat = 1.0
    unused: ClassVar[tuple[str, ...]] = ("base", "base_std")

    @pydantic.model_serializer(mode="wrap")
    def _without_unused(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, handler(self), self.unused)


class FrequencySpec(Config):
    """The returns of the policy when it looks at the state now and then, and takes several actions in turn in between:
    those of its own sequences if its trunk has any, else one action that is held.

    lengths: actions after each look, rising.
    largest: the return that counts as 1 in the frequency-averaged score.
    shift: added to returns, where they can be negative.
    """

    lengths: tuple[Positive, ...] = (1, 2, 4, 8, 16, 30)
    largest: pydantic.PositiveFloat
    shift: float = 0.0

    @pydantic.field_validator("lengths")
    @classmethod
    def _rising(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if len(lengths) < 2 or sorted(set(lengths)) != [*lengths]:
            raise ValueError(f"give two lengths or more, each larger than the one before, found {[*lengths]}")
        return lengths

    def score(self, scores: Mapping[int, ReturnScore]) -> FrequencyScore:
        """Returns the score of a policy's returns by length."""
        returns = [score.interval.estimate for score in scores.values()]
        average = frequency_averaged_score([*scores], returns, largest=self.largest, shift=self.shift)
        return FrequencyScore(scores, average)


class ReturnEvaluationSpec(EvaluationSpec):
    """The measurement of the mean return, in episodes of separate environments.

    problems: episodes at the beginning and end of the last stage.
    quick: episodes of a quick evaluation.
    greedy: whether the most likely action is taken instead of a sampled one.
    rules: rules, by name, that play as many episodes at the beginning and end of the last stage, as the policy's
        baselines: {escapement: {part: "polopt.worlds.control:ConstantEscapement", escapement: 0.5}}.
    frequency: returns at lower frequencies of decision, measured with the rules: {largest: 1000}.
    """

    problems: Positive = 100
    quick: Positive = 20
    greedy: bool = True
    unused: ClassVar[tuple[str, ...]] = ("rules", "frequency")

    rules: dict[str, PlainMap] = pydantic.Field(default_factory=dict)
    frequency: FrequencySpec | None = None

    @pydantic.model_serializer(mode="wrap")
    def _without_unused(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, handler(self), self.unused)

    @property
    def estimates(self) -> tuple[str, ...]:
        return ("return",)


class ControlRecipe(Recipe):
    """A complete run of a control policy.

    environment: what the policy acts in; each of a stage's `rows` is a copy of it.
    policy: the network.
    transitions: a file of logged transitions, the folder of a run that stored some or of a data set of Minari or
        LeRobot, or minari:NAME, for stages that learn from them.
    compiled: whether all that a minibatch does, from evaluation to the optimisers' steps, is one compiled graph, and
        each decision another. It needs a C++ compiler and some 15 seconds before the first step, and objectives whose
        terms depend on single decisions.
    """

    kind: Literal["control"] = "control"
    environment: EnvironmentSpec
    policy: NetworkSpec = NetworkSpec()
    compiled: bool = False
    stages: dict[str, StageSpec]
    evaluation: ReturnEvaluationSpec = ReturnEvaluationSpec()
    transitions: str | None = None

    def require_installed(self) -> None:
        try:
            import gymnasium  # noqa: F401
        except ImportError:
            raise ConfigError("control recipes need gymnasium: pip install 'polopt[control]'") from None
        super().require_installed()
