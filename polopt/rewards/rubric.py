"""Rubric rewards, with items that a meta-part may rewrite during training."""

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
    """One item of a rubric.

    name: the item's name.
    text: the criterion, in words.
    most: the mark of a perfect answer; the worst has 0.
    weight: weight of its mark in the reward.
    trust: current trust in the item, 0 to 1, a factor of its weight.
    """

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
    """Base of graders: `grader(experience, items) -> [B, items]` marks as fractions of the most, 0 to 1.

    reads_texts: whether the grader interprets an item by its text, so that it can grade any item.
    """

    reads_texts: ClassVar[bool] = False

    def forward(self, experience: Experience, items: Sequence[Item]) -> Tensor:
        raise NotImplementedError

    def doubts(self, items: Sequence[Item]) -> Iterator[str]:
        """Yields sentences on items that reward something other than a good answer."""
        yield from ()

    def item_fields(self, items: Sequence[Item]) -> frozenset[str]:
        """Returns the fields of a batch that marks for these items need."""
        return frozenset()


class Meta(Part):
    """Base of parts that improve a rubric: `meta(items, experience, marks) -> items`, from a few rows and their marks
    [n, items].

    may_invent_items: whether the part may write new items.
    """

    may_invent_items: ClassVar[bool] = False

    def forward(self, items: Sequence[Item], experience: Experience, marks: Tensor) -> list[Item]:
        raise NotImplementedError


class RubricReward(Reward):
    """Weighted mean of marks, sum_k w_k m_k / sum_k w_k; 0 if no item has weight.

    m_k is item k's mark as a fraction of its most, and w_k its weight times its trust. A mean keeps the scale when the
    rubric changes. A new rubric is used from the next batch on. The history of rubrics is state: `rubrics`, the latest
    last.

    meta: rewrites the rubric after every `every` training batches, from `samples` rows of the last of them, drawn with
        `seed`; None keeps it.

    Raises:
        ValueError: no items, or a meta that invents items for a grader that cannot read them.
    """

    tags = frozenset({"reward_source=model"})

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
                f"rewards.RubricReward: {self.meta!r} invents items, and {self.grader!r} identifies items by their "
                "names alone; take a grader that reads texts, as rewards.HTTPGrader"
            )
        self.grader.item_fields(self.items)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.history = TextBuffers([written(self.items)])
        self._next: list[Item] | None = None  # held from a batch's reward until the step on it

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return self.grader.item_fields(self.rubric) if hasattr(self, "history") else frozenset()

    def cautions(self, situation: Situation) -> Iterator[str]:
        yield from self.grader.doubts(self.items)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the number of rubrics so far and of items, and each item's trust, which is a factor of its weight."""
        found = {"rubric/number": float(len(self.history.all())), "rubric/items": float(len(self.rubric))}
        return found | {f"rubric/trust/{item.name}": item.trust for item in self.rubric}

    @property
    def rubric(self) -> tuple[Item, ...]:
        """The current items."""
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
    """Serialises a rubric to one line of JSON."""
    return json.dumps([item.settings() for item in items])


@functools.lru_cache(maxsize=16)
def read(text: str) -> tuple[Item, ...]:
    """Parses a rubric written by `written`; equal texts share their items, which are never modified."""
    return tuple(Item(**settings) for settings in json.loads(text))
