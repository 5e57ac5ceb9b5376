"""The kinds of part that sampling consists of, and the requests that they make of a source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.part import Part
from polopt.sampling.source_protocols import Source, check_source
from polopt.support import PLAIN, Support

if TYPE_CHECKING:
    from polopt.sampling.lookahead import LookaheadConfig


@dataclasses.dataclass(frozen=True)
class Start:
    """The beginning of a task's rollouts.

    given: decisions of the task's demonstrated solution that the row begins with, at most all of them but one. They are
        played in the environment and read by the policy, and are never in the mask.
    hint: a text appended to the task's prompt.
    hidden: the hint is read while the row is sampled and is left out of the row: `rollout_logp` is that of the policy
        with the hint, and evaluations of the row are without it.
    """

    given: int = 0
    hint: str = ""
    hidden: bool = False


@dataclasses.dataclass(frozen=True)
class PolicyMixture:
    """The geometric mixture, token by token, of the sampler's policy pi with another policy q:

        p(token | prefix) ~ pi(token | prefix)^(1 - share) q(token | prefix)^share

    policy: the name of q, a policy beside the learner: `reference`, `previous`, or one that the stage names.
    share: in [0, 1]; 0 is pi, 1 is q.
    """

    policy: str
    share: float


@dataclasses.dataclass(frozen=True, eq=False)
class RolloutRequest:
    """A request for rollouts to a source.

    tasks: [M] their numbers.
    copies: rollouts of each task, one number for all or [M]; 0 for none.
    support: the support over which the policy is sampled.
    max_decisions: the most decisions of a row, None for the source's own limit. A row that has not ended by then has
        neither terminated nor been truncated, and its outcome is its reward so far.
    starts: the beginning of each task's rollouts, one for each of `tasks`; None for plain ones.
    lookahead: makes the first lookahead.branches(copies) rows of each task the leaves of a tree; the source needs the
        capability "steps".
    mixture: samples from a mixture of the policy with another one; the source needs the capability "mixtures".
    """

    tasks: Tensor
    copies: int | Tensor
    support: Support = PLAIN
    max_decisions: int | None = None
    starts: Sequence[Start] | None = None
    lookahead: LookaheadConfig | None = None
    mixture: PolicyMixture | None = None

    @property
    def counts(self) -> Tensor:
        """Number of rollouts of each task, [M]."""
        return torch.as_tensor(self.copies, device=self.tasks.device).expand(len(self.tasks))

    def of(self, places: Tensor) -> RolloutRequest:
        """Returns the request restricted to the tasks at these places [K] in `tasks`."""
        starts = None if self.starts is None else [self.starts[i] for i in places.tolist()]
        return dataclasses.replace(self, tasks=self.tasks[places], copies=self.counts[places], starts=starts)

    @property
    def group(self) -> Tensor:
        """Place in `tasks` of each rollout's task, [B]."""
        return torch.arange(len(self.tasks), device=self.tasks.device).repeat_interleave(self.counts)


class Sampling(Part):
    """`sampling(source) -> Experience` samples the experience of one optimiser batch.

    single_decisions: whether each row is one decision.
    """

    single_decisions: ClassVar[bool] = False

    def __call__(self, source: Any) -> Experience:  # a `Source` with the capabilities that the part declares
        """Returns the experience of `forward`, marked as made by this part.

        Raises:
            SourceError: the source lacks a capability that this part, or one inside it, declares.
        """
        check_source(self, source)
        return self.mark(super().__call__(source))

    def forward(self, source: Any) -> Experience:
        raise NotImplementedError

    @property
    def group_size(self) -> int:
        """Rollouts of one prompt, on average if their number varies; 1 if every row is a group of its own."""
        return 1

    def batch_rows(self, rows: int) -> int:
        """Returns the rows of a batch of a stage with so many `rows`."""
        return rows

    @property
    def divisible_row(self) -> int:
        """Decisions of each row that can be divided among minibatches; 1 if rows stay whole."""
        return 1

    @property
    def rollout_support(self) -> Support | None:
        """The support over which the policy is sampled; None if the part samples nothing."""
        return None

    @property
    def filters(self) -> Sequence[Select]:
        """The parts that filter the sampled rows, in order."""
        return ()

    @property
    def mixers(self) -> Sequence[Part]:
        """The parts that add rows beyond the rollouts, in order."""
        return ()

    @property
    def compared(self) -> int | None:
        """Rollouts of one prompt in a batch; None if their number varies or other rows join them."""
        return None

    def mark(self, experience: Experience) -> Experience:
        """Marks a batch as made by this part, so that `Algorithm.compute_advantages` accepts it without filtering."""
        return experience.replace(sampled_by=repr(self))

    def made(self, experience: Experience) -> bool:
        """Returns True if the batch is marked as made by this part."""
        return experience.sampled_by == repr(self)

    def filtered(self, experience: Experience) -> Experience:
        """Returns the rows of a finished batch, made elsewhere, that this part would have kept.

        Raises:
            ExperienceError: the part determines how rollouts are made, which a finished batch cannot follow.
        """
        raise self.too_late(repr(self))

    @staticmethod
    def too_late(what: str) -> ExperienceError:
        """Returns the error for a finished batch that was made elsewhere.

        what: the part, or its setting, that determines how a batch is made.
        """
        return ExperienceError(
            f"Algorithm.compute_advantages: {what} decides how a batch is made, and this one was made elsewhere: "
            "sample with algorithm.sampling(source), or, if your sampler did the same, give compute_advantages "
            "algorithm.sampling.mark(experience)"
        )

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        """Estimates the tokens that are sampled for each token of a full batch, for planning a run.

        kept: fraction of the rows that the filters keep.
        decisions: decisions in a row.
        """
        return 1.0


