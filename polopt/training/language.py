"""The language loop: sample, reward, credit, update, measure; stage after stage, from a folder that survives."""

from __future__ import annotations

import functools
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.errors import PoloptWarning, RunError
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.heap import freed_memory_kept
from polopt.policies.adapter import fingerprint, is_adapted, save_adapter
from polopt.policies.factory import new_policy
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import check_policy, load_policy, warn_of_precision
from polopt.policies.sharded import ShardedPolicy
from polopt.teachers import TAUGHT
from polopt.threads import giving_way
from polopt.training import origin
from polopt.training import recipe as recipes
from polopt.training.auxiliary_models import Beside
from polopt.training.batches import (
    BatchIterator,
    BroadcastBatches,
    RolloutBatch,
    SynchronousBatches,
    gather,
    meter,
    since,
)
from polopt.training.checkpoints import Checkpoint
from polopt.training.cluster.connect import crew_of, for_cluster
from polopt.training.cluster.pool_source import ClusterSource
from polopt.training.cluster.prefetch import Ahead
from polopt.training.cluster.worker_pool import Crew
from polopt.training.episode_player import EpisodePlayer
from polopt.training.evaluate import HeldOutScore, evaluate
from polopt.training.extension import extended, same
from polopt.training.group_source import GroupSource
from polopt.training.learner import Learner, learning, optimiser_of
from polopt.training.measure import describe, metrics_of, rollout_records, show, zeros_meant
from polopt.training.planning import check_memory
from polopt.training.preflight import check_tasks
from polopt.training.preflight_models import fitted_others, fitted_splits
from polopt.training.process_group import ProcessGroup, TorchProcessGroup, assemble
from polopt.training.provided import check_asks, check_effects, check_layers, check_needs, situation_of
from polopt.training.recipe import Recipe
from polopt.training.reference_policy import load_parameters, parameters_of, wholly
from polopt.training.run import ReadOnlyRun, Run
from polopt.training.source import LanguageSource
from polopt.training.trackers import require_packages, tracking
from polopt.worlds import build_tasks
from polopt.worlds.contract import try_episode
from polopt.worlds.executors import Maker
from polopt.worlds.protocol import Tasks
from polopt.worlds.recipe import made_again

# Tasks whose texts a new tokenizer is made from.
EXAMPLES = 2000
# After so many batches of a stage it is looked at whether its parts have done anything.
EARLY = 3


class Watcher(Protocol):
    """A watcher is called while a run trains: a progress display, a tracker. What it raises ends the run.

    With several processes it is called in each of them.
    """

    def begin(self, recipe: Recipe, about: Mapping[str, Any]) -> None:
        """Called once, before the first step. about: "parameters"; "step" and "seconds" of what a resumed run has
        behind it, 0 for a new one."""

    def step(self, record: Mapping[str, Any]) -> None:
        """Called after each optimiser step with its record, as it stands in metrics.jsonl."""

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """Called after each evaluation with its record, as it stands in evaluations.jsonl."""


