"""The training loop: stage after stage, step after step, from a folder that survives any interruption.

The loop is independent of tokens, environments and methods: a `Domain` provides policy and experience, an algorithm the
rule of learning.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from polopt.errors import PoloptWarning
from polopt.experience import Experience
from polopt.heap import freed_memory_kept
from polopt.threads import giving_way
from polopt.training.batches import BatchIterator
from polopt.training.checkpoints import Checkpoint
from polopt.training.domain import Domain, Score
from polopt.training.measure import zero_metric_sentences
from polopt.training.process_group import ProcessGroup
from polopt.training.recipe import Recipe
from polopt.training.reference_policy import load_parameters, parameters_of, wholly
from polopt.training.run import Run, written_log
from polopt.training.stage_learning import StageLearning, failures
from polopt.training.trackers import tracking
from polopt.training.weight_sources import WeightSources

# After so many batches of a stage the loop warns of parts without effect.
EARLY = 3


class Watcher(Protocol):
    """An observer that is called while a run trains: a progress display, a tracker. An exception that it raises ends
    the run.

    With several processes it is called in each of them.
    """

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        """Called once, before the first step. about: "parameters"; "step" and "seconds" of the earlier part of a
        resumed run, 0 for a new one."""

    def step(self, record: Mapping[str, Any]) -> None:
        """Called after each optimiser step with its record, as written to metrics.jsonl."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Called after each evaluation with its record, as written to evaluations.jsonl."""


