"""What a run will take, before it is begun: parameters, memory, time."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.plan.hardware import Device
from polopt.plan.holds import Holds, holds
from polopt.plan.job import Job
from polopt.policies.adapter import adapted_shapes
from polopt.policies.language import LanguagePolicy
from polopt.sampling import Demonstrations
from polopt.training.beside import Beside
from polopt.training.evaluate import evaluate
from polopt.training.language import LanguageTraining, create
from polopt.training.learner import Learner
from polopt.training.planning import job_of, shape_of_model
from polopt.training.player import Player
from polopt.training.recipe import Recipe, StageSpec
from polopt.training.transcript import Transcript
from polopt.worlds.protocol import Tasks

# Prompts that are read for the longest one.
SEEN = 500
# Held-out problems that the speed of evaluations is measured on.
PROBLEMS = 128


@dataclasses.dataclass(frozen=True)
class Estimate:
    """parameters: of the policy. memory: bytes by what they hold, of the stage that needs most. preparing: seconds
    until the first step. steps: seconds of one step, by stage that was tried. problem: seconds per held-out answer.
    total: seconds of the whole run, None where a stage was not tried. servers: addresses that a stage asks, by stage
    that was not tried because of them.
    """

    parameters: int
    memory: Holds
    preparing: float
    steps: dict[str, float]
    problem: float
    total: float | None
    servers: dict[str, list[str]]


def estimate(recipe: Recipe, seconds: float = 6.0) -> Estimate:
    """Try a few steps of each stage on a copy that is thrown away, in about `seconds` plus preparation.

    A stage is tried on an eighth of its batch, then on whole batches if time allows; otherwise the small one
    is scaled up by its rows. A stage that asks servers, which may cost money, is not tried. The policy is untrained, or
    as loaded: one that writes to the token limit now and stops early later makes the estimate too long.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="polopt-estimate-") as place:
        training = LanguageTraining(recipe, create(recipe, Path(place) / "run"))
        preparing = time.perf_counter() - start
        asked = {name: sorted(servers_of(a)) for name, a in training.algorithms.items() if servers_of(a)}
        budget = seconds / len(recipe.stages)
        steps = {name: _step_seconds(training, name, budget) for name in recipe.stages if name not in asked}
    problem = _problem_seconds(training)
    planned = [
        min(problems, len(training.splits[name].heldout))
        for name in recipe.stages
        for _, problems in recipe.evaluations(name).values()
    ]
    answers = sum(planned) * recipe.evaluation.samples
    total = preparing + sum(seconds * recipe.stages[n].steps for n, seconds in steps.items()) + problem * answers
    longest = max(
        longest_prompt(training.policy, training.splits[name].train, recipe.limit_of(name)) for name in recipe.stages
    )
    return Estimate(
        parameters=sum(p.numel() for p in training.policy.parameters()),
        memory=memory(recipe, training.policy, longest),
        preparing=preparing,
        steps=steps,
        problem=problem,
        total=None if asked else total,
        servers=asked,
    )


def servers_of(algorithm: Algorithm) -> frozenset[str]:
    """Addresses of the servers that learning by this algorithm asks."""
    return frozenset().union(*(part.servers for part in algorithm.parts()))


def longest_prompt(policy: LanguagePolicy, tasks: Tasks, limit: int) -> int:
    """Tokens of the longest opening among the first tasks."""
    dialogue = Player(policy, tasks, limit).dialogue
    return max(len(dialogue.opening(tasks[i].prompt)) for i in range(min(SEEN, len(tasks))))


def likely_limit(training: LanguageTraining, stage: str) -> int:
    """Tokens that a stage's answers will not often exceed: of its longest solution, if some stage imitates."""
    recipe, tasks = training.recipe, training.splits[stage].train
    limit = recipe.limit_of(stage)
    if not any(isinstance(a.sampling, Demonstrations) for a in recipe.algorithms.values()):
        return limit
    dialogue = Player(training.policy, tasks, limit).dialogue
    shown = [tasks[i].solution for i in range(min(SEEN, len(tasks)))]
    return min(limit, max((len(dialogue.answer(s)) for s in shown if s), default=limit))


