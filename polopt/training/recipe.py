"""The recipe: everything that determines a run, checked before anything runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic_core import PydanticCustomError

from polopt import catalogue, recipes
from polopt.algorithm import Algorithm
from polopt.config import Config, ConfigError, PlainMap, parse, plain_data
from polopt.experience import Support
from polopt.names import nearest
from polopt.policies.adapter import AdapterSpec
from polopt.policies.engine import NativeSpec
from polopt.policies.vllm import VLLMSpec
from polopt.setting_types import Unbounded
from polopt.training.cluster.episodes import ClusterExecutorSpec
from polopt.training.cluster.spec import ClusterSpec, check_ahead
from polopt.worlds.executors import InlineExecutorSpec, ScoringProcessExecutorSpec, ThreadExecutorSpec
from polopt.worlds.recipe import World, parse_world
from polopt.yaml_data import read_yaml, read_yaml_file, write_yaml

Positive = Annotated[int, pydantic.Field(ge=1, le=10**6)]
Count = Annotated[int, pydantic.Field(ge=0, le=10**6)]
Seed = Annotated[int, pydantic.Field(ge=0, lt=2**63)]
Momentum = Annotated[float, pydantic.Field(ge=0, lt=1)]
ENGINES = ("native", "vllm")
PLACES = ("processes", "here", "threads", "cluster")


def _named(value: Any, key: str, names: Sequence[str], sentence: str) -> Any:
    """Settings whose kind is value[key], the first of the names if they do not say."""
    if not isinstance(value, Mapping):
        return value
    kind = value.get(key, names[0])
    if kind not in names:
        hint = nearest(str(kind), names)
        raise PydanticCustomError(key, f"{sentence} {{kind}}{{hint}}", {"kind": repr(kind), "hint": hint})
    return {**value, key: kind}


class PolicySpec(Config):
    """The policy that is trained.

    model: a local folder, a GGUF file, a hub name, or package:NAME/FILE of an installed package. Without it, a new
        model is made from `config`.
    config: of a new model: fields of the `transformers` config of `config.model_type`; its tokenizer is made from the
        tasks' texts.
    dtype: of weights, gradients and the optimiser's memory.
    compute: of the arithmetic, None for the same; bfloat16 on float32 weights is for GPUs and large models: on a CPU
        models of 25 M parameters were slower with it, and one of 135 M, with bfloat16 instructions, 1.3 times as fast.
    checkpointing: compute each layer's activations again in the backward pass instead of keeping them.
    adapter: train a LoRA adapter and leave `model` as it is: settings of a new one, or a folder (or hub name) with one
        in PEFT's format to go on from. None trains the whole model.
    chat_template_kwargs: what the tokenizer's chat template is given beside the messages, as {enable_thinking: false};
        names that the template does not read are refused.
    """

    model: str | None = None
    config: PlainMap = pydantic.Field(default_factory=dict)
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    compute: Literal["float32", "bfloat16"] | None = None
    checkpointing: bool = False
    adapter: AdapterSpec | str | None = None
    chat_template_kwargs: dict[str, Any] = pydantic.Field(default_factory=dict)

    @pydantic.field_validator("chat_template_kwargs")
    @classmethod
    def _template_arguments(cls, value: dict[str, Any]) -> dict[str, Any]:
        loop = {"conversation", "messages", "tokenize", "add_generation_prompt", "continue_final_message"}
        if taken := value.keys() & loop:
            raise ValueError(f"{min(taken)} is set by the loop; leave it out")
        return value

    @pydantic.model_validator(mode="after")
    def _adapter_has_a_base(self) -> PolicySpec:
        if self.adapter is not None and self.model is None:
            raise ValueError(
                "an adapter is trained on a base that stays; set policy.model to its folder or hub name, or leave "
                "policy.adapter out"
            )
        return self


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
    """When a stage is done before its last step.

    metric: a name in metrics.jsonl, whose mean over the last `over` steps is looked at.
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
        """Whether these steps of the stage, in order, were enough.

        Raises:
            ConfigError: no step has logged the metric; the nearest one is named.
        """
        found = [record[self.metric] for record in records if self.metric in record]
        if not found and any("grad_norm" in record for record in records):  # some batches teach nothing
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
    rows: rollouts (or demonstrations) in one batch.
    group: rollouts per prompt, for methods that sample; None leaves it to the method.
    epochs: times that each batch is learned from.
    minibatches: parts of the batch with an optimiser step each, in every epoch.
    micro_rows: rows per forward pass, None for all; the gradient is the same.
    until: what ends the stage before its last step.
    tasks: of this stage, the recipe's if None; its evaluations are on its own held-out tasks.
    limit: most new tokens per answer in this stage, the recipe's if None.
    train: a regular expression; only parameters whose names it is found in learn.
    optimiser: of this stage; each stage begins with a new one.
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
    tasks: PlainMap | None = None
    limit: Positive | None = None
    train: str | None = None
    optimiser: OptimiserSpec = OptimiserSpec()

    @pydantic.field_validator("train")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{value!r:.60} is no regular expression: {error}") from None
        return value

    def algorithm(self, where: str) -> Algorithm:
        """The stage's sentence.

        Raises:
            ConfigError: no such method, setting or path; the nearest name is given.
        """
        try:
            algorithm = catalogue.sentence(self.method)
            if self.group is not None and "group" in algorithm.sampling.settings():
                algorithm = algorithm.but({"sampling.group": self.group})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}.method: {_short(error)}") from None
        try:
            algorithm = algorithm.but({str(path): value for path, value in self.but.items()})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{where}.but: {_short(error)}") from None
        group = getattr(algorithm.sampling, "group", 1)
        if self.rows % group:
            raise ConfigError(
                f"{where}.rows = {self.rows} must be a multiple of the group of {group} rollouts per prompt; "
                f"set {where}.group, or rows to {max(1, self.rows // group) * group}"
            )
        if self.minibatches > self.rows // group:
            raise ConfigError(
                f"{where}.minibatches = {self.minibatches}, and the batch has {self.rows // group} groups, which stay "
                f"whole; set it to {self.rows // group} or less"
            )
        return algorithm


