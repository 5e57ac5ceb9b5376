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

from polopt.policies.adapter import adapted_shapes
from polopt.policies.language import LanguagePolicy
from polopt.policies.vocabulary import ELSEWHERE, MOST_LOGITS
from polopt.sampling import Demonstrations, Texts
from polopt.training.beside import Beside
from polopt.training.evaluate import evaluate
from polopt.training.language import LanguageTraining, create
from polopt.training.learner import Learner
from polopt.training.player import Player
from polopt.training.recipe import Recipe, StageSpec
from polopt.training.transcript import Transcript
from polopt.worlds.protocol import Tasks

# Bytes of one number of each type.
SIZES = {"float32": 4, "bfloat16": 2, "float64": 8}
# Prompts that are read for the longest one.
SEEN = 500
# Held-out problems that the speed of evaluations is measured on.
PROBLEMS = 128


@dataclasses.dataclass(frozen=True)
class Estimate:
    """parameters: of the policy. memory: bytes by what they hold. preparing: seconds until the first step.
    steps: seconds of one step, by stage. problem: seconds per held-out answer. total: seconds of the whole run.
    """

    parameters: int
    memory: dict[str, float]
    preparing: float
    steps: dict[str, float]
    problem: float
    total: float

    @property
    def peak(self) -> float:
        """Bytes at the worst moment: learning or sampling, never both."""
        learning, sampling = ("activations",), ("KV cache", "merged weights")
        always = sum(v for k, v in self.memory.items() if k not in learning + sampling)
        return always + max(sum(self.memory[k] for k in moment) for moment in (learning, sampling))


def estimate(recipe: Recipe, seconds: float = 6.0) -> Estimate:
    """Try a few steps of each stage on a copy that is thrown away, in about `seconds` plus preparation.

    A stage is tried on an eighth of its batch, then on whole batches if time allows; otherwise the small one
    is scaled up by its rows. The policy is untrained, or as loaded: one that writes to the token limit now
    and stops early later makes the estimate too long.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="polopt-estimate-") as place:
        training = LanguageTraining(recipe, create(recipe, Path(place) / "run"))
        preparing = time.perf_counter() - start
        budget = seconds / len(recipe.stages)
        steps = {name: _step_seconds(training, name, budget) for name in recipe.stages}
    problem = _problem_seconds(training)
    planned = [
        min(problems, len(training.splits[name].heldout))
        for name in recipe.stages
        for _, problems in recipe.evaluations(name).values()
    ]
    answers = sum(planned) * recipe.evaluation.samples
    total = preparing + sum(steps[n] * s.steps for n, s in recipe.stages.items()) + problem * answers
    longest = max(
        longest_prompt(training.policy, training.splits[name].train, recipe.limit_of(name)) for name in recipe.stages
    )
    return Estimate(
        parameters=sum(p.numel() for p in training.policy.parameters()),
        memory=memory(recipe, training.policy, longest),
        preparing=preparing,
        steps=steps,
        problem=problem,
        total=total,
    )


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


def memory(recipe: Recipe, policy: LanguagePolicy, prompt: int) -> dict[str, float]:
    """Bytes of the tensors that fill the memory, an estimate from shapes alone:

        weights      b P                gradients   b Q             Adam state   2 b Q
        reference    b Q for each frozen policy that a stage compares with
        teacher      b Q, if some stage learns from an average of the policy
        activations  b L n (17 d + 2.5 h s) + 12 l;   with checkpointing b n (L d + 17 d + 2.5 h s) + 12 l
        KV cache     2 b L r s d_kv
        merged weights  b M, of an adapter's maps while answers are drawn; none in bfloat16

    P parameters of b bytes, Q of them that can change: all, or an adapter's and a critic's, which are in float32 at
    least, and share the rest with references and teacher; M those of the maps that have an adapter; L layers of width d
    with h heads, s = prompt + limit tokens, n = s x rows of the largest micro-batch, l logits in float32: decisions
    times vocabulary, or the chunk of them that exists at once; activations, cache and merged weights have the bytes of
    the arithmetic's precision; r rows sampled at once, d_kv the width of all keys of a token. One layer keeps about 17
    values per token and channel and 2.5 per head and pair of tokens (Korthikanti et al. 2022, arXiv 2205.05198, in
    numbers, not bytes). Packed prompts and fused attention need less. Libraries and the allocator come on top: on the
    laptop recipe a process that should hold 0.25 GB by this sum reached 1.0 GB, and one of 0.48 GB reached 1.1 GB.
    """
    config = policy.model.config.get_text_config()
    own = _bytes(policy.own_parameters().values())
    layers, width, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    keys = getattr(config, "num_key_value_heads", None) or heads
    head = getattr(config, "head_dim", None) or width // heads
    most_new = max(map(recipe.limit_of, recipe.stages))
    length = prompt + most_new
    rows = max(_micro_rows(stage) for stage in recipe.stages.values())
    shown = {n for n, a in recipe.algorithms.items() if isinstance(a.sampling, (Demonstrations, Texts))}
    sampled = [s.rows for n, s in recipe.stages.items() if n not in shown]
    layer = 17 * width + 2.5 * heads * length
    kept = layers * width + layer if recipe.policy.checkpointing else layers * layer
    work = SIZES[recipe.policy.compute or recipe.policy.dtype]
    most = MOST_LOGITS.get(policy.device.type, ELSEWHERE)
    logits = min(rows * most_new * config.vocab_size, most)
    compared = max(len({"ref_logp", "prev_logp"} & a.all_needs) for a in recipe.algorithms.values())
    averages = any(a.teacher is not None and a.teacher.rate < 1 for a in recipe.algorithms.values())
    return {
        "weights": _bytes(policy.parameters()),
        "gradients": own,
        "Adam state": 2 * own,
        "reference": own * compared,
        "teacher": own * averages,
        "activations": work * rows * length * kept + 12 * logits,
        "KV cache": 2 * work * layers * max(sampled, default=0) * length * keys * head,
        "merged weights": work * sum(map(math.prod, adapted_shapes(policy.model))) * (work >= 4),
    }


def _bytes(parameters: Iterable[Tensor]) -> float:
    return sum(p.numel() * p.element_size() for p in parameters)


def _micro_rows(stage: StageSpec) -> int:
    return min(stage.micro_rows or stage.rows, -(-stage.rows // stage.minibatches))


class _Coin(Player):
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
    player = _Coin(
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