class LanguageTraining:
    """A run of a recipe. `run()` trains to the end; stages, steps and state are all that `resume` needs.

    team: the processes that learn together, this one alone if None. `policy` samples, `learned` learns: the same
    one, unless its weights lie in pieces. crew: the workers that draw rollouts, None where they are drawn here.

    On CPU the result is a function of the recipe, and of the size of the team, alone: a run that is killed at any
    instant and resumed ends with bit-identical weights, metrics (clock times aside) and task order. That is the native
    engine's promise; another engine may round differently from one process to the next.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Run,
        watchers: tuple[Watcher, ...] = (),
        team: ProcessGroup | None = None,
        crew: Crew | None = None,
    ) -> None:
        self.recipe, self.run_folder, self.watchers, self.crew = recipe, run, watchers, crew
        self.team = ProcessGroup() if team is None else team
        require_packages(recipe)
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        _check_device(recipe.device)
        shared = build_tasks(recipe.tasks, seed=recipe.seed)
        self.splits = {
            name: build_tasks(stage.tasks, seed=recipe.seed) if stage.tasks is not None else shared
            for name, stage in recipe.stages.items()
        }
        _check_problems(recipe, len(self.splits[recipe.main_stage].heldout))
        others = recipe.evaluation.others
        self.others = {name: build_tasks(other.tasks, seed=recipe.seed).heldout for name, other in others.items()}
        self.algorithms = recipe.algorithms
        for name, algorithm in self.algorithms.items():
            check_needs(name, algorithm)
            check_asks(name, algorithm, self.splits[name])
        critic = any("value" in a.all_needs | a.all_evaluates for a in self.algorithms.values())
        self.policy = self._make_policy(critic)
        for name, algorithm in self.algorithms.items():
            check_layers(name, algorithm, self.policy)
            optimiser_of(learning(self.policy, recipe.stages[name].train), recipe.stages[name].optimiser)
        self.splits = fitted_splits(recipe, self.splits, self.algorithms, self.policy)
        self.others = fitted_others(recipe, self.others, self.policy)
        for name, algorithm in self.algorithms.items():
            tasks, limit = self.splits[name].train, recipe.limit_of(name)
            self._warn(check_effects(algorithm, situation_of(name, algorithm, tasks, limit, self.policy)))
        self.policy.to(recipe.device)
        sharded = recipe.parallel == "fsdp" and isinstance(self.team, TorchProcessGroup)
        self.learned: LanguagePolicy = ShardedPolicy.of(self.policy) if sharded else self.policy
        self.engine = recipe.rollout.build(self.policy)
        self.grounds = recipe.episodes.build(self._worlds())
        self.sampling = torch.Generator().manual_seed(recipe.seed_of("sampling"))
        self.shuffling = torch.Generator().manual_seed(recipe.seed_of("shuffling"))
        self.global_step, self.seconds = 0, 0.0
        self._clock = time.perf_counter()

    def _warn(self, sentences: Iterable[str]) -> None:
        for sentence in sentences if self.team.leads else ():
            warnings.warn(sentence, PoloptWarning, stacklevel=3)

    def _worlds(self) -> list[tuple[Tasks, Maker]]:
        """Every set of tasks that may be played, and what makes it again elsewhere."""
        found: list[tuple[Tasks, Maker]] = []
        for name, split in self.splits.items():
            world = self.recipe.tasks_of(name)
            for part in ("train", "heldout"):
                found.append((getattr(split, part), functools.partial(made_again, world, self.recipe.seed, part)))
        for name, tasks in self.others.items():
            world = self.recipe.evaluation.others[name].tasks
            found.append((tasks, functools.partial(made_again, world, self.recipe.seed, "heldout")))
        return found

    def try_worlds(self) -> None:
        """Play the first task of every set of tasks once, as `try_episode`.

        Raises:
            WorldError: a world breaks its protocol, or its own code raises.
        """
        for tasks in {id(tasks): tasks for tasks, _ in self._worlds()}.values():
            try_episode(tasks, self.grounds)

    def _make_policy(self, critic: bool) -> LanguagePolicy:
        spec = self.recipe.policy
        compute = None if spec.compute is None else getattr(torch, spec.compute)
        ways: dict[str, Any] = {"critic": critic, "checkpointing": spec.checkpointing, "compute": compute}
        ways["chat_template_kwargs"] = spec.chat_template_kwargs
        if spec.model is not None:
            if (Path(spec.model) / "adapter_config.json").is_file():
                raise ConfigError(
                    f"policy.model = {spec.model!r} is an adapter; set policy.adapter: {spec.model}, and policy.model "
                    "to the base that it was made for"
                )
            policy = load_policy(spec.model, dtype=spec.dtype, **ways)
            if "dtype" not in spec.model_fields_set:
                warn_of_precision(spec.model, spec.dtype)
            if spec.adapter is not None:
                policy.adapt(spec.adapter, seed=self.recipe.seed_of("adapter"), base=spec.model)
            return policy
        texts: list[tuple[str, str, str]] = []
        for split in {id(split): split for split in self.splits.values()}.values():
            examples = [split.train[i] for i in range(min(EXAMPLES, len(split.train)))]
            texts += [(task.kind, task.prompt, task.solution or "") for task in examples]
            said = {(message["role"], message["content"]): None for task in examples for message in task.history}
            texts += [(role, content, "") for role, content in said]
            texts += [("text", text, "") for text in split.texts[:EXAMPLES]]
        policy = new_policy(spec.config, texts, seed=self.recipe.seed, dtype=spec.dtype, **ways)
        check_policy(policy, f"policy.config.model_type = {spec.config['model_type']!r}")
        return policy

    def run(self, *, with_logs: bool = True) -> Run:
        """Train from the last checkpoint, or from the start, to the end. with_logs: as in `Run.restore`.

        Raises:
            RunError: another process trains in the folder, or none of its checkpoints is whole.
        """
        with self.run_folder.exclusive():
            restored = self.team.first(lambda: self.run_folder.restore(with_logs=with_logs))
            with tracking(self.recipe, self.run_folder.folder) if self.team.leads else nullcontext(()) as trackers:
                self.watchers += trackers
                with giving_way(), freed_memory_kept():
                    self._run(restored)
        self.team.leave()
        return self.run_folder

    def _run(self, restored: Checkpoint | None) -> None:
        tensors, state = restored.tensors if restored else {}, restored.state if restored else {}
        names = list(self.recipe.stages)
        if restored:
            self._load(tensors, state)
            self._hand_over(self.global_step)
        about: dict[str, Any] = {"parameters": sum(p.numel() for p in self.policy.parameters())}
        about |= {"forward": "transformers" if self.policy.decoder is None else "polopt", **self.check_base()}
        for watcher in self.watchers:
            watcher.begin(self.recipe, {**about, "step": self.global_step, "seconds": self.seconds})
        self.run_folder.describe(about)
        begun = state.get("stage", names[0])
        for name in names[names.index(begun) :]:
            first = state["stage_step"] if restored and name == begun else 0
            self._stage(name, first, tensors if first else {}, state if first else {})
        if self.team.leads:
            self.policy.save(self.run_folder.folder / "policy")
            if is_adapted(self.policy.model):
                save_adapter(self.policy.model, self.run_folder.folder / "adapter")
        self.run_folder.describe({"finished": True, "seconds": self._elapsed()})

    def check_base(self) -> dict[str, str]:
        """What tells an adapter's base from another one, as checkpoints do not hold it.

        Raises:
            RunError: it is not the base that the run began with.
        """
        if not self.policy.fixed:
            return {}
        base = fingerprint({n: p for n, p in self.policy.named_parameters() if n in self.policy.fixed})
        if self.run_folder.about.get("base", base) != base:
            raise RunError(
                f"policy.model = {self.recipe.policy.model!r} is not the base that this run began with, and its "
                "checkpoints hold the adapter alone; put that base back in its place"
            )
        return {"base": base}

    def _stage(self, name: str, first: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """One stage, from step `first` on."""
        stage, algorithm = self.recipe.stages[name], self.algorithms[name].to(self.recipe.device)
        source = self.source(name, stage.rows, self.player(name))
        learner = Learner(self.learned, algorithm, stage, self.shuffling, self.team)
        beside = Beside(self.learned, algorithm, stage.micro_rows, self.team)
        evaluations = self.recipe.evaluations(name)
        if first:
            learner.load(tensors)
            beside.resume(self.run_folder, name, tensors)
            source.load(state)
        else:
            beside.begin(self.run_folder, name)
            if 0 in evaluations:
                self._evaluate(name, *evaluations[0])
        records = [m for m in self.run_folder.read("metrics") if m["stage"] == name] if first and stage.until else []
        with self._supply(source, algorithm, first, stage.steps, tensors) as supply:
            for step in range(first, stage.steps):
                batch = supply.batch(step)
                record = self.learn(batch, source, learner, step, beside) | supply.record(batch, step)
                supply.learned(step)
                self._log({"step": self.global_step, "stage": name, "stage_step": step, **record})
                self.global_step += 1
                done = step + 1
                if done == min(EARLY, stage.steps):
                    early = [m for m in self.run_folder.read("metrics") if m["stage"] == name]
                    self._warn(f"stages.{name}: {s}" for s in zeros_meant(algorithm, early))
                if stage.until is not None:
                    records.append(record)
                    done = stage.steps if stage.until.met(records) else done  # as if all its steps had been
                if done in evaluations:
                    self._evaluate(name, *evaluations[done])
                if done == stage.steps or done % self.recipe.checkpoint.every == 0 or self._is_best(name, done):
                    self._save(name, done, learner, source, beside, supply)
                if done == stage.steps:
                    break

    def player(self, stage: str) -> EpisodePlayer:
        """Who plays a stage's tasks in this process."""
        limit = self.recipe.limit_of(stage)
        return EpisodePlayer(self.policy, self.splits[stage].train, limit, self.engine, self.grounds)

    def source(self, stage: str, rows: int, player: EpisodePlayer) -> LanguageSource:
        """Where a stage's experience comes from, in batches of `rows`."""
        settings: dict[str, Any] = {"rows": rows, "seed": self.recipe.seed_of("tasks", stage)}
        settings |= {"generator": self.sampling, "texts": self.splits[stage].texts}
        if self.crew is not None:
            return ClusterSource(player, self.crew, stage, **settings)
        if self.team.size == 1 or self.recipe.cluster is not None:
            return LanguageSource(player, **settings)
        return GroupSource(player, self.team, **settings)

    @contextmanager
    def _supply(
        self, source: LanguageSource, algorithm: Algorithm, first: int, steps: int, tensors: Mapping[str, Tensor]
    ) -> Iterator[BatchIterator]:
        if isinstance(source, ClusterSource):
            ahead = Ahead(source, algorithm.sampling, self.policy, self.global_step - first)
            with ahead.running(first, steps, tensors) as supply:
                yield BroadcastBatches(supply, self.team, self.recipe.device) if self.team.size > 1 else supply
        elif self.recipe.cluster is not None:
            yield BroadcastBatches(None, self.team, self.recipe.device)
        else:
            yield SynchronousBatches(source, algorithm.sampling)

    def step(self, source: LanguageSource, learner: Learner, step: int, beside: Beside) -> dict[str, Any]:
        """Sample, reward, credit, update: one batch."""
        return self.learn(gather(source, learner.algorithm.sampling), source, learner, step, beside)

    def learn(
        self, batch: RolloutBatch, source: LanguageSource, learner: Learner, step: int, beside: Beside
    ) -> dict[str, Any]:
        """Reward, credit, update."""
        algorithm, experience = learner.algorithm, batch.experience
        if not experience.mask.any():  # filters may leave nothing to learn from
            return {"rows": 0, "sampled": batch.spent["sampled"], **_befell(batch.spent)}
        player, before = source.player, meter(source.player)
        experience = self._provide(experience, source, learner, beside)
        experience = self.team.credited(algorithm, experience)
        every = self.recipe.logging.rollouts
        if every and step % every == 0 and self.team.leads:
            for row in rollout_records(experience, self.policy.tokenizer):
                self.run_folder.log("rollouts", {"step": self.global_step, **row})
        chosen = algorithm.selected(experience)
        sampled = time.perf_counter()
        record = {"rows": len(chosen), **describe(experience), **batch.metrics}
        for part in (algorithm.reward, algorithm.credit):
            record |= metrics_of(part, experience)
        beside.begin_update()
        record |= learner.update(chosen, step) if chosen.mask.any() else {}
        algorithm.advance()
        if beside.teacher is not None:
            record |= beside.teacher.record
        beside.end_update()
        self._hand_over(self.global_step + 1)
        tokens = int(experience.mask.sum())
        now = time.perf_counter()
        spent = {name: value + batch.spent[name] for name, value in since(before, player).items()}
        record |= {
            "tokens": tokens,
            "seconds": self._elapsed(),
            "tokens_per_second": tokens / (now - batch.begun),
            "seconds/learn": now - sampled,
        }
        return record | {name: value for name, value in spent.items() if value or not name.startswith("episodes/")}

    def _provide(self, experience: Experience, source: LanguageSource, learner: Learner, beside: Beside) -> Experience:
        """Compute the fields that some part of the algorithm declares, and no others."""
        needs = learner.algorithm.wanted("needs")
        if "extras.greedy_reward" in needs:
            tasks = {task.id: task for task in experience[~experience.demonstrated].extras["task"]}
            rewards = dict(zip(tasks, source.greedy(list(tasks.values())), strict=True))
            known = [rewards.get(task.id, 0.0) for task in experience.extras["task"]]
            greedy = torch.tensor(known, device=experience.device)
            experience = experience.replace(extras={"greedy_reward": greedy})
        others = beside.references.policies
        early = {"old_logp", "value", "extras.prompt_logp"}
        if needs & early or others or any(name.startswith(OLD) for name in needs):
            experience = learner.assess(experience, needs, others)
        if beside.teacher is not None and needs & TAUGHT:
            experience = beside.teacher.teach(experience, needs & TAUGHT)
        return experience

    def _evaluate(self, stage: str, when: str, problems: int) -> HeldOutScore:
        accuracy = self._accuracy(self.splits[stage].heldout, self.recipe.limit_of(stage), problems)
        record = {"step": self.global_step, "stage": stage, "when": when, "seconds": self._elapsed()}
        self.run_folder.log("evaluations", {**record, **accuracy.record()})
        if when != "during":
            self._show(accuracy, when)
            for name, tasks in self.others.items():
                other = self._accuracy(tasks, self.recipe.limit_of_other(name), problems)
                self.run_folder.log("others", {**record, "name": name, **other.record()})
                self._show(other, when, other=name)
        for watcher in self.watchers:
            watcher.evaluation({**record, **accuracy.record()})
        return accuracy

    def _accuracy(self, heldout: Tasks, limit: int, problems: int) -> HeldOutScore:
        spec = self.recipe.evaluation
        tasks = [heldout[i] for i in range(min(problems, len(heldout)))]
        player = EpisodePlayer(self.policy, heldout, limit, self.engine, self.grounds)
        seed = self.recipe.seed_of("evaluation", self.global_step)
        return evaluate(player, tasks, samples=spec.samples, k=spec.k, support=spec.support, seed=seed, team=self.team)

    def _show(self, accuracy: HeldOutScore, when: str, **of: str) -> None:
        """Write some of the answers down."""
        for row in _examples(accuracy):
            shown = show(row, self.policy.tokenizer)
            self.run_folder.log("samples", {"step": self.global_step, "when": when, **of, **shown})

    def _log(self, record: dict[str, Any]) -> None:
        parts = self.team.gather(_befell(record))  # each process lost its own
        record |= {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}
        self.run_folder.log("metrics", record)
        for watcher in self.watchers:
            watcher.step(record)

    def _save(
        self,
        stage: str,
        stage_step: int,
        learner: Learner,
        source: LanguageSource,
        beside: Beside,
        supply: BatchIterator,
    ) -> None:
        tensors = {f"policy.{k}": v for k, v in parameters_of(self.learned).items()}
        tensors = wholly(tensors | learner.state() | beside.state() | supply.state())
        tensors |= {"rng.sampling": self.sampling.get_state(), "rng.shuffling": self.shuffling.get_state()}
        state = {
            "stage": stage,
            "stage_step": stage_step,
            **source.state(),
            "seconds": self._elapsed(),
        }
        self.run_folder.save(self.global_step, tensors, state, keep=self.recipe.checkpoint.keep, best=self._best)

    @property
    def _best(self) -> tuple[str, str] | None:
        """By which estimate, of which stage's evaluations, a checkpoint stays; None if none does."""
        metric = self.recipe.checkpoint.best
        return None if metric is None else (metric, self.recipe.main_stage)

    def _is_best(self, stage: str, done: int) -> bool:
        """Whether the evaluation after so many steps of a stage was better than that of every checkpoint."""
        best = self._best
        if best is None or stage != self.recipe.main_stage or done not in self.recipe.evaluations(stage):
            return False

        def better() -> bool:
            found, last = self.run_folder.best(*best), self.run_folder.last("evaluations")
            return found is None or last is None or last[best[0]]["estimate"] > found[1]

        return self.team.once(better)  # whose log is complete

    def _load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        load_parameters(self.learned, {k.removeprefix("policy."): v for k, v in tensors.items()})
        self.sampling.set_state(tensors["rng.sampling"])
        self.shuffling.set_state(tensors["rng.shuffling"])
        self.global_step, self.seconds = state["step"], state["seconds"]

    def _hand_over(self, version: int) -> None:
        """The weights have changed: whoever samples must know."""
        if isinstance(self.learned, ShardedPolicy):
            self.learned.renew()
        self.engine.hand_over(version)

    def _elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return self.seconds + time.perf_counter() - self._clock


