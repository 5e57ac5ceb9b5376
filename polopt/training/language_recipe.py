"""The recipe of a language run: a causal language model, tasks, and where its rollouts are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from polopt.algorithm import Algorithm
from polopt.config import Config, ConfigError, PlainMap
from polopt.names import nearest
from polopt.part_names import name_of
from polopt.policies.adapter import AdapterSpec
from polopt.policies.engine import NativeSpec
from polopt.policies.vllm import VLLMSpec
from polopt.support import Support
from polopt.training.cluster.episodes import ClusterExecutorSpec
from polopt.training.cluster.spec import ClusterSpec, check_ahead
from polopt.training.estimates import LABELS, PREFERENCES
from polopt.training.recipe import Recipe
from polopt.training.specs import EvaluationSpec, Positive, StageSpec
from polopt.training.stage_data import StageData
from polopt.worlds.executors import InlineExecutorSpec, ScoringProcessExecutorSpec, ThreadExecutorSpec
from polopt.worlds.recipe import KINDS, World, parse_world

ENGINES = ("native", "vllm")
PLACES = ("processes", "here", "threads", "cluster")


def _named(value: Any, key: str, names: Sequence[str], sentence: str) -> Any:
    """Returns settings with their kind under `key`, the first of the names if none is given."""
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
    words: of that tokenizer, the share of a kind's texts in which a word is one token; other words are read letter by
        letter.
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
    words: float = pydantic.Field(default=0.08, gt=0, le=1)
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    compute: Literal["float32", "bfloat16"] | None = None
    checkpointing: bool = False
    adapter: AdapterSpec | str | None = None
    chat_template_kwargs: dict[str, Any] = pydantic.Field(default_factory=dict)

    @pydantic.field_validator("chat_template_kwargs")
    @classmethod
    def _template_arguments(cls, value: dict[str, Any]) -> dict[str, Any]:
        loop = {"conversation", "messages", "tokenize", "add_generation_prompt", "continue_final_message"}
        if reserved := value.keys() & loop:
            raise ValueError(f"{min(reserved)} is set by the loop; leave it out")
        return value

    @pydantic.model_validator(mode="after")
    def _adapter_has_a_base(self) -> PolicySpec:
        if self.adapter is not None and self.model is None:
            raise ValueError(
                "an adapter is trained on a base that stays; set policy.model to its folder or hub name, or leave "
                "policy.adapter out"
            )
        return self


class LanguageStageSpec(StageSpec):
    """A stage whose rows are texts.

    tasks: of this stage, the recipe's if None; its evaluations are on its own held-out tasks.
    limit: most new tokens per answer in this stage, the recipe's if None.
    writes: a name; the rollouts that the stage learns from are written to written-NAME.jsonl in the run's folder.
    data: rollouts of an earlier stage that are imitated or compared, instead of training tasks.
    """

    tasks: PlainMap | None = None
    limit: Positive | None = None
    writes: Annotated[str, pydantic.Field(pattern=r"^[\w-]{1,60}$")] | None = None
    data: StageData | None = None

    unused: ClassVar[tuple[str, ...]] = (*StageSpec.unused, "writes", "data")


class OtherSpec(Config):
    """Problems that are measured and not trained on.

    tasks: a world, whose held-out tasks they are.
    limit: most new tokens per answer, the recipe's if None.
    """

    tasks: PlainMap
    limit: Positive | None = None


class LanguageEvaluationSpec(EvaluationSpec):
    """The measurement of held-out accuracy.

    samples: answers per problem.
    k: which pass@k to report; pass@1 always is.
    support: temperature, top-k and top-p of the answers.
    others: problems by name of which nothing is learned, as a measure of abilities beside the tasks. They are measured
        at the beginning and end of the last stage, too, and reported apart.
    """

    samples: Positive = 1
    k: tuple[Positive, ...] = ()
    support: Support = Support()
    others: dict[str, OtherSpec] = pydantic.Field(default_factory=dict)

    @property
    def estimates(self) -> tuple[str, ...]:
        return tuple(f"pass@{k}" for k in dict.fromkeys((1, *self.k)))

    @pydantic.model_validator(mode="after")
    def _enough_samples(self) -> LanguageEvaluationSpec:
        if self.k and max(self.k) > self.samples:
            raise ValueError(f"pass@{max(self.k)} needs samples >= {max(self.k)}, found {self.samples}")
        return self


class LanguageRecipe(Recipe):
    """A complete run of a language policy.

    parallel: how the processes that `torchrun` starts share the learning: ddp, each with all of the weights, or fsdp,
        each with a piece of them. One process alone has all.
    policy: the model that is trained.
    tasks: what it is trained and evaluated on, a world's `kind` and settings.
    limit: most new tokens per answer.
    max_prompt_length: tasks with longer prompts, in tokens, are left out of training and evaluation, with a warning
        that counts them. None keeps all of them, and refuses a run in which one does not fit in the model's context.
    rollout: the sampler of the answers, in training and in evaluation: {engine: native}, or {engine: vllm} with the
        settings of `VLLMSpec`.
    cluster: the rollout workers on a cluster, None where rollouts are drawn in this process.
    episodes: where worlds and verifiers run: {where: processes} with the settings of `ScoringProcessExecutorSpec`,
        {where: here}, or, where they wait, {where: threads} with the settings of `ThreadExecutorSpec`, or {where:
        cluster} with those of `ClusterExecutorSpec`.
    """

    kind: Literal["language"] = "language"
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
    stages: dict[str, LanguageStageSpec]
    evaluation: LanguageEvaluationSpec = LanguageEvaluationSpec()

    @pydantic.field_validator("rollout", mode="before")
    @classmethod
    def _known_engine(cls, value: Any) -> Any:
        return _named(value, "engine", ENGINES, "there is no engine")

    @pydantic.field_validator("episodes", mode="before")
    @classmethod
    def _known_place(cls, value: Any) -> Any:
        return _named(value, "where", PLACES, "episodes are not played")

    @pydantic.model_validator(mode="after")
    def _data_is_written(self) -> LanguageRecipe:
        names = list(self.stages)
        written = [stage.writes for stage in self.stages.values() if stage.writes is not None]
        if len(written) > len(set(written)):
            raise ValueError(f"two stages write to {max(written, key=written.count)!r}; give each another name")
        for i, (name, stage) in enumerate(self.stages.items()):
            if stage.data is None:
                continue
            known = [other for other in names[:i] if self.stages[other].writes is not None]
            if stage.data.stage not in known:
                there = f"one of {', '.join(known)}" if known else "an earlier stage, and set its writes: NAME"
                raise ValueError(f"stages.{name}.data.stage = {stage.data.stage!r:.70} writes nothing; give {there}")
            if self.cluster is not None:
                raise ValueError(f"stages.{name}.data: workers of a cluster do not see the run's folder; leave one out")
        return self

    def writes(self, stage: str) -> str | None:
        return self.stages[stage].writes

    def reads(self, stage: str) -> str | None:
        data = self.stages[stage].data
        return None if data is None else self.stages[data.stage].writes

    def tasks_of(self, stage: str) -> dict[str, Any]:
        """Returns the settings of a stage's world."""
        own = self.stages[stage].tasks
        return self.tasks if own is None else own

    @property
    def estimates(self) -> tuple[str, ...]:
        """Returns the names as `Recipe.estimates`: those of answers, of preferences where nothing verifies answers, and
        all for a user's own world, which may be of any kind."""
        kind = str(self.tasks_of(self.main_stage).get("kind"))
        if ":" in kind:
            return self.evaluation.estimates + PREFERENCES + LABELS
        known = KINDS[kind].known if kind in KINDS else "verified"
        return {"verified": self.evaluation.estimates, "pairs": PREFERENCES, "labels": LABELS}[known]

    def limit_of(self, stage: str) -> int:
        """Returns the most new tokens per answer in a stage."""
        return self.stages[stage].limit or self.limit

    def limit_of_other(self, name: str) -> int:
        """Returns the most new tokens per answer to problems that are not trained on."""
        return self.evaluation.others[name].limit or self.limit_of(self.main_stage)

    @property
    def algorithms(self) -> dict[str, Algorithm]:
        """Builds the algorithms as `Recipe.algorithms`, and checks that the engine and the cluster fit them.

        Raises:
            ConfigError: one cannot be built, the engine of rollouts cannot sample for it, or rows of older weights
                would bias it.
        """
        found = super().algorithms
        for name, algorithm in found.items():
            if self.cluster is not None:
                check_ahead(name, algorithm, self.cluster)
            self._check_other_policies(name, algorithm)
        self.rollout.check(found, dtype=self.policy.dtype, device=self.device, evaluation=self.evaluation.support)
        return found

    def _check_other_policies(self, stage: str, algorithm: Algorithm) -> None:
        """Raises an error where rollouts of another policy than the learner are needed and cannot be sampled.

        Raises:
            ConfigError: naming the part, the setting and the fix.
        """
        elsewhere = {"cluster": self.cluster is not None, "parallel: fsdp": self.parallel == "fsdp"}
        for part in algorithm.parts():
            if {"mixtures", "weights"} & part.source_capabilities:
                for setting in (name for name, there in elsewhere.items() if there):
                    raise ConfigError(
                        f"stages.{stage}: {name_of(type(part))} samples from another policy than the learner, which "
                        f"must lie whole in this process, and the recipe has {setting}; leave that out, or take self-"
                        f"play, as stages.{stage}.but: {{sampling.mix.0.policy: {{part: sampling.OpponentPolicy}}}}"
                    )

    def require_installed(self) -> None:
        self.rollout.require()
        super().require_installed()

    def on_cluster(self, address: str | None) -> Self:
        if address is None or self.cluster is not None:
            return self
        return self.model_copy(update={"cluster": ClusterSpec()})

    def check(self, name: str) -> None:
        worlds = {"tasks": self.tasks, **{f"stages.{n}.tasks": s.tasks for n, s in self.stages.items() if s.tasks}}
        worlds |= {
            f"evaluation.others.{other_name}.tasks": other.tasks for other_name, other in self.evaluation.others.items()
        }
        for key, world in worlds.items():
            try:
                _check_threads(self, parse_world(world, f"{name}.{key}"), key)
            except ConfigError:
                raise
            except ValueError as error:
                raise ConfigError(f"{name}.{key}: {error}") from None
        super().check(name)


def _check_threads(recipe: LanguageRecipe, world: World, key: str) -> None:
    """Refuses threads for worlds that compute and never wait: they hold the interpreter's lock, so that no time limit
    of a thread holds.

    Raises:
        ConfigError: naming the setting and the fix.
    """
    name = world.computing()
    if isinstance(recipe.episodes, ThreadExecutorSpec) and name is not None:
        raise ConfigError(
            f"episodes.where = 'threads' is for what waits, and {name} ({key}) computes: leave episodes out, or set "
            "where: processes, which limits its time and memory"
        )