def memory(recipe: Recipe, policy: LanguagePolicy, prompt: int) -> Holds:
    """What the stage that needs most will hold, if its prompts have so many tokens and its answers run to their limit;
    the formulas are those of `polopt.plan`. Libraries and the allocator come on top: on the laptop recipe a process
    that should hold 0.25 GB by this sum reached 1.0 GB, and one of 0.48 GB reached 1.1 GB."""
    shape, kind = shape_of_model(policy.model), policy.device.type
    anything = Device(name=kind, kind=kind, flops={"float32": 1}, memory=1e18, bandwidth=1, held=0.0)
    found: list[Holds] = []
    for name, stage in recipe.stages.items():
        limit = recipe.limit_of(name)
        job = job_of(
            stage,
            recipe.policy,
            recipe.algorithms[name],
            shape=shape,
            device=anything,
            prompt=prompt,
            answer=limit,
            limit=limit,
            engine="native" if recipe.rollout.engine == "native" else "paged",
        )
        found += (_counted(held, policy, job) for held in holds(job).values())
    return max(found, key=lambda held: held.peak)


def _counted(held: Holds, policy: LanguagePolicy, job: Job) -> Holds:
    """What can be counted on the policy itself is: with an adapter only its own parameters learn and are compared with,
    and its maps are merged with the base's while answers are drawn, where that is in float32."""
    own = _bytes(policy.own_parameters().values())
    known = {
        "weights": _bytes(policy.parameters()),
        "gradients": own,
        "Adam state": 2 * own,
        "frozen copies": own * job.demands.frozen,
    }
    sampling = held.sampling
    if held.sampling:
        merged = job.work * sum(map(math.prod, adapted_shapes(policy.model))) * (job.work >= 4)
        sampling = {**sampling, "merged weights": merged}
    return dataclasses.replace(held, always={**held.always, **known}, sampling=sampling)


def _bytes(parameters: Iterable[Tensor]) -> float:
    return sum(p.numel() * p.element_size() for p in parameters)


class Coin(Player):
    """Every second episode counts as solved, so that all groups teach, as an untrained policy's would not."""

    def play(self, *args: Any, **kwargs: Any) -> list[Transcript]:
        rows = super().play(*args, **kwargs)
        for i, row in enumerate(rows):
            row.reward = float(i % 2)
        return rows


def _step_seconds(training: LanguageTraining, name: str, budget: float) -> float:
    """Seconds of one whole step of a stage."""
    whole = training.recipe.stages[name]
    group = getattr(training.recipe.algorithms[name].sampling, "group", 1)
    small = whole.model_copy(update={"rows": min(whole.rows, max(1, whole.rows // 8 // group) * group)})
    start = time.perf_counter()
    _time_step(training, name, small)  # the first step of all also fills caches
    found = _time_step(training, name, small) * whole.rows / small.rows
    if time.perf_counter() - start + found < budget:
        found = _time_step(training, name, whole)
    if time.perf_counter() - start + found < budget:
        found = min(found, _time_step(training, name, whole))
    return found


def _time_step(training: LanguageTraining, name: str, stage: StageSpec) -> float:
    algorithm = training.recipe.algorithms[name].to(training.recipe.device)
    player = Coin(
        training.policy, training.splits[name].train, likely_limit(training, name), training.engine, training.grounds
    )
    source = training.source(name, stage.rows, player)
    learner = Learner(training.policy, algorithm, stage, training.shuffling)
    beside = Beside(training.policy, algorithm, stage.micro_rows)
    start = time.perf_counter()
    training.step(source, learner, 0, beside)
    return time.perf_counter() - start


def _problem_seconds(training: LanguageTraining) -> float:
    """Seconds per held-out answer."""
    spec = training.recipe.evaluation
    stage = training.recipe.main_stage
    heldout = training.splits[stage].heldout
    tasks: Sequence[Any] = [heldout[i] for i in range(min(PROBLEMS, spec.problems, len(heldout)))]
    player = Player(training.policy, heldout, likely_limit(training, stage), training.engine, training.grounds)
    start = time.perf_counter()
    evaluate(player, tasks, support=spec.support)
    return (time.perf_counter() - start) / len(tasks)
