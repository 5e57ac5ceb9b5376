"""Settings that a recipe of every kind has: stages, their optimiser, evaluation, checkpoints, logging."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pydantic

from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.config import Config, ConfigError, PlainMap
from polopt.names import nearest
from polopt.setting_types import Unbounded
from polopt.training.weight_specs import NetworksSpec, PolicySource, WeightsSpec

Positive = Annotated[int, pydantic.Field(ge=1, le=10**6)]
Count = Annotated[int, pydantic.Field(ge=0, le=10**6)]
Seed = Annotated[int, pydantic.Field(ge=0, lt=2**63)]
Momentum = Annotated[float, pydantic.Field(ge=0, lt=1)]


# Names of the learner at an earlier time, which no stage gives.
LEARNER_BEFORE = {
    "previous": "one batch earlier",
    "sampler": "when it sampled the batch",
    "old": "before its first update on the batch",
}


class OptimiserSpec(Config):
    """AdamW, and the course of its learning rate over a stage.

    lr: the learning rate, at most 1, since a step moves each weight by about that much.
    betas: decay of the averages of gradients and of their squares.
    weight_decay: share of a weight, times the rate, that a step takes off.
    warmup: steps over which the rate rises to `lr`.
    decay: its course from there to `final` times `lr` at the stage's end.
    final: the rate at the stage's end, as a fraction of `lr`; of no effect where decay is constant.
    clip: the largest norm of a step's gradient; a longer one is scaled down to it; inf for any.
    """

    lr: float = pydantic.Field(default=1e-3, gt=0, le=1)
    betas: tuple[Momentum, Momentum] = (0.9, 0.95)
    weight_decay: float = pydantic.Field(default=0.0, ge=0)
    warmup: Count = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    final: float = pydantic.Field(default=0.0, ge=0, le=1)
    clip: Unbounded = pydantic.Field(default=1.0, gt=0)


class Until(Config):
    """A condition that ends a stage before its last step.

    metric: a name in metrics.jsonl, whose mean over the last `over` steps is compared with the bound.
    above: the stage is done when the mean is at least this.
    below: the stage is done when the mean is at most this; one of the two bounds is given.
    over: how many steps the mean is taken over.
    """

    metric: str
    above: float | None = None
    below: float | None = None
    over: Positive = 1

    @pydantic.model_validator(mode="after")
    def _one_bound(self) -> Until:
        if (self.above is None) == (self.below is None):
            raise ValueError(f"needs one bound, above or below, found above = {self.above} and below = {self.below}")
        return self

    def met(self, records: Sequence[Mapping[str, Any]]) -> bool:
        """Returns whether these steps of the stage, in order, meet the condition.

        Raises:
            ConfigError: no step has logged the metric; the nearest one is named.
        """
        found = [record[self.metric] for record in records if self.metric in record]
        if not found and any("grad_norm" in record for record in records):  # some batches give no update
            known = {name for record in records for name, value in record.items() if isinstance(value, float)}
            raise ConfigError(f"until.metric = {self.metric!r} is not logged{nearest(self.metric, known)}")
        if len(found) < self.over:
            return False
        mean = sum(found[-self.over :]) / self.over
        return mean >= self.above if self.above is not None else mean <= float(self.below or 0.0)


class StageSpec(Config):
    """One stretch of training with one method.

    method: a method's name, or its name and settings as {name: grpo, clip: 0.1}, or a Python function that
        returns an `Algorithm`, as my_method.py:build.
    but: changes to the algorithm, by dotted path.
    steps: batches that are learned from.
    rows: rollouts, demonstrations or fragments in one batch.
    group: rollouts per prompt, for methods that sample; None leaves it to the method.
    epochs: times that each batch is learned from.
    minibatches: parts of the batch with an optimiser step each, in every epoch.
    micro_rows: rows per forward pass, None for all; the gradient is the same. An objective that compares the rows of a
        group has whole groups in a pass, larger ones than that too.
    until: what ends the stage before its last step.
    train: a regular expression; only parameters whose names it is found in learn.
    optimiser: of this stage; each stage begins with a new one.
    start: the weights that the stage begins with: initial (the policy as the recipe makes it), {stage: NAME} (what an
        earlier stage ended with), {run: FOLDER} (a finished run's), or {average: [...], weights: [...]} of several. A
        run without a critic leaves that as it is. None goes on from the stage before.
    networks: where the networks beside the policy begin, those of the same names: {stage: NAME} (as an earlier stage
        ended with) or {run: FOLDER} (as a finished run did). The others, and all of them if None, begin anew.
    policies: frozen policies beside the learner, by name, each as a `start`, or {model: NAME_OR_FOLDER}: a part whose
        `anchor` is that name reads the policy's log-probabilities, extras.<name>_logp. `reference` stands in place of
        the policy as it was when the stage began.
    """

    method: str | PlainMap = "dr-grpo"
    but: PlainMap = pydantic.Field(default_factory=dict)
    steps: Positive
    rows: Positive
    group: Positive | None = None
    epochs: Positive = 1
    minibatches: Positive = 1
    micro_rows: Positive | None = None
    until: Until | None = None
    train: str | None = None
    optimiser: OptimiserSpec = OptimiserSpec()
    # Settings that a recipe's text leaves out while they have their defaults.
    unused: ClassVar[tuple[str, ...]] = ("start", "networks", "policies")

    start: WeightsSpec | None = None
    networks: NetworksSpec | None = None
    policies: dict[str, PolicySource] = pydantic.Field(default_factory=dict)

    @pydantic.model_serializer(mode="wrap")
    def _without_unused(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, handler(self), self.unused)

    @pydantic.field_validator("policies")
    @classmethod
    def _plain_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name.startswith("old_"):
                raise ValueError(f"a policy needs a plain name, of small letters, digits and _, found {name!r:.60}")
            if name in LEARNER_BEFORE:
                raise ValueError(f"{name} is the learner as it was {LEARNER_BEFORE[name]}, which the loop keeps itself")
        return value

    @pydantic.field_validator("train")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{value!r:.60} is no regular expression: {error}") from None
        return value

    def algorithm(self, where: str) -> Algorithm:
        """Builds the stage's algorithm. where: the stage's path, for messages.

        Raises:
            ConfigError: no such method, setting or path; the nearest name is given.
        """
        try:
            algorithm = catalogue.sentence(self.method)
            if self.group is not None and "group" in algorithm.sampling.settings():
                algorithm = algorithm.but({"sampling.group": self.group})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}.method: {short_message(error)}") from None
        try:
            algorithm = algorithm.but({str(path): value for path, value in self.but.items()})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}.but: {short_message(error)}") from None
        group = algorithm.sampling.group_size
        if self.rows % group:
            raise ConfigError(
                f"{where}.rows = {self.rows} must be a multiple of the group of {group} rollouts per prompt; "
                f"set {where}.group, or rows to {max(1, self.rows // group) * group}"
            )
        if self.minibatches > 1 and algorithm.minibatch is not None:
            raise ConfigError(
                f"{where}.minibatches = {self.minibatches}, and the method has minibatches of {algorithm.minibatch} "
                "decisions, as many as there are; set it to 1, or but: {minibatch: null}"
            )
        pieces, what = algorithm.sampling.batch_rows(self.rows) // group, "groups, which stay whole"
        if algorithm.objective.binding == "decision" and not algorithm.networks and self.micro_rows is None:
            pieces, what = pieces * algorithm.sampling.divisible_row, "decisions or groups"
        if self.minibatches > pieces:
            raise ConfigError(
                f"{where}.minibatches = {self.minibatches}, and the batch has {pieces} {what}; set it to {pieces} or "
                "less"
            )
        return algorithm


class EvaluationSpec(Config):
    """The schedule of a policy's evaluations on held-out problems.

    problems: held-out problems at the beginning and end of the last stage.
    every: steps of each stage between quick evaluations, 0 for none.
    quick: held-out problems of a quick evaluation.
    """

    problems: Positive = 400
    every: Count = 0
    quick: Positive = 100

    @property
    def estimates(self) -> tuple[str, ...]:
        """Returns the names of the estimates in a record of evaluations.jsonl, the main one first."""
        raise NotImplementedError


class CheckpointSpec(Config):
    """The schedule of checkpoints, and which of them stay; `checkpoint: 20` is short for `{every: 20}`.

    every: steps between checkpoints; a stage's last step has one, too.
    keep: how many of the last ones stay.
    best: a held-out estimate, as pass@1 or return: of the checkpoints that were evaluated on the last stage's held-out
        problems, the one where it is highest stays, too. A step at which it rises is checkpointed whatever `every` is.
    """

    every: Positive = 20
    keep: Positive = 2
    best: str | None = None


class LoggingSpec(Config):
    """The destinations of metrics beside the run's own folder, and the rollouts that are kept.

    report_to: trackers, any of tensorboard, wandb, trackio and mlflow; each needs its package.
    project: of the run in trackers that have projects or experiments.
    rollouts: the rollouts of every so many-th batch of each stage are written to rollouts.jsonl, 0 for none.
    """

    report_to: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = ()
    project: str = "polopt"
    rollouts: int = pydantic.Field(default=0, ge=0)

    def require_installed(self) -> None:
        """Checks that the trackers are installed.

        Raises:
            ConfigError: one is not; how to install it.
        """
        for package in self.report_to:
            if importlib.util.find_spec(package) is None:
                raise ConfigError(
                    f"logging.report_to: {package} is not installed; run pip install 'polopt[{package}]', or leave it "
                    "out"
                )

    @pydantic.field_validator("report_to", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


def without_defaults(config: Config, data: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns a dumped config without those of these settings that have their defaults."""
    fields = type(config).model_fields
    defaults = {name: fields[name].get_default(call_default_factory=True) for name in names}
    return {key: value for key, value in data.items() if key not in names or getattr(config, key) != defaults[key]}


def short_message(error: Exception) -> str:
    """Returns an error's message on one line; the middle of a long one is left out."""
    message = " ".join(str(error).split())
    return message if len(message) <= 320 else f"{message[:200]} … {message[-100:]}"