def train(
    recipe: Recipe | Path | str | None = None,
    folder: Path | str = "runs/latest",
    *,
    watchers: tuple[Watcher, ...] = (),
    address: str | None = None,
    anyway: bool = False,
    **changes: Any,
) -> Run:
    """Train a language policy: a recipe (the laptop's by default) into a folder. Asked for again, it goes on: a folder
    that holds a run of the same recipe is resumed, or returned with a warning if that has finished.

    address: of a Ray cluster that draws the rollouts, as the recipe's `cluster` says: HOST:PORT, "auto" for the one
    that this machine belongs to, or "local" for one that is started here and ends with the run.
    anyway: as in `resume`.
    changes: settings of the recipe by dotted path, as `**{"stages.rl.method": "gspo", "seed": 1}`.

    Raises:
        ConfigError: the recipe is wrong, or there is no cluster. RunError: the folder holds a run of another recipe, or
        another process trains in it.
    """
    recipe = for_cluster(recipe if isinstance(recipe, Recipe) else recipes.load(recipe, changes), address)
    team, folder = assemble(recipe.device), Path(folder)
    if team.once(lambda: Run.exists(folder)):
        if not is_finished(recipe, folder):
            return resume(folder, watchers=watchers, address=address, anyway=anyway)
        warnings.warn(f"{folder} has finished already: nothing was trained", PoloptWarning, stacklevel=2)
        return Run(folder)
    run = Run(folder) if team.leads else ReadOnlyRun(folder)
    with crew_of(recipe, address, team) as crew:
        if team.size == 1:
            check_memory(recipe)
        # What cannot be prepared leaves no folder behind.
        training = LanguageTraining(recipe, run, watchers, team, crew)
        team.once(lambda: check_tasks({name: training.player(name) for name in recipe.stages}))
        training.try_worlds()
        if team.leads:
            folder.mkdir(parents=True, exist_ok=True)
        with run.exclusive():
            team.once(lambda: create(recipe, folder).folder)
            return training.run()


