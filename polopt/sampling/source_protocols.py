"""The protocol `Source` of sources of experience, and one protocol for each optional capability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from polopt.errors import UserError
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.part import Part
from polopt.part_names import name_of
from polopt.support import Support

if TYPE_CHECKING:
    from polopt.sampling.parts import RolloutRequest

# One turn of an answer, as its text or its token ids.
AnswerTurn = str | Sequence[int]


class SourceError(UserError, TypeError):
    """A source lacks a capability that a part needs. The message names the part, the capability and the missing
    members."""


class Source(Protocol):
    """A source of rollouts for a training loop.

    Optional capabilities are protocols of their own, by the names that parts declare in `source_capabilities`
    (`CAPABILITIES`).

    rows: rows of one optimiser batch.
    generator: the random generator of the source; its state is part of a checkpoint.
    size: number of tasks, numbered from 0.
    """

    rows: int
    generator: torch.Generator

    @property
    def size(self) -> int: ...

    def take(self, count: int) -> Tensor:
        """Returns the numbers of the next tasks, [count]: in random order, each task once before any repeats."""
        ...

    def rollout(self, request: RolloutRequest) -> Experience:
        """Samples the rollouts of a request with the current policy. `group` is the place in `request.tasks`, where a
        task may occur twice.

        Returns `mask`, `rollout_logp`, `outcome`, `reward`, `group`, `terminated`, `truncated`, `entropy` if the
        sampler computes it, `extras["tokens"]` ([B, T], decided and read tokens), `extras["answer"]` (str a row: the
        policy's answer), `extras["kind"]` (str a row: the kind of task), `extras["index"]` [B] the task's number,
        `extras["answer_reward"]` [B, T] the environment's reward of each answer, on its last decision, and
        `extras["signal_<name>"]` [B] the environment's other signals. If the support's temperature follows the entropy,
        the result also has `extras["temperature"]` and `extras["plain_entropy"]`, the entropy that it follows. With
        starts, it has `extras["given"]` [B] and `extras["hinted"]` [B] bool (a hidden hint).
        """
        ...

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates these decisions under the current policy, without gradient."""
        ...


class ContinuingSource(Source, Protocol):
    """A source that continues rows."""

    def extend(
        self,
        experience: Experience,
        copies: int,
        max_decisions: int | None = None,
        at: Tensor | None = None,
        forced_tokens: Sequence[Sequence[int]] | None = None,
    ) -> Experience:
        """Continues rows that have not ended, or any rows from before the decision at column `at` [B], `copies` times
        each, with the current policy over the rows' support, for at most `max_decisions` more decisions.

        Row i's continuations are rows i * copies onwards. They are whole rows as `rollout` returns them, of the same
        `group`; earlier decisions keep their `rollout_logp`. Only the tensors of `experience` are read.

        forced_tokens: token ids that each row decides before it continues; since no policy sampled them, their
            `rollout_logp` is 0.
        """
        ...


class DemonstrationSource(Source, Protocol):
    """A source that demonstrates the solutions of tasks in their order."""

    def demonstrate(self, rows: int) -> Experience:
        """Returns the next `rows` tasks with their demonstrated solutions as decisions: `mask`, `outcome` = 1."""
        ...


class SolutionSource(Source, Protocol):
    """A source of the demonstrated solution of any given task."""

    def demonstrate_groups(self, experience: Experience) -> Experience:
        """Returns the demonstrated solutions of the tasks of these rows, one row for each group, with the group's
        number."""
        ...

    def solution_lengths(self, tasks: Tensor) -> Tensor:
        """Returns the number of decisions in each task's demonstrated solution, [M]."""
        ...


class PairSource(Source, Protocol):
    """A source whose tasks come with answers of different quality: pairs, or ranked lists."""

    def pairs(self, rows: int, tasks: Tensor | None = None) -> Experience:
        """Returns the next tasks with their answers as decisions, the best one first and at most `rows` of them:
        `mask`, `outcome` = the answer's score, `group` the task's place.

        tasks: the numbers of the tasks, in place of the next ones; all of their answers are returned.

        There is no `rollout_logp`, since no policy sampled the answers.
        """
        ...


class RatedSource(Source, Protocol):
    """A source whose tasks come with answers of known quality, one or more each."""

    def rated(self, rows: int, *, mismatched: bool = False) -> Experience:
        """Returns the next tasks with their answers as `PairSource.pairs` does.

        mismatched: as many rows follow, in which each task has an answer of another one: `extras["mismatched"]` is True
        there and False elsewhere, and their outcome is 0.
        """
        ...


class TextSource(Source, Protocol):
    """A source of raw texts."""

    def texts(self, rows: int, length: int) -> Experience:
        """Returns the next `rows` raw texts as decisions, in pieces of at most `length` tokens: `mask`,
        `outcome` = 1."""
        ...


class EncodingSource(Source, Protocol):
    """A source that turns texts into decisions."""

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text in the middle of an answer."""
        ...


class PromptSource(Source, Protocol):
    """A source whose tasks have prompts as texts."""

    def prompts(self, tasks: Tensor) -> list[str]:
        """Returns the prompts of the tasks of these numbers [M], as texts."""
        ...


class KindSource(Source, Protocol):
    """A source whose tasks are of named kinds.

    kinds: every kind that there may be, in the order of the tasks' world.
    """

    @property
    def kinds(self) -> Sequence[str]: ...

    def kinds_of(self, tasks: Tensor) -> list[str]:
        """Returns the kinds of the tasks of these numbers [M]."""
        ...


class ImportingSource(Source, Protocol):
    """A source that evaluates answers of other policies in its own environment."""

    def task_ids(self, tasks: Tensor) -> list[str]:
        """Returns a name of each task, [M], the same in every process that has these tasks."""
        ...

    def answers(self, experience: Experience) -> list[list[str]]:
        """Returns each row's answers, turn by turn, decoded from its tensors."""
        ...

    def import_answers(
        self, tasks: Tensor, answers: Sequence[Sequence[Sequence[AnswerTurn]]], support: Support
    ) -> Experience:
        """Returns rows of given answers of other policies to the tasks of these numbers [M].

        answers: answers[i] holds rows of task i, each the answers of its turns, as texts, which are encoded, or as
            token ids, which are taken as they are.

        The answers are played in this source's own environment, which computes their outcomes. Rows are as `rollout`
        returns them, with the place in `tasks` as `group`; `rollout_logp` and `entropy` are those of the current policy
        over `support`. An answer longer than the source's own limit is cut off there.
        """
        ...


class RestoringSource(Source, Protocol):
    """A source that completes rows of which only the tensors were stored."""

    def restore_rows(self, experience: Experience) -> Experience:
        """Returns rows of an earlier `rollout` of which only the tensors were stored, with their lists.

        Quantities of the learner that the source itself fills in are those of the current learner.
        """
        ...


class GradientNormSource(Source, Protocol):
    """A source that computes norms of its policy's gradients."""

    def gradient_norms(self, experience: Experience, block: str | None = "") -> Tensor:
        """Returns || d/d theta sum_t log pi(y_t) || of each row, [B], over the parameters whose name contains `block`;
        None for those of the input embedding."""
        ...


class WeightSource(Source, Protocol):
    """A source whose policy can sample and evaluate with other weights, such as its own earlier ones."""

    def weights(self) -> Tensor:
        """Returns a copy of the policy's parameters, as one vector [P]."""
        ...

    def using(self, weights: Tensor) -> AbstractContextManager[None]:
        """Gives the policy these parameters inside of a `with` statement."""
        ...


class FragmentSource(Protocol):
    """A source whose environments are stepped for a fixed number of steps."""

    def fragments(self, steps: int) -> Experience:
        """Returns the next `steps` decisions of each of the source's environments, whose episodes continue in the next
        call.

        The result has `mask`, `rollout_logp`, `reward`, `terminated`, `truncated` [B, T] and `extras["observation"]`,
        `extras["action"]`.
        """
        ...


class RandomSource(Protocol):
    """A source with a random generator, whose state is part of a checkpoint."""

    generator: torch.Generator


class ActorSource(FragmentSource, RandomSource, Protocol):
    """A source of fragments that copies of its policy with other weights can play. policy: the learner."""

    policy: Any

    def fragments_by(self, actor: Any, steps: int) -> Experience:
        """Returns what `fragments` does, of decisions of `actor`, a policy like the learner."""
        ...


class TransitionSource(Protocol):
    """A source that stores the transitions of its environments."""

    def transitions(
        self,
        rows: int,
        *,
        steps: int,
        start: int,
        capacity: int,
        noise: float,
        epsilon: float = 0.0,
        n_steps: int = 1,
        gamma: float | None = None,
        sequence: int = 1,
    ) -> Experience:
        """Plays `steps` further steps of each of the source's environments, stores them, and draws `rows` transitions
        of those that are stored, uniformly and with replacement.

        start: decisions that are stored before the first draw; actions are uniformly random until then.
        capacity: transitions that are stored, the latest ones.
        noise: standard deviation of Gaussian noise on the actions, in half widths of their bounds.
        epsilon: chance of a uniformly random choice in the place of the most likely one; 0 samples the policy's own.
        n_steps: decisions that a transition spans at most. gamma: their discount.
        sequence: actions that the policy takes in turn after one look at the state.

        The result has one decision a row: `mask`, `reward`, `terminated`, `truncated` [B, 1], and
        `extras["observation"]` [B, 2, D], before the decision and after the last one that the row spans,
        `extras["action"]`, and, where gamma is not None, `extras["discount"]` [B, 1], gamma^k of k decisions.
        """
        ...


class GoalTransitionSource(Protocol):
    """A source that stores the transitions of goal-conditioned environments, episode by episode.

    An observation ends with the achieved and the desired goal, of G numbers each.
    """

    def goal_transitions(
        self,
        rows: int,
        *,
        strategy: str,
        steps: int,
        start: int,
        capacity: int,
        noise: float,
        epsilon: float = 0.0,
    ) -> Experience:
        """Plays and draws as `TransitionSource.transitions`, from episodes that have ended and are stored from their
        first decision on. `extras["achieved_later"]` [B, 1, G] is an achieved goal of the same episode, after the
        decision that `sampling.hindsight.goal_places` draws by the strategy."""
        ...

    def goal_rewards(self, achieved: Tensor, desired: Tensor) -> Tensor:
        """Returns the environment's rewards [N] of goals [N, G]."""
        ...


class LoggedTransitionSource(Protocol):
    """A source that has a log of transitions."""

    def logged_transitions(
        self, rows: int, *, n_steps: int = 1, gamma: float | None = None, weights: Any = None
    ) -> Experience:
        """Draws transitions of the log with replacement, as `TransitionSource.transitions` returns them, in proportion
        to the weights of a `sampling.LogWeights`; None is uniform."""
        ...


# Capability -> the protocol of the sources that have it. "steps" and "mixtures" have no member: such sources play
# requests with a `lookahead`, and with a `mixture`.
CAPABILITIES: Mapping[str, type] = {
    "actors": ActorSource,
    "continuations": ContinuingSource,
    "demonstrations": DemonstrationSource,
    "encoding": EncodingSource,
    "fragments": FragmentSource,
    "goal_transitions": GoalTransitionSource,
    "gradient_norms": GradientNormSource,
    "imported_answers": ImportingSource,
    "kinds": KindSource,
    "logged_transitions": LoggedTransitionSource,
    "mixtures": Source,
    "pairs": PairSource,
    "rated": RatedSource,
    "prompts": PromptSource,
    "restored_rows": RestoringSource,
    "solutions": SolutionSource,
    "steps": Source,
    "texts": TextSource,
    "transitions": TransitionSource,
    "weights": WeightSource,
}
# Capabilities of sources of environments that are stepped.
STEPPED = frozenset({"actors", "fragments", "goal_transitions", "logged_transitions", "transitions"})


def members_of(protocol: type) -> frozenset[str]:
    """Returns the names of the members that a protocol itself declares."""
    return frozenset(name for name in {*vars(protocol), *protocol.__annotations__} if not name.startswith("_"))


def check_source(part: Part, source: Any) -> None:
    """Raises SourceError if a source lacks a member that a part, or a part inside it, needs.

    Raises:
        SourceError: naming the part, the capability and the missing members.
    """
    for one in part.parts():
        for capability in sorted(one.source_capabilities & CAPABILITIES.keys()):
            missing = sorted(n for n in members_of(CAPABILITIES[capability]) if not hasattr(source, n))
            if missing:
                raise SourceError(
                    f"{name_of(type(one))} needs a source with {capability}, and {type(source).__name__} has no "
                    f"{', '.join(missing)}; take another part, or a source that has "
                    f"{'it' if len(missing) == 1 else 'them'}"
                )
