"""Requirements of a method in addition to its policy, from the declarations of its parts."""

from __future__ import annotations

import dataclasses
import re

from polopt.algorithm import Algorithm
from polopt.fields import OLD, POLICY_FIELDS
from polopt.layers import layer_of
from polopt.teachers import TEACHER_FIELDS, SelfTeacher


@dataclasses.dataclass(frozen=True)
class MethodRequirements:
    """frozen: copies of the weights that are compared with. critic: a value head. own, other: forward passes over the
    batch without gradient, by the policy and by the copies. survey: such passes before each optimiser step, where a
    batch is split. prompts: forward passes over the prompts alone. heads: how often hidden states meet the vocabulary
    beyond once. whole: logits of all decisions exist at once. sampling_overhead: tokens sampled for each of a
    batch's. once: further rollouts per prompt. steered: the sampler is steered token by token. group:
    rollouts per prompt, 1 where there are no groups.
    """

    frozen: int = 0
    critic: bool = False
    own: float = 0
    other: float = 0
    survey: float = 0
    prompts: float = 0
    heads: int = 0
    whole: bool = False
    sampling_overhead: float = 1.0
    once: float = 0
    steered: bool = False
    group: int = 1

    def sentence(self) -> str:
        """Returns the requirements in words; empty if only the policy is needed."""
        clauses = [
            f"{self.frozen} frozen cop{'y' if self.frozen == 1 else 'ies'} of the weights" if self.frozen else "",
            "a value head" if self.critic else "",
            f"{self.own + self.other:g} forward passes over the batch before learning" if self.own + self.other else "",
            "a survey of the batch before each optimiser step" if self.survey else "",
            "all logits at once" if self.whole else "",
            f"{self.sampling_overhead:.2g} tokens sampled for one of the batch"
            if self.sampling_overhead not in (0, 1)
            else "",
            "nothing is sampled" if not self.sampling_overhead else "",
            "one more rollout per prompt" if self.once else "",
        ]
        return ", ".join(filter(None, clauses))


def requirements_of(algorithm: Algorithm, *, kept: float = 0.6, decisions: float = 256) -> MethodRequirements:
    """Computes the requirements of an algorithm.

    kept: share of the groups that filters keep, where sampling continues until a batch is full.
    decisions: tokens of an answer, for parts that cut answers.
    """
    needs, evaluates, sampling = algorithm.required_fields, algorithm.required_outputs, algorithm.sampling
    policies = len(set(POLICY_FIELDS.values()) & needs) + sum(map(_of_named_policy, needs - algorithm.all_writes))
    teacher = algorithm.teacher
    reads_teacher = isinstance(teacher, SelfTeacher) and bool(needs & TEACHER_FIELDS)
    # The policy names candidates itself, which is a pass of its own.
    candidates = {"extras.candidates", "extras.teacher_candidate_logp"} & needs
    names = teacher is not None and bool(candidates) and teacher.names_candidates
    old = {"old_logp", "value"} & needs or any(name.startswith(OLD) for name in needs)
    # Averages of the weights that opponents are sampled with.
    copies = sum("weights" in part.source_capabilities for part in algorithm.parts())
    layers = [name for name in evaluates if layer_of(name.removeprefix("extras.")) is not None]
    return MethodRequirements(
        frozen=policies + copies + (teacher is not None and teacher.keeps_copy),
        critic="value" in needs | evaluates,
        own=bool(old) + names,
        other=policies + reads_teacher,
        survey=bool(algorithm.required_full_batch_outputs),
        prompts="extras.prompt_logp" in needs,
        heads=len(layers),
        whole="logits" in evaluates,
        sampling_overhead=sampling.sampling_overhead(kept, decisions),
        once="extras.greedy_reward" in needs,
        steered=any("steps" in part.source_capabilities for part in algorithm.parts()),
        group=sampling.group_size,
    )


def _of_named_policy(field: str) -> bool:
    """Tests whether a field holds what a policy that the stage names computes, taken to be of the learner's size."""
    others = TEACHER_FIELDS | {"extras.prompt_logp"}
    return bool(re.fullmatch(r"extras\.\w+_logp", field)) and field not in others and not field.startswith(OLD)
