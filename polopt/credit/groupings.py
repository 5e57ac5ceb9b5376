"""Groupings of the rows that are compared with each other, and measures that split groups."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from polopt import ops
from polopt.credit.parts import Grouping, Measure
from polopt.experience import Experience
from polopt.situation import Situation


class SamePrompt(Grouping):
    """Groups the rows of one prompt or start state: the batch's `group`."""

    parts_prompts = True

    reads = frozenset({"group"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.group


class SameTask(Grouping):
    """Groups the rows of one task, whatever their start: `extras["index"]`, the task's number.

    A task that a prompt augmenter lists several times has several groups by prompt, and one by task.
    """

    reads = frozenset({"extras.index"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.extras["index"]


class WholeBatch(Grouping):
    """Groups all rows of the batch."""

    def forward(self, experience: Experience) -> Tensor:
        return torch.zeros(len(experience), dtype=torch.long, device=experience.device)


class SameKind(Grouping):
    """Groups the rows of one kind of task: `extras["kind"]`, one label for each row."""

    reads = frozenset({"extras.kind"})

    def forward(self, experience: Experience) -> Tensor:
        return torch.tensor(ops.numbered(experience.extras["kind"]), dtype=torch.long, device=experience.device)


class Strata(Grouping):
    """Groups the rows of one prompt that also agree in a measure."""

    by: Measure
    within: Grouping = SamePrompt()

    @property
    def parts_prompts(self) -> bool:  # type: ignore[override]
        return self.within.parts_prompts

    def forward(self, experience: Experience) -> Tensor:
        return ops.crossed(self.within(experience), self.by(experience))


def alone(within: Grouping, situation: Situation) -> Iterator[str]:
    """Yields a refusal if every group of `within` holds a single row, which no other row can be compared with."""
    if situation.group == 1 and within.parts_prompts:
        yield (
            "its groups hold one row each, which there is nothing to compare with, so that nothing is learned; set "
            f"stages.{situation.stage}.group to 2 or more, found 1"
        )


class DecisionCount(Measure):
    """Number of decisions."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.lengths.to(experience.precision)


class TurnCount(Measure):
    """Number of turns with at least one decision."""

    reads = frozenset({"turn"})

    def forward(self, experience: Experience) -> Tensor:
        turn = torch.where(experience.mask, experience.turn, -1).sort(1).values
        new = torch.cat([turn[:, :1] >= 0, (turn[:, 1:] != turn[:, :-1]) & (turn[:, 1:] >= 0)], 1)
        return new.sum(1).to(experience.precision)


class MeanEntropy(Measure):
    """Mean entropy of the behaviour policy at the row's decisions, in nats; 0 for a row without decisions."""

    reads = frozenset({"entropy"})

    def forward(self, experience: Experience) -> Tensor:
        entropy = torch.where(experience.mask, experience.entropy, 0)
        return entropy.sum(1) / experience.lengths.clamp(min=1)


class FieldMeasure(Measure):
    """A number that the environment or the training loop recorded for each row: `extras[name]`, [B]."""

    name: str

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({f"extras.{self.name}"})

    def forward(self, experience: Experience) -> Tensor:
        return torch.as_tensor(experience.extras[self.name], device=experience.device)
