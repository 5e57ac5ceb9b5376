"""The interface between the training loop and one kind of policy and world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.capabilities import Capabilities
from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.outputs import output_of
from polopt.part_names import name_of
from polopt.training.batches import BatchIterator, StageSource
from polopt.training.learner import Learner
from polopt.training.specs import StageSpec
from polopt.updates import NaturalGradient


def check_algorithm(stage: str, algorithm: Algorithm, capabilities: Capabilities) -> None:
    """Refuses a stage's algorithm that the loop cannot provide for, before anything is made for it.

    Raises:
        ConfigError: naming the stage, the part, what it needs and the fix.
    """
    for sentence in capabilities.refusals(algorithm):
        raise ConfigError(f"stages.{stage}: {sentence}")


def check_update(stage: str, spec: StageSpec, algorithm: Algorithm, processes: int) -> None:
    """Refuses a stage whose update rule steps on whole batches, if something else divides them.

    Raises:
        ConfigError: naming the stage, the setting and the fix.
    """
    objective, rule = algorithm.objective, algorithm.update
    if "batch" not in rule.loop_capabilities:
        return
    name, where = name_of(type(rule)), f"stages.{stage}"
    if processes > 1:
        raise ConfigError(f"{where}: {name} steps on whole batches in one process, and torchrun started {processes}")
    if spec.micro_rows is not None and objective.required_full_batch_outputs:
        raise ConfigError(
            f"{where}.micro_rows: {name} evaluates the loss at several steps, and it needs statistics of the whole "
            "batch; leave micro_rows out"
        )
    if isinstance(rule, NaturalGradient) and rule.after_minibatches and "value" in objective.required_outputs:
        raise ConfigError(
            f"{where}: {name} steps after the minibatches, from which the policy's own critic does not learn; set "
            "update.after_minibatches to false, or take an objective without ValueLoss and a critic among `networks`"
        )
    outputs = [output for name in objective.required_outputs if (output := output_of(name)) is not None]
    if any(output.proposal is not None and output.proposal.of != "every" for output in outputs):
        raise ConfigError(
            f"{where}: {name} needs a loss that is a function of the parameters, and this one samples actions; set the "
            "stage's but: {update: {part: updates.AdamW}}"
        )


class Score(Protocol):
    """The result of a policy's evaluation on held-out problems."""

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl."""
        ...


class Domain(Protocol):
    """A kind of policy and world: its policy, its sources of experience, its fields, its held-out score.

    The loop (`polopt.training.loop`) handles stages, steps, checkpoints and records; the domain does the rest. `policy`
    samples and `learned` learns; they are one module unless the learned weights lie in pieces. `algorithms` holds the
    algorithm of each stage. `capabilities` is what such a loop provides to them; an algorithm that needs more is
    refused when the domain is made (`check_algorithm`).
    """

    capabilities: Capabilities

    policy: Any
    learned: Any
    algorithms: dict[str, Algorithm]

    def preflight(self) -> None:
        """Checks what a new run would be trained on, before anything is spent.

        Raises:
            UserError: naming what is wrong and the fix.
        """
        ...

    def try_worlds(self) -> None:
        """Plays every set of tasks once.

        Raises:
            UserError: a world breaks its protocol, or its own code raises.
        """
        ...

    def use_folder(self, folder: Path) -> None:
        """Keeps what is too large for checkpoints in the run's folder, from now on."""
        ...

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Describes the policy for the run's folder. known: the description that the folder holds so far.

        Raises:
            RunError: the policy is not the one that the run began with.
        """
        ...

    def weights_of(self, run: str, where: str) -> dict[str, Tensor]:
        """Returns the parameters of a finished run's policy, by their names in this one. where: the setting.

        Raises:
            ConfigError: there is no such run, or its policy is of another architecture.
        """
        ...

    def model_policy(self, model: str, where: str) -> Any:
        """Returns a frozen policy made from a model in the Hugging Face format. where: the setting.

        Raises:
            ConfigError: there is none, or it does not decide among the same choices.
        """
        ...

    def written(self, experience: Experience) -> Iterator[dict[str, Any]]:
        """Yields each rollout of a batch as a line for later stages."""
        ...

    def learn_from(self, stage: str, records: list[dict[str, Any]]) -> None:
        """Makes the training tasks of a stage from what an earlier one has written.

        Raises:
            ConfigError: there is nothing to learn from.
        """
        ...

    def source(self, stage: str, *, round: int = 1) -> StageSource:
        """Returns the source of a stage's experience, whose order differs from round to round."""
        ...

    def batches(
        self, source: Any, algorithm: Algorithm, *, base: int, first: int, steps: int, tensors: Mapping[str, Tensor]
    ) -> AbstractContextManager[BatchIterator]:
        """Opens the batches `first` to steps - 1 of a stage before which `base` batches were learned from. tensors: of
        the checkpoint that the stage goes on from, if it does."""
        ...

    def provide(self, experience: Experience, fields: frozenset[str], source: Any, learner: Learner) -> Experience:
        """Computes those of the fields that are specific to this kind of world or policy."""
        ...

    def describe(self, experience: Experience) -> dict[str, Any]:
        """Returns the metrics of a batch after credit."""
        ...

    def rollouts(self, experience: Experience) -> Iterator[dict[str, Any]]:
        """Yields each row of a credited batch as rollouts.jsonl holds it."""
        ...

    def score(self, stage: str, problems: int, step: int) -> Score:
        """Measures the policy on a stage's held-out problems, without any effect on training."""
        ...

    def other_scores(self, problems: int, step: int) -> Iterator[tuple[str, Score]]:
        """Yields the policy's score on each further set of held-out problems, by its name."""
        ...

    def samples(self, score: Any) -> Iterator[dict[str, Any]]:
        """Yields some of the episodes behind a score as samples.jsonl holds them."""
        ...

    def sync_weights(self, version: int) -> None:
        """Copies the learned weights to the policy's samplers. version: the number of batches that the run has learned
        from."""
        ...

    def save(self, folder: Path) -> None:
        """Writes the trained policy into a run's folder."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Returns what a checkpoint must hold in addition to the policy's weights, by name."""
        ...

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        ...
