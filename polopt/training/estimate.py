"""Estimates of a run's cost before it begins: parameters, memory, time."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.fields import policy_field
from polopt.plan.job import PlannedJob
from polopt.plan.memory_budget import MemoryBudget, memory_budgets
from polopt.plan.predict import Span
from polopt.policies.adapter import adapted_shapes
from polopt.policies.language import LanguagePolicy
from polopt.training.episode_player import EpisodePlayer
from polopt.training.episode_record import EpisodeRecord
from polopt.training.evaluate import evaluate
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.planning import check_memory, jobs_of, shape_of_model
from polopt.training.preferences import evaluate_rated
from polopt.training.preflight_models import IMITATED
from polopt.training.specs import StageSpec
from polopt.training.stage_learning import StageLearning
from polopt.training.weight_specs import ModelPolicy
from polopt.worlds.protocol import Tasks, are_verified

# Trials of a step, at most, with answers of either length.
TRIALS = 3
# Prompts that are read for the longest one.
SEEN = 500
# Held-out problems that the speed of evaluations is measured on.
PROBLEMS = 128
# Tasks that stand in for the rollouts that a stage reads from another one.
STAND_INS = 500


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimated cost of a run. parameters: of the policy. memory: bytes by their use, of the stage that needs most.
    preparing: seconds until the first step. steps: seconds of one step, by stage that was tried. problem: seconds per
    held-out answer. total: seconds of the whole run, None where a stage was not tried. servers: addresses that a stage
    calls, by stage that was not tried because of them. Each span is from the fastest trial with answers of a typical
    length to the slowest with long ones."""

    parameters: int
    memory: MemoryBudget
    preparing: float
    steps: dict[str, Span]
    problem: Span
    total: Span | None
    servers: dict[str, list[str]]


def estimate(recipe: LanguageRecipe, seconds: float = 6.0) -> Estimate:
    """Estimates a run's cost from a few steps of each stage on a copy that is thrown away, in about `seconds` plus
    preparation.

    A stage is tried on an eighth of its batch, then on whole batches if time allows; otherwise the small one is scaled
    up by its rows. A stage that calls servers, which may cost money, is not tried. The policy is untrained, or as
    loaded, and the lengths of its answers are unknown: each stage is tried with answers of a typical length and with
    long ones, see `answer_lengths`.
    """
    start = time.perf_counter()
    check_memory(recipe)
    domain = LanguageDomain(recipe)
    domain.try_worlds()
    for name in recipe.stages:
        if recipe.reads(name) is not None:
            domain.learn_from(name, _stand_ins(domain.splits[name].train))
    preparing = time.perf_counter() - start
    servers = {name: sorted(servers_of(a)) for name, a in domain.algorithms.items() if servers_of(a)}
    budget = seconds / len(recipe.stages)
    steps = {name: _step_seconds(domain, name, budget) for name in recipe.stages if name not in servers}
    problem = _problem_seconds(domain)
    planned = [
        min(problems, len(domain.splits[name].heldout))
        for name in recipe.stages
        for _, problems in recipe.evaluations(name).values()
    ]
    answers = recipe.rounds * sum(planned) * recipe.evaluation.samples
    parts = [seconds.times(recipe.rounds * recipe.stages[n].steps) for n, seconds in steps.items()]
    parts.append(problem.times(answers))
    total = Span(*(preparing + sum(ends) for ends in zip(*map(dataclasses.astuple, parts), strict=True)))
    longest = max(
        longest_prompt(domain.policy, domain.splits[name].train, recipe.limit_of(name)) for name in recipe.stages
    )
    return Estimate(
        parameters=sum(p.numel() for p in domain.policy.parameters()),
        memory=memory(recipe, domain.policy, longest),
        preparing=preparing,
        steps=steps,
        problem=problem,
        total=None if servers else total,
        servers=servers,
    )


def _stand_ins(tasks: Tasks) -> list[dict[str, Any]]:
    """Returns stand-ins for the rollouts that a stage reads from another one: the tasks' solutions, or their prompts,
    each beside a worse answer of the same length."""
    found = []
    for i in range(min(STAND_INS, len(tasks))):
        task, answer = tasks[i], tasks[i].solution or tasks[i].prompt
        line = {"step": 0, "group": i, "kind": task.kind, "prompt": task.prompt, "truncated": False}
        found += [{**line, "answer": answer, "outcome": math.inf}, {**line, "answer": f"{answer} ", "outcome": 0.0}]
    return found


def servers_of(algorithm: Algorithm) -> frozenset[str]:
    """Returns the addresses of the servers that an algorithm's parts call."""
    return frozenset().union(*(part.servers for part in algorithm.parts()))


def longest_prompt(policy: LanguagePolicy, tasks: Tasks, limit: int) -> int:
    """Returns the number of tokens of the longest opening among the first tasks."""
    dialogue = EpisodePlayer(policy, tasks, limit).dialogue
    first = [tasks[i] for i in range(min(SEEN, len(tasks)))]
    return max(map(len, dialogue.openings([(task.prompt, task.history) for task in first])))


