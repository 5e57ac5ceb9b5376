"""A reward by items, of which somebody else may write a better list while the policy learns."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.part import Part
from polopt.rewards.parts import Reward
from polopt.rewards.texts import TextBuffers
from polopt.situation import Situation


class Item(Part):
    """One item of a rubric. name: what it is called. text: what is looked at, in words. most: the mark of a perfect
    answer; the worst has 0. weight: of its mark in the reward. trust: how far it is believed now, 0 to 1, a factor on
    its weight."""

    name: str
    text: str = ""
    most: float = 1.0
    weight: float = 1.0
    trust: float = 1.0

    def setup(self) -> None:
        if not self.name or not 0 < self.most < math.inf or not 0 <= self.weight < math.inf or not 0 <= self.trust <= 1:
            raise ValueError(
                "rewards.Item: need a name, most > 0, weight >= 0 and trust in [0, 1], found "
                f"{self.name!r}, {self.most}, {self.weight} and {self.trust}"
            )


class Grader(Part):
    """`grader(experience, items) -> [B, items]` marks as shares of the most, 0 to 1.

    reads_texts: whether it understands an item by its text, so that any item will do.
    """

    reads_texts: ClassVar[bool] = False

    def forward(self, experience: Experience, items: Sequence[Item]) -> Tensor:
        raise NotImplementedError

    def doubts(self, items: Sequence[Item]) -> Iterator[str]:
        """Sentences on items that pay for something else than a good answer."""
        yield from ()

    def item_fields(self, items: Sequence[Item]) -> frozenset[str]:
        """The fields of a batch that marks for these items need."""
        return frozenset()


class Meta(Part):
    """`meta(items, experience, marks) -> items`: a better rubric, from a few rows and the marks [n, items] that they
    got.

    writes: whether it may invent items.
    """

    may_invent_items: ClassVar[bool] = False

    def forward(self, items: Sequence[Item], experience: Experience, marks: Tensor) -> list[Item]:
        raise NotImplementedError


class RubricReward(Reward):
    """sum_k w_k m_k / sum_k w_k, with m_k the share of its most that item k's mark is, and w_k its weight times trust;
    0 if no item has weight.

    A mean, so that a rubric of other items pays on the same scale.

    meta: rewrites the rubric after every `every` batches that were learned from, from `samples` rows, drawn with
    `seed`, of the last of them; None leaves it alone. The new rubric holds from the next batch on. Its history is
    state: `rubrics`, the latest last.

    Raises:
        ValueError: no items, or a meta that invents items for a grader that cannot read them.
    """

    items: Sequence[Item]
    grader: Grader
    meta: Meta | None = None
    every: int = 10
    samples: int = 20
    seed: int = 0

    def setup(self) -> None:
        if not len(self.items):
            raise ValueError("rewards.RubricReward needs at least one item, found none")
        if self.every < 1 or self.samples < 2:
            raise ValueError(
                f"rewards.RubricReward: need every >= 1 and samples >= 2, found {self.every} and {self.samples}"
            )
        if self.meta is not None and self.meta.may_invent_items and not self.grader.reads_texts:
            raise ValueError(
                f"rewards.RubricReward: {self.meta!r} invents items, and {self.grader!r} knows items by their names "
                "alone; take a grader that reads texts, as rewards.HTTPGrader"
            )
        self.grader.item_fields(self.items)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.history = TextBuffers([written(self.items)])
        self._next: list[Item] | None = None  # lives from a batch's reward to the end of learning from it

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return self.grader.item_fields(self.rubric) if hasattr(self, "history") else frozenset()

    def cautions(self, situation: Situation) -> Iterator[str]:
        yield from self.grader.doubts(self.items)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """How many rubrics there were, and each item's trust, which is a factor of its weight."""
        found = {"rubric/number": float(len(self.history.all())), "rubric/items": float(len(self.rubric))}
        return found | {f"rubric/trust/{item.name}": item.trust for item in self.rubric}

    @property
    def rubric(self) -> tuple[Item, ...]:
        """The items that hold now."""
        return read(self.history.all()[-1])

    @property
    def rubrics(self) -> list[tuple[Item, ...]]:
        """Every rubric so far."""
        return [read(text) for text in self.history.all()]

    def forward(self, experience: Experience) -> Tensor:
        items, batches = self.rubric, int(self.get_buffer("batches"))
        marks = self.grader(experience, items)
        if self.training and self.meta is not None and (batches + 1) % self.every == 0 and len(experience):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + batches)
            rows = torch.randperm(len(experience), generator=generator)[: self.samples].sort().values
            self._next = self.meta(items, experience[rows], marks[rows.to(marks.device)])
        weight = torch.tensor([item.weight * item.trust for item in items], dtype=marks.dtype, device=marks.device)
        return marks @ weight / weight.sum() if weight.any() else marks.new_zeros(len(marks))

    def on_step(self) -> None:
        self.get_buffer("batches").add_(1)
        if self._next is not None:
            self.history.add(written(self._next))
            self._next = None


def written(items: Sequence[Item]) -> str:
    """A rubric as one line of JSON."""
    return json.dumps([item.settings() for item in items])


@functools.lru_cache(maxsize=16)
def read(text: str) -> tuple[Item, ...]:
    """Inverse of `written`. Nobody changes an item, so that equal texts may share theirs."""
    return tuple(Item(**settings) for settings in json.loads(text))