def is_finished(recipe: Recipe, folder: Path | str) -> bool:
    """Returns whether a folder holds a run of this recipe that has come to its end; False if it holds none.

    Raises:
        RunError: it holds a run of another recipe; the first settings that differ.
    """
    if not Run.exists(Path(folder)):
        return False
    run = Run.open(Path(folder))
    same(run, recipe)
    return bool(run.about.get("finished"))


def create(recipe: Recipe, folder: Path | str) -> Run:
    """The folder of a new run, not begun; `resume` begins it.

    Raises:
        RunError: the folder holds a run already. ConfigError: the recipe read back from its YAML would be another one.
    """
    folder, text = Run.vacant(Path(folder)).folder, recipe.to_yaml()
    if Recipe.of_yaml(text) != recipe:
        raise ConfigError("the recipe cannot be written down and read back; give its settings as plain data")
    return Run.create(folder, text, origin.about_run(recipe, folder))


def resume(
    folder: Path | str,
    *,
    watchers: tuple[Watcher, ...] = (),
    address: str | None = None,
    anyway: bool = False,
    changes: Mapping[str, Any] | None = None,
    wait_s: float = 0.0,
) -> Run:
    """Continue a run to the result it would have had without the interruption, from whatever working directory.

    address: as in `train`. anyway: go on although something has changed that the result depends on: the recipe, a file
    that it names, the version of polopt or of a library. changes: what to extend, see `extension.extended`.
    wait_s: how long another process may take to leave the folder.

    Raises:
        RunError: the folder is not a run, another process trains in it, something has changed since it began, or none
        of its checkpoints is whole. ConfigError: it was begun on a cluster, and there is none, or without one.
    """
    run = Run.open(Path(folder).absolute())
    changed = origin.require_unchanged(run, anyway=anyway)
    with origin.entered(run) as recipe:
        team = assemble(recipe.device)
        run = run if team.leads else ReadOnlyRun(run.folder)
        with run.exclusive(wait_s), crew_of(recipe, address, team) as crew:
            if changes:
                recipe = team.first(lambda: extended(run, changes))
            if recipe.threads is None:
                torch.set_num_threads(run.about.get("threads", torch.get_num_threads()))
            if team.size == 1:
                check_memory(recipe)
            training = LanguageTraining(recipe, run, watchers, team, crew)
            training.try_worlds()
            if changed and team.leads:
                training.check_base()
                run.describe(origin.about_run(recipe, run.folder) | run.about | origin.accept(run, changed))
            training.run(with_logs=not anyway)
    return Run(Path(folder))


