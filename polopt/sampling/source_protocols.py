"""What a source of experience can do: `Source`, and a protocol for each capability that only some sources have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

# An answer: its text, or its token ids.
Said = str | Sequence[int]


class SourceError(UserError, TypeError):
    """A source cannot do what a part calls. The message names the part, the capability and what is missing."""


class Source(Protocol):
    """Where experience comes from: what the source of every loop that samples rollouts has.

    What only some sources can do are protocols of their own, each by the name of a capability that parts declare in
    `source_capabilities` (`CAPABILITIES`).

    rows: how many rows the loop wants in one optimiser batch. generator: what random choices are drawn with; its
    state is part of a checkpoint. size: how many tasks there are, numbered from 0.
    """

    rows: int
    generator: torch.Generator

    @property
    def size(self) -> int: ...

    def take(self, count: int) -> Tensor:
        """[count] numbers of the next tasks: in random order, all of them before any comes again."""
        ...

    def rollout(self, request: RolloutRequest) -> Experience:
        """Plays the tasks of a request with the current policy. `group` is the place in `request.tasks`, where a task
        may stand twice.

        Gives `mask`, `rollout_logp`, `outcome`, `reward`, `group`, `terminated`, `truncated`, `entropy` if the sampler
        knows it, `extras["tokens"]` ([B, T], what was decided and read), `extras["answer"]` (str a row: what the policy
        answered), `extras["kind"]` (str a row: what kind of task it was), `extras["index"]` [B] the task's number,
        `extras["paid"]` [B, T] what the world paid for each answer, on its last decision, and `extras["signal_<name>"]`
        [B] whatever else the world said of it. Where the support's temperature follows the entropy, also
        `extras["temperature"]` and `extras["plain_entropy"]`, the entropy that it follows. With starts,
        `extras["given"]` [B] and `extras["hinted"]` [B] bool (by a hidden hint) tell of them.
        """
        ...

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """What the current policy says of these decisions, without gradient."""
        ...


class ContinuingSource(Source, Protocol):
    """A source that goes on from where rows stand."""

    def extend(
        self,
        experience: Experience,
        copies: int,
        max_decisions: int | None = None,
        at: Tensor | None = None,
        forced_tokens: Sequence[Sequence[int]] | None = None,
    ) -> Experience:
        """Goes on, `copies` times each, from where rows that have not ended stand, or from before the decision at
        column `at` [B] of any row: with the current policy over the rows' support, for at most `max_decisions` more.

        Row i's continuations are rows i * copies onwards. They are whole rows as `rollout` gives them, of the same
        `group`; what was decided before keeps its `rollout_logp`. Only the tensors of `experience` are read.
        forced_tokens: token ids that each row decides before it goes on; nobody sampled them, and their `rollout_logp`
        is 0.
        """
        ...


class DemonstrationSource(Source, Protocol):
    """A source that demonstrates the solutions of tasks in their order."""

    def demonstrate(self, rows: int) -> Experience:
        """The next `rows` tasks with their demonstrated solutions as decisions: `mask`, `outcome` = 1."""
        ...


class SolutionSource(Source, Protocol):
    """A source that knows the solution of each given task."""

    def demonstrate_groups(self, experience: Experience) -> Experience:
        """As `demonstrate`, of the tasks of these rows: one row for each group, under its number."""
        ...

    def solution_lengths(self, tasks: Tensor) -> Tensor:
        """[M] how many decisions each task's demonstrated solution has."""
        ...


class PairSource(Source, Protocol):
    """A source whose tasks come with a preferred and a rejected answer."""

    def pairs(self, rows: int) -> Experience:
        """The next rows / 2 tasks with their two answers as decisions, the preferred one in the row before the rejected
        one: `mask`, `outcome` = 1 and 0, `group` the task's place. Nobody sampled them, so that there is no
        `rollout_logp`."""
        ...


class TextSource(Source, Protocol):
    """A source of raw texts."""

    def texts(self, rows: int, length: int) -> Experience:
        """The next `rows` raw texts as decisions, in pieces of at most `length` tokens: `mask`, `outcome` = 1."""
        ...


class EncodingSource(Source, Protocol):
    """A source that turns texts into decisions."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in the middle of an answer."""
        ...


class PromptSource(Source, Protocol):
    """A source whose tasks have prompts that can be read."""

    def prompts(self, tasks: Tensor) -> list[str]:
        """The prompts of the tasks of these numbers [M], as texts."""
        ...


class ImportingSource(Source, Protocol):
    """A source that plays answers of others in its own world."""

    def task_ids(self, tasks: Tensor) -> list[str]:
        """[M] a name of each task, the same in every process that has these tasks."""
        ...

    def answers(self, experience: Experience) -> list[list[str]]:
        """What each row answered, turn by turn, read from its tensors."""
        ...

    def import_answers(
        self, tasks: Tensor, answers: Sequence[Sequence[Sequence[Said]]], support: Support
    ) -> Experience:
        """Rows of what somebody else answered to the tasks of these numbers [M]: answers[i] holds rows of task i, each
        the answers of its turns, as texts, which are encoded, or as token ids, which are taken as they are.

        They are played in this source's own world, which pays them, and come as `rollout` gives them, under the place
        in `tasks`; `rollout_logp` and `entropy` are those of the current policy over `support`. An answer longer than
        the source's own may be is cut off there.
        """
        ...


class RestoringSource(Source, Protocol):
    """A source that completes rows of which only the tensors were kept."""

    def restore_rows(self, experience: Experience) -> Experience:
        """Rows of an earlier `rollout` of which only the tensors were kept: the same rows, with their lists. What
        the source itself fills in of the learner's opinion is that of the learner now."""
        ...


class GradientNormSource(Source, Protocol):
    """A source that measures gradients of its policy."""

    def gradient_norms(self, experience: Experience, block: str | None = "") -> Tensor:
        """[B] || d/d theta sum_t log pi(y_t) || of each row, over the parameters whose name contains `block`; None for
        those of the input embedding."""
        ...


class FragmentSource(Protocol):
    """A source whose environments are stepped."""

    def fragments(self, steps: int) -> Experience:
        """The next `steps` decisions of each of the source's environments, which go on in the next call. Gives `mask`,
        `rollout_logp`, `reward`, `terminated`, `truncated` [B, T] and `extras["observation"]`, `extras["action"]`."""
        ...


# Capability -> the protocol of the sources that have it. "steps" has no member: such a source plays requests with a
# `lookahead`.
CAPABILITIES: Mapping[str, type] = {
    "continuations": ContinuingSource,
    "demonstrations": DemonstrationSource,
    "encoding": EncodingSource,
    "fragments": FragmentSource,
    "gradient_norms": GradientNormSource,
    "imported_answers": ImportingSource,
    "pairs": PairSource,
    "prompts": PromptSource,
    "restored_rows": RestoringSource,
    "solutions": SolutionSource,
    "steps": Source,
    "texts": TextSource,
}


def members_of(protocol: type) -> frozenset[str]:
    """The members that a protocol itself declares."""
    return frozenset(name for name in {*vars(protocol), *protocol.__annotations__} if not name.startswith("_"))


def check_source(part: Part, source: Any) -> None:
    """Refuses a source that lacks a member which a part, or a part inside it, declares a need for.

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