class OtherSpec(Config):
    """Problems that are measured and not trained on.

    tasks: a world, whose held-out tasks they are.
    limit: most new tokens per answer, the recipe's if None.
    """

    tasks: PlainMap
    limit: Positive | None = None


class EvaluationSpec(Config):
    """How held-out accuracy is measured.

    problems: held-out problems at the beginning and end of the last stage.
    samples: answers per problem.
    k: which pass@k to report; pass@1 always is.
    every: steps of each stage between quick evaluations, 0 for none.
    quick: held-out problems of a quick evaluation.
    support: temperature, top-k and top-p of the answers.
    others: problems by name of which nothing is learned: what the policy can do beside its tasks. They are measured at
        the beginning and end of the last stage, too, and reported apart.
    """

    problems: Positive = 400
    samples: Positive = 1
    k: tuple[Positive, ...] = ()
    every: Count = 0
    quick: Positive = 100
    support: Support = Support()
    others: dict[str, OtherSpec] = pydantic.Field(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _enough_samples(self) -> EvaluationSpec:
        if self.k and max(self.k) > self.samples:
            raise ValueError(f"pass@{max(self.k)} needs samples >= {max(self.k)}, found {self.samples}")
        return self


class CheckpointSpec(Config):
    """When checkpoints are written, and which stay; `checkpoint: 20` is short for `{every: 20}`.

    every: steps between checkpoints; a stage's last step has one, too.
    keep: how many of the last ones stay.
    best: a held-out estimate, as pass@1: of the checkpoints that were evaluated on the last stage's held-out tasks, the
    one where it is highest stays, too. A step at which it rises is checkpointed whatever `every` is.
    """

    every: Positive = 20
    keep: Positive = 2
    best: str | None = None


class LoggingSpec(Config):
    """Where numbers go beside the run's own folder, and which rollouts are kept.

    report_to: trackers, any of tensorboard, wandb, trackio and mlflow; each needs its package.
    project: of the run in trackers that have projects or experiments.
    rollouts: the rollouts of every so many-th batch of each stage are written to rollouts.jsonl, 0 for none.
    """

    report_to: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = ()
    project: str = "polopt"
    rollouts: int = pydantic.Field(default=0, ge=0)

    @pydantic.field_validator("report_to", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class Recipe(Config):
    """A complete run.

    seed: of everything that is drawn at random.
    device: where the policy is, as cpu, cuda or cuda:1.
    threads: CPU threads, None for all cores. The result is reproducible for a given number of them.
    parallel: how the processes that `torchrun` starts share the learning: ddp, each with all of the weights, or fsdp,
        each with a piece of them. One process alone has all.
    policy: the model that is trained.
    tasks: what it is trained and evaluated on, a world's `kind` and settings.
    limit: most new tokens per answer.
    max_prompt_length: tasks with longer prompts, in tokens, are left out of training and evaluation, with a warning
        that counts them. None keeps all of them, and refuses a run in which one does not fit in the model's context.
    rollout: what draws the answers, in training and in evaluation: {engine: native}, or {engine: vllm} with the
        settings of `VLLMSpec`.
    cluster: how rollouts are dealt to the workers of a cluster, None where they are drawn in this process.
    episodes: where worlds and verifiers run: {where: processes} with the settings of `ScoringProcessExecutorSpec`,
    {where: here},
        or, where they wait, {where: threads} with the settings of `ThreadExecutorSpec`, or {where: cluster} with those
        of `ClusterExecutorSpec`.
    stages: stretches of training by name, in order; the last one is the main one, whose method `--method` sets.
    evaluation: how held-out accuracy is measured.
    checkpoint: when checkpoints are written, and which stay; a number is the steps between them.
    logging: where numbers go beside the run's folder, and which rollouts are kept.
    """

    seed: Seed = 0
    device: str = "cpu"
    threads: Annotated[int, pydantic.Field(ge=1, le=1024)] | None = None
    parallel: Literal["ddp", "fsdp"] = "ddp"
    policy: PolicySpec = PolicySpec()
    tasks: PlainMap
    limit: Positive = 64
    max_prompt_length: Positive | None = None
    rollout: Annotated[NativeSpec | VLLMSpec, pydantic.Field(discriminator="engine")] = NativeSpec()
    cluster: ClusterSpec | None = None
    episodes: Annotated[
        ScoringProcessExecutorSpec | InlineExecutorSpec | ThreadExecutorSpec | ClusterExecutorSpec,
        pydantic.Field(discriminator="where"),
    ] = ScoringProcessExecutorSpec()
    stages: dict[str, StageSpec]
    evaluation: EvaluationSpec = EvaluationSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    logging: LoggingSpec = LoggingSpec()

    @pydantic.field_validator("checkpoint", mode="before")
    @classmethod
    def _steps_between(cls, value: Any) -> Any:
        return value if isinstance(value, (Mapping, CheckpointSpec)) else {"every": value}

    @pydantic.field_validator("rollout", mode="before")
    @classmethod
    def _known_engine(cls, value: Any) -> Any:
        return _named(value, "engine", ENGINES, "there is no engine")

    @pydantic.field_validator("episodes", mode="before")
    @classmethod
    def _known_place(cls, value: Any) -> Any:
        return _named(value, "where", PLACES, "episodes are not played")

    @pydantic.model_validator(mode="after")
    def _some_stage(self) -> Recipe:
        if not self.stages:
            raise ValueError("a recipe needs at least one stage, found none")
        for name in self.stages:  # files are named after them
            if not re.fullmatch(r"\w[\w -]{0,59}", name):
                raise ValueError(f"stage {name!r:.70} needs a plain name, of at most 60 letters, digits, _ and -")
        return self

    @pydantic.model_validator(mode="after")
    def _best_is_evaluated(self) -> Recipe:
        best, known = self.checkpoint.best, [f"pass@{k}" for k in dict.fromkeys((1, *self.evaluation.k))]
        if best is not None and best not in known:
            raise ValueError(f"checkpoint.best = {best!r} is not evaluated; give {' or '.join(known)}")
        if best is not None and not self.evaluation.every:
            raise ValueError(
                f"checkpoint.best = {best!r} needs evaluations during training, and evaluation.every is 0; set it to "
                "the steps between them"
            )
        return self

    def to_yaml(self) -> str:
        """The complete recipe, defaults included; `of_yaml` reads it back to an equal one.

        Raises:
            ConfigError: a setting that YAML cannot hold.
        """
        try:
            return write_yaml(plain_data(self.model_dump()))
        except ValueError as error:
            raise ConfigError(f"recipe: {error}") from None

    @classmethod
    def of_yaml(cls, text: str, name: str = "recipe") -> Recipe:
        """Inverse of `to_yaml`.

        Raises:
            ConfigError, YamlError: it is no complete recipe.
        """
        return parse(cls, read_yaml(text, name), name)

    def seed_of(self, *purpose: object) -> int:
        """A seed for one purpose, so that no two draw the same numbers; the same in every process."""
        text = "/".join(map(str, (self.seed, *purpose)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")

    def tasks_of(self, stage: str) -> dict[str, Any]:
        """The world of a stage."""
        own = self.stages[stage].tasks
        return self.tasks if own is None else own

    def limit_of(self, stage: str) -> int:
        """The most new tokens per answer in a stage."""
        return self.stages[stage].limit or self.limit

    def limit_of_other(self, name: str) -> int:
        """The most new tokens per answer to problems that are not trained on."""
        return self.evaluation.others[name].limit or self.limit_of(self.main_stage)

    @property
    def main_stage(self) -> str:
        """The last stage: the one whose method a person names, and whose held-out accuracy is the result."""
        return list(self.stages)[-1]

    def evaluations(self, stage: str) -> dict[int, tuple[str, int]]:
        """When a stage is evaluated: after how many of its steps -> ("before", "during" or "after", problems)."""
        spec, steps = self.evaluation, self.stages[stage].steps
        planned = dict.fromkeys(range(spec.every, steps + 1, spec.every), ("during", spec.quick)) if spec.every else {}
        if stage == self.main_stage:
            planned |= {0: ("before", spec.problems), steps: ("after", spec.problems)}
        return planned

    @property
    def algorithms(self) -> dict[str, Algorithm]:
        """Each stage's algorithm, newly built: what one run's baselines have learnt is not the next run's.

        Raises:
            ConfigError: one cannot be built, or the engine of rollouts cannot sample for it.
        """
        found = {name: stage.algorithm(f"stages.{name}") for name, stage in self.stages.items()}
        for name, algorithm in found.items():
            if self.cluster is not None:
                check_ahead(name, algorithm, self.cluster)
        self.rollout.check(found, dtype=self.policy.dtype, device=self.device, evaluation=self.evaluation.support)
        return found


def load(
    source: Path | str | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    method: str | dict[str, Any] | None = None,
) -> Recipe:
    """A recipe from a YAML file, from one of polopt's own by name, or the main one; with dotted changes.

    method: of the last stage. The recipe's settings of that method stay if it names the same one; another
    method starts from its own defaults.

    Raises:
        ConfigError: no such file or recipe, an unknown or mistyped key (the nearest one is named), or a
            method that does not exist. Nothing is generated or trained before all of it is checked.
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
    recipe = parse(Recipe, data, path.name)
    worlds = {"tasks": recipe.tasks, **{f"stages.{n}.tasks": s.tasks for n, s in recipe.stages.items() if s.tasks}}
    worlds |= {f"evaluation.others.{name}.tasks": other.tasks for name, other in recipe.evaluation.others.items()}
    for key, world in worlds.items():
        try:
            _check_threads(recipe, parse_world(world, f"{path.name}.{key}"), key)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"{path.name}.{key}: {error}") from None
    _ = recipe.algorithms
    return recipe


def _check_threads(recipe: Recipe, world: World, key: str) -> None:
    """Refuse threads for what never waits: it holds the interpreter's lock, so that no time limit of a thread holds."""
    name = world.computing()
    if isinstance(recipe.episodes, ThreadExecutorSpec) and name is not None:
        raise ConfigError(
            f"episodes.where = 'threads' is for what waits, and {name} ({key}) computes: leave episodes out, or set "
            "where: processes, which limits its time and memory"
        )


def _find(source: Path | str) -> Path:
    path = Path(source)
    if path.is_file():
        return path
    if str(source) in recipes.names():
        return recipes.path(str(source))
    hint = nearest(str(source), recipes.names())
    raise ConfigError(f"{source} is neither a file nor one of polopt's recipes{hint}")


def _short(error: Exception) -> str:
    """An error's message on one line; of a long one, which quotes what was given, the middle is left out."""
    message = " ".join(str(error).split())
    return message if len(message) <= 320 else f"{message[:200]} … {message[-100:]}"


def name_of_method(method: str | Mapping[str, Any]) -> str:
    """The name in a stage's `method`, which may come with settings."""
    return method if isinstance(method, str) else str(method.get("name", "?"))


def _set_method(data: dict[str, Any], method: str | dict[str, Any]) -> None:
    stages = data.get("stages")
    if not isinstance(stages, dict) or not stages or not isinstance(last := list(stages.values())[-1], dict):
        return  # no stage to change: `parse` says so
    if isinstance(method, dict) or method != name_of_method(last.get("method", "")):
        last["method"] = method


def set_by_path(data: Any, key: str, value: Any) -> None:
    """data[a][b][c] = value for the key a.b.c. Maps on the way are made; what they may hold is checked later."""
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