def _check_problems(recipe: Recipe, heldout: int) -> None:
    """Warn where somebody asks for more held-out problems than there are; the default is for worlds that have them."""
    asked = recipe.evaluation.problems
    if asked > heldout and asked != type(recipe.evaluation)().problems:
        warnings.warn(
            f"evaluation.problems = {asked}, and the tasks have {heldout} held-out problems: these are taken",
            PoloptWarning,
            stacklevel=2,
        )


def _check_device(name: str) -> None:
    try:
        torch.empty(1, device=name)
    except Exception as error:
        reason = re.split(r"(?<=[.:]) |\n", str(error))[0].rstrip(".:")
        raise ConfigError(
            f"device = {name!r:.40} cannot be used here: {reason:.160}; take cpu, or another one"
        ) from None


def _befell(record: Mapping[str, Any]) -> dict[str, Any]:
    """What of a record is about episodes that went wrong; nothing where none did."""
    return {name: value for name, value in record.items() if name.startswith("episodes/") and value}


def _examples(accuracy: HeldOutScore, each: int = 6) -> Iterator[Any]:
    """A few solved and a few unsolved episodes of each kind."""
    shown: dict[tuple[str, bool], int] = {}
    for row in accuracy.rows:
        key = (row.task.kind, row.solved)
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= each:
            yield row
