"""The language domain: causal language models, tasks with verifiers, rollouts here or on a cluster."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.errors import PoloptWarning, RunError
from polopt.experience import Experience
from polopt.policies.adapter import fingerprint, is_adapted, save_adapter
from polopt.policies.factory import new_policy
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import check_policy, load_policy, warn_of_precision
from polopt.policies.sharded import ShardedPolicy
from polopt.training.batches import BatchIterator, BroadcastBatches, SynchronousBatches
from polopt.training.cluster.connect import worker_pool_of
from polopt.training.cluster.pool_source import ClusterSource
from polopt.training.cluster.prefetch import PrefetchedBatches
from polopt.training.cluster.worker_pool import WorkerPool
from polopt.training.domain import check_algorithm, check_update
from polopt.training.episode_player import EpisodePlayer
from polopt.training.episode_record import prompts_of
from polopt.training.estimates import LABELS, PREFERENCES
from polopt.training.evaluate import HeldOutScore, evaluate
from polopt.training.group_source import GroupSource
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.language_weights import model_policy, weights_of_run
from polopt.training.learner import Learner, learning
from polopt.training.loop import warn
from polopt.training.measure import describe, rollout_records, show
from polopt.training.named_policies import with_policies
from polopt.training.planning import check_memory
from polopt.training.preferences import RatedScore, evaluate_rated
from polopt.training.preflight import check_tasks
from polopt.training.preflight_models import fitted_others, fitted_splits
from polopt.training.process_group import ProcessGroup, TorchProcessGroup
from polopt.training.provided import LANGUAGE, check_effects, check_layers, check_split, situation_of
from polopt.training.source import LanguageSource
from polopt.training.stage_data import check_data, is_paired, records_of, tasks_of
from polopt.worlds import build_tasks
from polopt.worlds.contract import try_episode
from polopt.worlds.executors import Maker
from polopt.worlds.protocol import Tasks, are_verified
from polopt.worlds.recipe import rebuild_tasks

# Tasks whose texts a new tokenizer is made from.
EXAMPLES = 2000


@contextmanager
def open_domain(recipe: LanguageRecipe, team: ProcessGroup, address: str | None) -> Iterator[LanguageDomain]:
    """Opens the domain of a recipe, with workers on the cluster at an address if the recipe has a cluster.

    Raises:
        ConfigError: the recipe cannot be prepared, there is no such cluster, or not enough memory.
    """
    with worker_pool_of(recipe, address, team, LanguageDomain) as worker_pool:
        if team.size == 1:
            check_memory(recipe)
        yield LanguageDomain(recipe, team, worker_pool)


class LanguageDomain:
    """The domain of a language recipe: policy, tasks, engine and sources of its stages; see `Domain`.

    team: the processes that learn together, this one alone if None. `policy` samples, `learned` learns: the same one,
    unless its weights lie in pieces. worker_pool: the workers that draw rollouts, None where they are drawn here.
    """

    def __init__(
        self, recipe: LanguageRecipe, team: ProcessGroup | None = None, worker_pool: WorkerPool | None = None
    ) -> None:
        self.recipe, self.worker_pool, self.capabilities = recipe, worker_pool, LANGUAGE
        self.team = ProcessGroup() if team is None else team
        recipe.require_installed()
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        _check_device(recipe.device)
        shared = build_tasks(recipe.tasks, seed=recipe.seed)
        self.splits = {
            name: build_tasks(stage.tasks, seed=recipe.seed) if stage.tasks is not None else shared
            for name, stage in recipe.stages.items()
        }
        _check_problems(recipe, len(self.splits[recipe.main_stage].heldout))
        _check_best(recipe, self.splits[recipe.main_stage].heldout)
        others = recipe.evaluation.others
        self.others = {name: build_tasks(other.tasks, seed=recipe.seed).heldout for name, other in others.items()}
        self.algorithms = recipe.algorithms
        for name, algorithm in self.algorithms.items():
            stage = recipe.stages[name]
            check_algorithm(name, algorithm, with_policies(name, stage, algorithm, self.capabilities))
            check_update(name, stage, algorithm, self.team.size)
            if stage.data is None:
                check_split(name, algorithm, self.splits[name])
            else:
                check_data(name, algorithm)
            if stage.writes is not None and self.splits[name].train.turns > 1:
                raise ConfigError(
                    f"stages.{name}.writes: single answers are written, and the tasks take up to "
                    f"{self.splits[name].train.turns} turns; leave it out"
                )
        critic = any("value" in a.required_fields | a.required_outputs for a in self.algorithms.values())
        self.policy = self._make_policy(critic)
        for name, algorithm in self.algorithms.items():
            check_layers(name, algorithm, self.policy)
            learning(self.policy, recipe.stages[name].train)
        self.splits = fitted_splits(recipe, self.splits, self.algorithms, self.policy)
        self.others = fitted_others(recipe, self.others, self.policy)
        for name, algorithm in self.algorithms.items():
            tasks, limit = self.splits[name].train, recipe.limit_of(name)
            warn(check_effects(algorithm, situation_of(name, algorithm, tasks, limit, self.policy)), self.team)
        self.policy.to(recipe.device)
        sharded = recipe.parallel == "fsdp" and isinstance(self.team, TorchProcessGroup)
        self.learned: LanguagePolicy = ShardedPolicy.of(self.policy) if sharded else self.policy
        self.engine = recipe.rollout.build(self.policy)
        self.executor = recipe.episodes.build(self._worlds())
        self.sampling = torch.Generator().manual_seed(recipe.seed_of("sampling"))
        self._models: dict[str, LanguagePolicy] = {}

    def _worlds(self) -> list[tuple[Tasks, Maker]]:
        """Returns every set of tasks that may be played, and the function that makes it again in another process."""
        found: list[tuple[Tasks, Maker]] = []
        for name, split in self.splits.items():
            world = self.recipe.tasks_of(name)
            for part in ("train", "heldout"):
                found.append((getattr(split, part), functools.partial(rebuild_tasks, world, self.recipe.seed, part)))
        for name, tasks in self.others.items():
            world = self.recipe.evaluation.others[name].tasks
            found.append((tasks, functools.partial(rebuild_tasks, world, self.recipe.seed, "heldout")))
        return found

    def preflight(self) -> None:
        check_tasks({name: self.player(name) for name in self.recipe.stages})

    def try_worlds(self) -> None:
        """Plays the first task of every set of tasks once, as `try_episode`.

        Raises:
            WorldError: a world breaks its protocol, or its own code raises.
        """
        for tasks in {id(tasks): tasks for tasks, _ in self._worlds()}.values():
            try_episode(tasks, self.executor)

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
            texts += [(task.kind, task.prompt, answer.text) for task in examples for answer in task.rated]
            messages = {(message["role"], message["content"]): None for task in examples for message in task.history}
            texts += [(role, content, "") for role, content in messages]
            texts += [("text", text, "") for text in split.texts[:EXAMPLES]]
        policy = new_policy(spec.config, texts, words=spec.words, seed=self.recipe.seed, dtype=spec.dtype, **ways)
        check_policy(policy, f"policy.config.model_type = {spec.config['model_type']!r}")
        return policy

    def use_folder(self, folder: Path) -> None:
        pass

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        about: dict[str, Any] = {"parameters": sum(p.numel() for p in self.policy.parameters())}
        forward = "transformers" if self.policy.decoder is None else "polopt"
        return {**about, "forward": forward, **self.check_base(known)}

    def check_base(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Returns the fingerprint of an adapter's base, which checkpoints do not hold. known: the description of the
        run.

        Raises:
            RunError: it is not the base that the run began with.
        """
        if not self.policy.fixed:
            return {}
        base = fingerprint({n: p for n, p in self.policy.named_parameters() if n in self.policy.fixed})
        if known.get("base", base) != base:
            raise RunError(
                f"policy.model = {self.recipe.policy.model!r} is not the base that this run began with, and its "
                "checkpoints hold the adapter alone; put that base back in its place"
            )
        return {"base": base}

    def player(self, stage: str) -> EpisodePlayer:
        """Returns the player of a stage's tasks in this process."""
        limit = self.recipe.limit_of(stage)
        return EpisodePlayer(self.policy, self.splits[stage].train, limit, self.engine, self.executor)

    def weights_of(self, run: str, where: str) -> dict[str, Tensor]:
        return weights_of_run(self.policy, run, where)

    def model_policy(self, model: str, where: str) -> LanguagePolicy:
        if model not in self._models:
            other = model_policy(self.policy, model, where, dtype=self.recipe.policy.dtype)
            sharded = isinstance(self.learned, ShardedPolicy)
            self._models[model] = ShardedPolicy.of(other) if sharded else other
        return self._models[model]

    def written(self, experience: Experience) -> Iterator[dict[str, Any]]:
        return records_of(experience)

    def learn_from(self, stage: str, records: list[dict[str, Any]]) -> None:
        spec = self.recipe.stages[stage].data
        assert spec is not None
        found = tasks_of(stage, spec, records, paired=is_paired(self.algorithms[stage]))
        self.splits[stage] = dataclasses.replace(self.splits[stage], train=found)

    def source(
        self, stage: str, rows: int | None = None, player: EpisodePlayer | None = None, *, round: int = 1
    ) -> LanguageSource:
        """Returns the source of a stage's experience, in batches of `rows`; the recipe's, played by its own player,
        if None."""
        player = self.player(stage) if player is None else player
        rows = self.recipe.stages[stage].rows if rows is None else rows
        settings: dict[str, Any] = {"rows": rows, "seed": self.recipe.seed_in_round(round, "tasks", stage)}
        settings |= {"generator": self.sampling, "texts": self.splits[stage].texts}
        if self.worker_pool is not None:
            return ClusterSource(player, self.worker_pool, stage, **settings)
        if self.team.size == 1 or self.recipe.cluster is not None:
            return LanguageSource(player, **settings)
        return GroupSource(player, self.team, **settings)

    @contextmanager
    def batches(
        self,
        source: LanguageSource,
        algorithm: Algorithm,
        *,
        base: int,
        first: int,
        steps: int,
        tensors: Mapping[str, Tensor],
    ) -> Iterator[BatchIterator]:
        if isinstance(source, ClusterSource):
            prefetched = PrefetchedBatches(source, algorithm.sampling, self.policy, base)
            with prefetched.running(first, steps, tensors) as batches:
                yield BroadcastBatches(batches, self.team, self.recipe.device) if self.team.size > 1 else batches
        elif self.recipe.cluster is not None:
            yield BroadcastBatches(None, self.team, self.recipe.device)
        else:
            yield SynchronousBatches(source, algorithm.sampling)

    def provide(
        self, experience: Experience, fields: frozenset[str], source: LanguageSource, learner: Learner
    ) -> Experience:
        """Computes `extras["greedy_reward"]` [B], the reward of the policy's greedy answer to the row's task, and what
        `with_prompt_logp` adds."""
        if "extras.greedy_reward" in fields:
            tasks = {task.id: task for task in experience[~experience.is_demonstration].extras["task"]}
            rewards = dict(zip(tasks, source.greedy(list(tasks.values())), strict=True))
            known = [rewards.get(task.id, 0.0) for task in experience.extras["task"]]
            greedy = torch.tensor(known, device=experience.device)
            experience = experience.replace(extras={"greedy_reward": greedy})
        return with_prompt_logp(experience, learner) if "extras.prompt_logp" in fields else experience

    def describe(self, experience: Experience) -> dict[str, Any]:
        return describe(experience)

    def rollouts(self, experience: Experience) -> Iterator[dict[str, Any]]:
        return rollout_records(experience, self.policy.tokenizer)

    def score(self, stage: str, problems: int, step: int) -> HeldOutScore | RatedScore:
        return self._score(self.splits[stage].heldout, self.recipe.limit_of(stage), problems, step)

    def other_scores(self, problems: int, step: int) -> Iterator[tuple[str, HeldOutScore | RatedScore]]:
        for name, tasks in self.others.items():
            yield name, self._score(tasks, self.recipe.limit_of_other(name), problems, step)

    def _score(self, heldout: Tasks, limit: int, problems: int, step: int) -> HeldOutScore | RatedScore:
        """Measures accuracy where a verifier scores answers, and preferences elsewhere."""
        spec = self.recipe.evaluation
        tasks = [heldout[i] for i in range(min(problems, len(heldout)))]
        player = EpisodePlayer(self.policy, heldout, limit, self.engine, self.executor)
        if not are_verified(heldout):
            return evaluate_rated(player, tasks, team=self.team)
        seed = self.recipe.seed_of("evaluation", step)
        return evaluate(player, tasks, samples=spec.samples, k=spec.k, support=spec.support, seed=seed, team=self.team)

    def samples(self, score: HeldOutScore | RatedScore) -> Iterator[dict[str, Any]]:
        return (show(row, self.policy.tokenizer) for row in _examples(score))

    def sync_weights(self, version: int) -> None:
        if isinstance(self.learned, ShardedPolicy):
            self.learned.renew()
        self.engine.sync_weights(version)

    def save(self, folder: Path) -> None:
        self.policy.save(folder / "policy")
        if is_adapted(self.policy.model):
            save_adapter(self.policy.model, folder / "adapter")

    def state(self) -> dict[str, Tensor]:
        return {"rng.sampling": self.sampling.get_state()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.sampling.set_state(tensors["rng.sampling"])


def with_prompt_logp(experience: Experience, learner: Learner) -> Experience:
    """Returns the batch with `extras["prompt_logp"]` [B], the mean log-probability under the learned policy of the
    tokens of each row's prompt, 0 for a prompt of one token; a group's prompt is read once."""
    prompts, index = prompts_of(experience)
    mean = ops.row_mean(learner.evaluate(prompts).logp, prompts.mask)
    return experience.replace(extras={"prompt_logp": mean[index]})


def _check_problems(recipe: LanguageRecipe, heldout: int) -> None:
    """Warns if the recipe sets more held-out problems than there are; the default number gives no warning."""
    requested = recipe.evaluation.problems
    if requested > heldout and requested != type(recipe.evaluation)().problems:
        warnings.warn(
            f"evaluation.problems = {requested}, and the tasks have {heldout} held-out problems: these are taken",
            PoloptWarning,
            stacklevel=2,
        )


def _check_best(recipe: LanguageRecipe, heldout: Tasks) -> None:
    """Refuses to choose a checkpoint by an estimate that the held-out tasks do not have.

    Raises:
        ConfigError: the estimates that they have.
    """
    best = recipe.checkpoint.best
    known = recipe.evaluation.estimates if are_verified(heldout) else PREFERENCES if heldout[0].is_ranked else LABELS
    if best is not None and best not in known:
        raise ConfigError(
            f"checkpoint.best = {best!r} is not measured on the held-out tasks of stage {recipe.main_stage}; give "
            f"{' or '.join(known)}"
        )


def _check_device(name: str) -> None:
    try:
        torch.empty(1, device=name)
    except Exception as error:
        reason = re.split(r"(?<=[.:]) |\n", str(error))[0].rstrip(".:")
        raise ConfigError(
            f"device = {name!r:.40} cannot be used here: {reason:.160}; take cpu, or another one"
        ) from None


def _examples(score: HeldOutScore | RatedScore, each: int = 6) -> Iterator[Any]:
    """Yields a few solved and a few unsolved episodes of each kind."""
    shown: dict[tuple[str, bool], int] = {}
    for row in score.rows:
        key = (row.task.kind, row.solved)
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= each:
            yield row