def answer_lengths(domain: LanguageDomain, stage: str) -> tuple[int, int]:
    """Returns the tokens of a typical and of a long answer in a stage.

    If some stage imitates, these are the median and the maximum of its solutions; else half the token limit, and the
    limit.
    """
    recipe, tasks = domain.recipe, domain.splits[stage].train
    limit = recipe.limit_of(stage)
    if not any(IMITATED.keys() & a.sampling.source_capabilities for a in recipe.algorithms.values()):
        return max(1, limit // 2), limit
    dialogue = EpisodePlayer(domain.policy, tasks, limit).dialogue
    first = [tasks[i] for i in range(min(SEEN, len(tasks)))]
    shown = [answer for task in first for answer in (task.solution, *(x.text for x in task.rated))]
    lengths = [len(dialogue.answer(s)) for s in shown if s] or [limit]
    return min(limit, round(statistics.median(lengths))), min(limit, max(lengths))


def memory(recipe: LanguageRecipe, policy: LanguagePolicy, prompt: int) -> MemoryBudget:
    """Predicts the memory of the stage that needs most, in bytes, for prompts of so many tokens and answers that run to
    their limit; the formulas are those of `polopt.plan`. Libraries and the allocator come on top: on the laptop recipe
    a process that should hold 0.25 GB by this sum reached 1.0 GB, and one of 0.48 GB reached 1.1 GB."""
    found: list[MemoryBudget] = []
    for _, job in jobs_of(recipe, shape_of_model(policy.model), policy.device.type, prompt):
        found += (_counted(budget, policy, job) for budget in memory_budgets(job).values())
    return max(found, key=lambda budget: budget.peak)


def _counted(budget: MemoryBudget, policy: LanguagePolicy, job: PlannedJob) -> MemoryBudget:
    """Replaces predicted bytes by those counted on the policy itself: with an adapter only its own parameters learn and
    are compared with, and its maps are merged with the base's while answers are sampled, where that is in float32."""
    own = _bytes(policy.own_parameters().values())
    known = {
        "weights": _bytes(policy.parameters()),
        "gradients": own,
        "Adam state": 2 * own,
        "frozen copies": own * job.demands.frozen,
    }
    sampling = budget.sampling
    if budget.sampling:
        merged = job.work * sum(map(math.prod, adapted_shapes(policy.model))) * (job.work >= 4)
        sampling = {**sampling, "merged weights": merged}
    return dataclasses.replace(budget, always={**budget.always, **known}, sampling=sampling)


def _bytes(parameters: Iterable[Tensor]) -> float:
    return sum(p.numel() * p.element_size() for p in parameters)


class AlternatingOutcome(EpisodePlayer):
    """A player that rewards every second episode with 1 and the others with 0, so that every group has a learning
    signal, unlike those of an untrained policy."""

    def play(self, *args: Any, **kwargs: Any) -> list[EpisodeRecord]:
        rows = super().play(*args, **kwargs)
        for i, row in enumerate(rows):
            row.reward = float(i % 2)
        return rows


def _step_seconds(domain: LanguageDomain, name: str, budget: float) -> Span:
    """Measures the seconds of one whole step of a stage."""
    typical, long = answer_lengths(domain, name)
    _time_step(domain, name, _eighth(domain, name), long)  # the first step of all also fills caches
    fast, slow = (_trials(domain, name, length, budget / 2) for length in (typical, long))
    likely = (statistics.median(fast) + statistics.median(slow)) / 2
    return Span(likely, min(fast + slow), max(fast + slow))


def _eighth(domain: LanguageDomain, name: str) -> StageSpec:
    whole = domain.recipe.stages[name]
    group = domain.recipe.algorithms[name].sampling.group_size
    return whole.model_copy(update={"rows": min(whole.rows, max(1, whole.rows // 8 // group) * group)})


def _trials(domain: LanguageDomain, name: str, limit: int, budget: float) -> list[float]:
    """Measures the seconds of a whole step, up to `TRIALS` times, or of small steps scaled up if whole ones take too
    long."""
    whole, small = domain.recipe.stages[name], _eighth(domain, name)
    start = time.perf_counter()
    scaled = [_time_step(domain, name, small, limit) * whole.rows / small.rows]
    found: list[float] = []
    while len(found) < TRIALS and time.perf_counter() - start + (found or scaled)[-1] < budget:
        found.append(_time_step(domain, name, whole, limit))
    while not found and len(scaled) < TRIALS and time.perf_counter() - start < budget:
        scaled.append(_time_step(domain, name, small, limit) * whole.rows / small.rows)
    return found or scaled


def _time_step(domain: LanguageDomain, name: str, stage: StageSpec, limit: int) -> float:
    algorithm = domain.recipe.algorithms[name].to(domain.recipe.device)
    player = AlternatingOutcome(domain.policy, domain.splits[name].train, limit, domain.engine, domain.executor)
    source = domain.source(name, stage.rows, player)
    named = {  # a copy of the policy costs what other weights do
        policy_field(policy): domain.model_policy(spec.model, f"stages.{name}.policies.{policy}")
        if isinstance(spec, ModelPolicy)
        else domain.policy.frozen()
        for policy, spec in stage.policies.items()
    }
    learning = StageLearning(domain, algorithm, stage, source, torch.Generator(), named=named)
    start = time.perf_counter()
    learning.step(0)
    return time.perf_counter() - start


def _problem_seconds(domain: LanguageDomain) -> Span:
    """Measures the seconds per held-out answer."""
    spec = domain.recipe.evaluation
    stage = domain.recipe.main_stage
    heldout = domain.splits[stage].heldout
    tasks: Sequence[Any] = [heldout[i] for i in range(min(PROBLEMS, spec.problems, len(heldout)))]
    found = []
    for limit in answer_lengths(domain, stage):
        player = EpisodePlayer(domain.policy, heldout, limit, domain.engine, domain.executor)
        start = time.perf_counter()
        if are_verified(heldout):
            evaluate(player, tasks, support=spec.support)
        else:
            evaluate_rated(player, tasks)
        found.append((time.perf_counter() - start) / len(tasks))
    return Span(sum(found) / len(found), min(found), max(found))
