"""The kinds of part that sampling is made of, and the requests that they make of a source."""

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
    """How the rollouts of a task begin.

    given: so many decisions of the task's demonstrated solution stand there already, one fewer than all of them at
    most. They are played and read, and never in the mask.
    hint: a text behind the task's prompt. hidden: it is read while the row is sampled and is no part of the row, so
    `rollout_logp` is that of who has read it, and whoever evaluates the row has not.
    """

    given: int = 0
    hint: str = ""
    hidden: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class RolloutRequest:
    """The rollouts that a source is asked for.

    tasks: [M] their numbers.
    copies: rollouts of each task, one number for all or [M]; 0 for none.
    support: what the policy is sampled over.
    max_decisions: the most decisions of a row, None for the source's own limit. A row that has not ended by then has
        neither terminated nor been truncated, and its outcome is what it was paid so far.
    starts: how the rollouts of each task begin, one for each of `tasks`; None for plain ones.
    lookahead: lets the first lookahead.branches(copies) rows of each task be the leaves of a tree; it needs a source
        with "steps".
    """

    tasks: Tensor
    copies: int | Tensor
    support: Support = PLAIN
    max_decisions: int | None = None
    starts: Sequence[Start] | None = None
    lookahead: LookaheadConfig | None = None

    @property
    def counts(self) -> Tensor:
        """[M] how many rollouts of each task."""
        return torch.as_tensor(self.copies, device=self.tasks.device).expand(len(self.tasks))

    def of(self, places: Tensor) -> RolloutRequest:
        """The same of the tasks at these places in `tasks` alone, [K]."""
        starts = None if self.starts is None else [self.starts[i] for i in places.tolist()]
        return dataclasses.replace(self, tasks=self.tasks[places], copies=self.counts[places], starts=starts)

    @property
    def group(self) -> Tensor:
        """[B] the place in `tasks` of each rollout's task."""
        return torch.arange(len(self.tasks), device=self.tasks.device).repeat_interleave(self.counts)


class Sampling(Part):
    """`sampling(source) -> Experience`: which experience one optimiser batch is made of."""

    def __call__(self, source: Any) -> Experience:  # a `Source` with the capabilities that the part declares
        """The experience that `forward` makes, marked as made by this part.

        Raises:
            SourceError: the source lacks a capability that this part, or one inside it, declares.
        """
        check_source(self, source)
        return self.mark(super().__call__(source))

    def forward(self, source: Any) -> Experience:
        raise NotImplementedError

    @property
    def group_size(self) -> int:
        """Rollouts of one prompt, on average where their number varies; 1 where a row stands alone."""
        return 1

    @property
    def rollout_support(self) -> Support | None:
        """The support over which the policy is sampled; None where nothing is sampled."""
        return None

    @property
    def filters(self) -> Sequence[Select]:
        """The parts that decide, in order, which of the sampled rows stay."""
        return ()

    @property
    def mixers(self) -> Sequence[Part]:
        """The parts that add rows beyond the rollouts, in order."""
        return ()

    @property
    def compared(self) -> int | None:
        """Rollouts of one prompt in a batch, None where their number varies or others join them."""
        return None

    def mark(self, experience: Experience) -> Experience:
        """The batch, marked as one that was made as this part makes it, so that `Algorithm.compute_advantages` takes it
        as it is."""
        return experience.replace(sampled_by=repr(self))

    def made(self, experience: Experience) -> bool:
        """Whether the batch is marked as made by this part."""
        return experience.sampled_by == repr(self)

    def filtered(self, experience: Experience) -> Experience:
        """The rows of a finished batch, made elsewhere, that this part would have kept.

        Raises:
            ExperienceError: the part decides how rollouts are made, for which it is too late.
        """
        raise self.too_late(repr(self))

    @staticmethod
    def too_late(what: str) -> ExperienceError:
        """The refusal of a finished batch. what: the part, or its setting, that decides how a batch is made."""
        return ExperienceError(
            f"Algorithm.compute_advantages: {what} decides how a batch is made, and this one was made elsewhere: "
            "sample with algorithm.sampling(source), or, if your sampler did the same, give compute_advantages "
            "algorithm.sampling.mark(experience)"
        )

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        """About how many tokens are sampled for each token of a full batch, if filters keep so large a share of the
        rows and a row has so many decisions: what planning a run needs to know."""
        return 1.0


class Select(Part):
    """`select(experience) -> experience`: which rows, and which of their decisions, are worth learning from.

    Rows come out whole and in their order; a decision that is left out leaves the mask and stays context.
    judges_demonstrations: whether it is shown the demonstrated rows too; otherwise they stay as they are.
    """

    judges_demonstrations: ClassVar[bool] = False

    def forward(self, experience: Experience) -> Experience:
        raise NotImplementedError


def select_rows(selects: Iterable[Select], experience: Experience) -> Experience:
    """The rows and decisions that the parts leave, in order. Demonstrated rows stay, unless a part judges them too."""
    for select in selects:
        shown = experience.is_demonstration
        if select.judges_demonstrations or not shown.any():
            experience = select(experience)
        elif not shown.all():
            own = select(experience[~shown])
            experience = Experience.join([own, experience[shown].with_missing_fields_of(own)])
    return experience


class TaskSampler(Part):
    """`choice(source, count) -> [count]`: numbers of the tasks that the next rollouts are bought for."""

    def forward(self, source: Any, count: int) -> Tensor:
        raise NotImplementedError

    def observe(self, experience: Experience) -> None:
        """These rollouts were bought, before any filter: `extras["index"]` tells their tasks, `outcome` their worth.

        What is remembered of them moves in training mode only.
        """


class UniformTasks(TaskSampler):
    """The tasks in random order, all of them before any comes again."""

    def forward(self, source: Source, count: int) -> Tensor:
        return source.take(count)


# [M] how many rollouts of each task that was chosen -> these rollouts; `group` is the place among the tasks. It may be
# called again, for more.
Buy = Callable[[Tensor], Experience]


class RolloutAllocator(Part):
    """`budget(source, tasks, group, buy) -> experience`: how many rollouts each task gets, about `group` on average.

    tasks: [M] numbers, as a `TaskSampler` gave them.
    """

    def check(self, group: int) -> None:
        """Raises ValueError where `group` rollouts a task cannot be dealt."""

    def fixed(self, group: int) -> int | None:
        """How many rollouts every task gets, None where their number varies."""
        return None

    def forward(self, source: Any, tasks: Tensor, group: int, buy: Buy) -> Experience:
        raise NotImplementedError

    def observe(self, experience: Experience) -> None:
        """As `TaskSampler.observe`."""


class EqualRollouts(RolloutAllocator):
    """The same number of rollouts for every task."""

    def fixed(self, group: int) -> int:
        return group

    def forward(self, source: Source, tasks: Tensor, group: int, buy: Buy) -> Experience:
        return buy(torch.full_like(tasks, group))


class PromptAugmenter(Part):
    """`guide(source, tasks) -> (tasks, starts)`: how the rollouts of the chosen tasks begin.

    A task may come out several times, each a group of its own; each: how often every one of them does.
    """

    each: ClassVar[int] = 1

    def forward(self, source: Any, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        raise NotImplementedError

    def observe(self, experience: Experience) -> None:
        """As `TaskSampler.observe`; `extras["given"]` and `extras["hinted"]` tell how each row began."""