class Select(Part):
    """`select(experience) -> experience` keeps the rows, and the decisions of them, to learn from.

    Rows stay whole and in order; a decision that is left out leaves the mask and remains as context.

    judges_demonstrations: whether the part filters the demonstrated rows too; otherwise they are all kept.
    """

    tags = frozenset({"filter=other"})

    judges_demonstrations: ClassVar[bool] = False

    def forward(self, experience: Experience) -> Experience:
        raise NotImplementedError


def select_rows(selects: Iterable[Select], experience: Experience) -> Experience:
    """Applies the filters in order; demonstrated rows pass by each filter without `judges_demonstrations`."""
    for select in selects:
        demonstrated = experience.is_demonstration
        if select.judges_demonstrations or not demonstrated.any():
            experience = select(experience)
        elif not demonstrated.all():
            own = select(experience[~demonstrated])
            experience = Experience.join([own, experience[demonstrated].with_missing_fields_of(own)])
    return experience


class TaskSampler(Part):
    """`choice(source, count) -> [count]` selects the numbers of the tasks of the next rollouts."""

    def forward(self, source: Any, count: int) -> Tensor:
        raise NotImplementedError

    def observe(self, experience: Experience) -> None:
        """Updates the part's record of tasks from new rollouts, before any filter, in training mode only.

        The rollouts' tasks are `extras["index"]`, their results `outcome`.
        """


class UniformTasks(TaskSampler):
    """Selects tasks in random order, each once before any task repeats."""

    def forward(self, source: Source, count: int) -> Tensor:
        return source.take(count)


# [M] rollouts of each chosen task -> these rollouts; `group` is the place among the tasks. The function may be
# called again, for more.
RolloutFn = Callable[[Tensor], Experience]


class RolloutAllocator(Part):
    """`budget(source, tasks, group, rollout) -> experience` allocates rollouts to tasks, about `group` each on average.

    tasks: [M] numbers, as a `TaskSampler` returned them.
    """

    def check(self, group: int) -> None:
        """Raises ValueError if `group` rollouts a task are not possible."""

    def fixed(self, group: int) -> int | None:
        """Returns the number of rollouts of every task, None if it varies."""
        return None

    def forward(self, source: Any, tasks: Tensor, group: int, rollout: RolloutFn) -> Experience:
        raise NotImplementedError

    def observe(self, experience: Experience) -> None:
        """Updates the part's record of tasks from new rollouts, as in `TaskSampler.observe`."""


class EqualRollouts(RolloutAllocator):
    """Allocates the same number of rollouts to every task."""

    def fixed(self, group: int) -> int:
        return group

    def forward(self, source: Source, tasks: Tensor, group: int, rollout: RolloutFn) -> Experience:
        return rollout(torch.full_like(tasks, group))


class PromptAugmenter(Part):
    """`guide(source, tasks) -> (tasks, starts)` sets how the rollouts of the chosen tasks begin.

    A task may be returned several times, each time as a group of its own.

    each: how often every task is returned.
    """

    each: ClassVar[int] = 1

    def forward(self, source: Any, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        raise NotImplementedError

    def observe(self, experience: Experience) -> None:
        """Updates the part's record of tasks from new rollouts, as in `TaskSampler.observe`.

        `extras["given"]` and `extras["hinted"]` hold the beginning of each row.
        """
