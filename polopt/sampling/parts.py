"""The kinds of part that sampling is made of, and what a loop offers them."""

from __future__ import annotations

from typing import ClassVar, Protocol

import torch
from torch import Tensor

from polopt.experience import Experience, Support
from polopt.part import Part


class Source(Protocol):
    """Where experience comes from; every training loop is one.

    rows: how many rows the loop wants in one optimiser batch. generator: what random choices are drawn with; its
    state is part of a checkpoint.
    """

    rows: int
    generator: torch.Generator

    def rollout(self, prompts: int, group: int, support: Support, window: int | None = None) -> Experience:
        """Play the next `prompts` tasks `group` times each, with the current policy over `support`.

        Gives `mask`, `logp`, `outcome`, `reward`, `group`, `terminated`, `truncated`, `entropy` if the sampler
        knows it, `extras["tokens"]` ([B, T], what was decided and read), `extras["answer"]` (str a row: what the policy
        answered) and `extras["kind"]` (str a row: what kind of task it was). Where the support's temperature follows
        the entropy, also `extras["temperature"]` and `extras["plain_entropy"]`, the entropy that it follows.

        window: the most decisions of a row; one that has not ended by then has neither terminated nor been truncated,
        and its outcome is what it was paid so far.
        """
        ...

    def extend(
        self, experience: Experience, copies: int, window: int | None = None, at: Tensor | None = None
    ) -> Experience:
        """Go on, `copies` times each, from where rows that have not ended stand, or from before the decision at column
        `at` [B] of any row: with the current policy over the rows' support, for at most `window` more decisions.

        Row i's continuations are rows i * copies onwards. They are whole rows as `rollout` gives them, of the same
        `group`; what was decided before keeps its `logp`. Only the tensors of `experience` are read.
        """
        ...

    def demonstrate(self, rows: int) -> Experience:
        """The next `rows` tasks with their demonstrated solutions as decisions: `mask`, `outcome` = 1."""
        ...

    def solve(self, experience: Experience) -> Experience:
        """As `demonstrate`, of the tasks of these rows: one row for each group, under its number."""
        ...

    def texts(self, rows: int, length: int) -> Experience:
        """The next `rows` raw texts as decisions, in pieces of at most `length` tokens: `mask`, `outcome` = 1."""
        ...

    def recall(self, experience: Experience) -> Experience:
        """Rows of an earlier `rollout` of which only the tensors were kept: the same rows, with their lists. What
        the source itself fills in of the learner's opinion is that of the learner now."""
        ...


class Sampling(Part):
    """`sampling(source) -> Experience`: which experience one optimiser batch is made of.

    asks: what the source must have besides tasks, any of "demonstrations" and "texts".
    """

    asks: ClassVar[frozenset[str]] = frozenset()

    def forward(self, source: Source) -> Experience:
        raise NotImplementedError


class Select(Part):
    """`select(experience) -> experience`: which rows, and which of their decisions, are worth learning from.

    Rows come out whole and in their order; a decision that is left out leaves the mask and stays context.
    judges_demonstrations: whether it is shown the demonstrated rows too; otherwise they stay as they are.
    """

    judges_demonstrations: ClassVar[bool] = False

    def forward(self, experience: Experience) -> Experience:
        raise NotImplementedError