class Training:
    """A run of a recipe. `run()` trains to the end; stages, steps and state are all that it needs to resume.

    domain: the policy and its world. team: the processes that learn together, this one alone if None.

    On CPU the result is a function of the recipe, and of the size of the team, alone: a run that is killed at any
    instant and resumed ends with bit-identical weights, metrics (clock times aside) and task order. This holds for the
    native engine; another engine may round differently from one process to the next.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        domain: Domain,
        watchers: tuple[Watcher, ...] = (),
        team: ProcessGroup | None = None,
    ) -> None:
        self.recipe, self.run_folder, self.domain, self.watchers = recipe, run, domain, watchers
        self.team = ProcessGroup() if team is None else team
        self.shuffling = torch.Generator().manual_seed(recipe.seed_of("shuffling"))
        self.weights = WeightSources(recipe, run, domain, self.team)
        self.global_step, self.seconds = 0, 0.0
        self._clock = time.perf_counter()

    def run(self, *, with_logs: bool = True) -> Run:
        """Trains from the last checkpoint, or from the start, to the end. with_logs: as in `Run.restore`.

        Raises:
            RunError: another process trains in the folder, or none of its checkpoints is whole.
        """
        with self.run_folder.exclusive():
            restored = self.team.main_first(lambda: self.run_folder.restore(with_logs=with_logs))
            with tracking(self.recipe, self.run_folder.folder) if self.team.is_main else nullcontext(()) as trackers:
                self.watchers += trackers
                with giving_way(), freed_memory_kept():
                    self._run(restored)
        self.team.barrier()
        return self.run_folder

    def _run(self, restored: Checkpoint | None) -> None:
        tensors, state = restored.tensors if restored else {}, restored.state if restored else {}
        self.domain.use_folder(self.run_folder.folder)
        places = [(number, name) for number in range(1, self.recipe.rounds + 1) for name in self.recipe.stages]
        if restored:
            self._load(tensors, state)
            self.domain.sync_weights(self.global_step)
        else:
            self.weights.begin()
        about = self.domain.about(self.run_folder.about)
        for watcher in self.watchers:
            watcher.begin(self.recipe, {**about, "step": self.global_step, "seconds": self.seconds})
        self.run_folder.describe(about)
        begun = (state.get("round", 1), state["stage"]) if restored else places[0]
        for place in places[places.index(begun) :]:
            self.weights.round, name = place
            first = state["stage_step"] if restored and place == begun else 0
            self._stage(name, first, tensors if first else {}, state if first else {})
        if self.team.is_main:
            self.domain.save(self.run_folder.folder)
        self.run_folder.describe({"finished": True, "seconds": self._elapsed()})

    def _stage(self, name: str, first: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Trains one stage of this round, from step `first` on."""
        stage, number = self.recipe.stages[name], self.weights.round
        if number > 1:  # the algorithm's state of the last round is dropped
            self.domain.algorithms[name] = stage.algorithm(f"stages.{name}")
        algorithm = self.domain.algorithms[name].to(self.recipe.device)
        if not first and self.weights.start(name):
            self.domain.sync_weights(self.global_step)
        if (written := self.recipe.reads(name)) is not None:
            self.team.barrier()  # the main process has written them
            self.domain.learn_from(name, self.run_folder.read(written_log(written)))
        source = self.domain.source(name, round=number)
        learning = StageLearning(
            self.domain,
            algorithm,
            stage,
            source,
            self.shuffling,
            self.team,
            self._log_rollouts,
            self.weights.policies(name),
            functools.partial(self._write_rollouts, name),
        )
        evaluations = self.recipe.evaluations(name)
        if first:
            learning.resume(self.run_folder, self.weights.label(name), tensors)
            source.load(state)
        else:
            learning.begin(self.run_folder, self.weights.label(name))
            learning.learner.networks.begin(self.weights.networks(name))
            if 0 in evaluations:
                self._evaluate(name, *evaluations[0])
        records = self._metrics(name) if first and stage.until else []
        # Versions of the weights: one for each batch that was learned from, and one for each start.
        base = self.global_step - first + self.recipe.starts(name, number)
        with self.domain.batches(
            source, algorithm, base=base, first=first, steps=stage.steps, tensors=tensors
        ) as batches:
            for step in range(first, stage.steps):
                record = self._step(name, step, learning, batches)
                done = step + 1
                if done == min(EARLY, stage.steps):
                    sentences = zero_metric_sentences(algorithm, self._metrics(name))
                    warn((f"stages.{name}: {sentence}" for sentence in sentences), self.team)
                if stage.until is not None:
                    records.append(record)
                    done = stage.steps if stage.until.met(records) else done  # the stage ends here
                if done in evaluations:
                    self._evaluate(name, *evaluations[done])
                if done == stage.steps:
                    self.weights.end(name)
                    self.weights.end_networks(name, learning.learner.networks.weights())
                if done == stage.steps or done % self.recipe.checkpoint.every == 0 or self._is_best(name, done):
                    self._save(name, done, learning, batches)
                if done == stage.steps:
                    break

    def _step(self, name: str, step: int, learning: StageLearning, batches: BatchIterator) -> dict[str, Any]:
        """Learns from the next batch. Returns the step's metrics."""
        batch = batches.batch(step)
        record = learning.learn(batch, step)
        if "tokens" in record:  # there was something to learn from
            learned = time.perf_counter()
            self.domain.sync_weights(self.global_step + 1)
            now = time.perf_counter()
            record["seconds/learn"] += now - learned
            record |= {"seconds": self._elapsed(), "tokens_per_second": record["tokens"] / (now - batch.begun)}
        record |= batches.record(batch, step)
        batches.learned(step)
        self._log({"step": self.global_step, **self._place(name), "stage_step": step, **record})
        self.global_step += 1
        return record

    def _metrics(self, stage: str) -> list[dict[str, Any]]:
        """Returns the records of a stage's steps in this round so far."""
        place = self._place(stage).items()
        return [record for record in self.run_folder.read("metrics") if place <= record.items()]

    def _place(self, stage: str) -> dict[str, Any]:
        """Returns a stage, and the round if there are several, as records hold them."""
        return {"stage": stage} | ({"round": self.weights.round} if self.recipe.rounds > 1 else {})

    def _log(self, record: dict[str, Any]) -> None:
        parts = self.team.gather(failures(record))  # each process counts its own
        record |= {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}
        self.run_folder.log("metrics", record)
        for watcher in self.watchers:
            watcher.step(record)

    def _log_rollouts(self, experience: Experience, step: int) -> None:
        every = self.recipe.logging.rollouts
        if every and step % every == 0 and self.team.is_main:
            for row in self.domain.rollouts(experience):
                self.run_folder.log("rollouts", {"step": self.global_step, **row})

    def _write_rollouts(self, stage: str, experience: Experience, step: int) -> None:
        name = self.recipe.writes(stage)
        if name is not None and self.team.is_main:
            for row in self.domain.written(experience):
                self.run_folder.log(written_log(name), {"step": self.global_step, **self._place(stage), **row})

    def _evaluate(self, stage: str, when: str, problems: int) -> None:
        record = {"step": self.global_step, **self._place(stage), "when": when}
        score = self.domain.score(stage, problems, self.global_step)
        record |= {"seconds": self._elapsed()}
        self.run_folder.log("evaluations", {**record, **score.record()})
        if when != "during":
            self._log_samples(score, when)
            for name, other in self.domain.other_scores(problems, self.global_step):
                self.run_folder.log("others", {**record, "name": name, **other.record()})
                self._log_samples(other, when, other=name)
        for watcher in self.watchers:
            watcher.evaluation({**record, **score.record()})

    def _log_samples(self, score: Score, when: str, **of: str) -> None:
        for row in self.domain.samples(score):
            self.run_folder.log("samples", {"step": self.global_step, "when": when, **of, **row})

    def _save(self, stage: str, stage_step: int, learning: StageLearning, batches: BatchIterator) -> None:
        tensors = {f"policy.{k}": v for k, v in parameters_of(self.domain.learned).items()}
        tensors = wholly(tensors | learning.state() | batches.state())
        tensors |= self.domain.state() | {"rng.shuffling": self.shuffling.get_state()}
        state = {**self._place(stage), "stage_step": stage_step}
        state |= {**learning.source.state(), "seconds": self._elapsed()}
        needed = self.weights.needed(stage) if self.recipe.rounds > 1 else None
        how: dict[str, Any] = {"keep": self.recipe.checkpoint.keep, "best": self._best, "needed": needed}
        self.run_folder.save(self.global_step, tensors, state, **how)

    def _load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        load_parameters(self.domain.learned, {k.removeprefix("policy."): v for k, v in tensors.items()})
        self.domain.load(tensors)
        self.shuffling.set_state(tensors["rng.shuffling"])
        self.global_step, self.seconds = state["step"], state["seconds"]

    @property
    def _best(self) -> tuple[str, str] | None:
        """Returns the estimate, and the stage whose evaluations hold it, by which a checkpoint is kept; None for no
        such."""
        metric = self.recipe.checkpoint.best
        return None if metric is None else (metric, self.recipe.main_stage)

    def _is_best(self, stage: str, done: int) -> bool:
        """Returns whether the evaluation after so many steps of a stage was better than that of every checkpoint."""
        best = self._best
        if best is None or stage != self.recipe.main_stage or done not in self.recipe.evaluations(stage):
            return False

        def better() -> bool:
            found, last = self.run_folder.best(*best), self.run_folder.last("evaluations")
            return found is None or last is None or last[best[0]]["estimate"] > found[1]

        return self.team.broadcast_from_main(better)  # its log is complete

    def _elapsed(self) -> float:
        """Returns the seconds of training, those before a resume included."""
        return self.seconds + time.perf_counter() - self._clock


def warn(sentences: Iterable[str], team: ProcessGroup) -> None:
    """Warns with each sentence, in the main process alone."""
    for sentence in sentences if team.is_main else ():
        warnings.warn(sentence, PoloptWarning, stacklevel=3)
