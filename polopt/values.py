"""Checks for batches that cannot be learned from: NaN, infinities, and log-probabilities above 0."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.support import Support

LOGPS = ("rollout_logp", "old_logp", "ref_logp", "prev_logp")
# Checked at all decisions; `reward` too, where each decision has one.
DECISIONS = (*LOGPS, "value", "entropy", "advantage", "value_target")
# These fields have a meaning for sampled decisions only; demonstrations have none.
SAMPLED = ("rollout_logp", "entropy")
ROWS = ("outcome", "reward")
# Other rewards of rows, in `extras`.
RECORDED_REWARDS = ("greedy_reward", "answer_reward")


class _Field(NamedTuple):
    """One tensor, [B] or [B, T], and its valid entries. mask: the decisions of a [B, T] field, None for every entry.
    highest: the largest value that is possible, if there is one."""

    name: str
    values: Tensor
    mask: Tensor | None
    highest: float | None = None

    @property
    def kind(self) -> tuple[object, ...]:
        """Key of fields that can be checked together."""
        return self.values.shape, self.values.dtype, self.values.device, id(self.mask)

    def allows(self, low: float, high: float) -> bool:
        """Tests whether numbers between these are valid; NaN fails every comparison."""
        return -math.inf < low and high < math.inf and (self.highest is None or high <= self.highest)

    @property
    def wrong(self) -> Tensor:
        """Mask of the invalid entries, in the shape of the values."""
        # A comparison with NaN is False.
        fine = self.values.isfinite()
        fine = fine if self.highest is None else fine & (self.values <= self.highest)
        return ~fine if self.mask is None else ~fine & self.mask


def check_values(
    experience: Experience, by: object, evaluation: Evaluation | None = None, rows: Tensor | None = None
) -> None:
    """Raises ExperienceError for values of a batch, or of a policy's outputs on it, that cannot be learned from.

    Outcomes and rewards, log-probabilities, values, entropies and advantages must be finite, and
    log-probabilities at most 0, up to the rounding that the support allows (`Support.highest`). Only decisions are
    checked, and of [B] fields every row; values off the mask, and the behaviour log-probability of a demonstrated
    row, may be anything. Fields that passed and are unchanged are not checked again. The device is synchronised once,
    or not at all.

    by: the caller; its text begins the error message. rows: [B] the rows' numbers in the message, None for their
    positions.

    Raises:
        ExperienceError: naming the field, the rows and positions, and the fix.
    """
    places, known = _places(experience), dict[str, _Version]()
    if experience._checked is not None and experience._checked[0] == places:
        known = experience._checked[1]
    alike: dict[tuple[object, ...], list[_Field]] = {}
    for field in _fields(experience, evaluation):
        if field.values.numel() and known.get(field.name) != _Version(field.values):
            alike.setdefault(field.kind, []).append(field)
    if not alike:
        return
    # Most of the time is the calls' own: one for each kind of fields, and one for the numbers of all of them.
    least, most = torch.cat([_extremes(fields).to(experience.device) for fields in alike.values()], 1).tolist()
    if all(map(_Field.allows, itertools.chain(*alike.values()), least, most)):
        # Not of the evaluation, which would keep its graph.
        own = (field for fields in alike.values() for field in fields if field.name.startswith("experience."))
        right = {field.name: _Version(field.values) for field in own}
        object.__setattr__(experience, "_checked", (places, {**known, **right}))
        return
    field = next(field for field in _fields(experience, evaluation) if field.wrong.any())
    numbers = torch.arange(len(experience), device=experience.device) if rows is None else rows
    raise ExperienceError(f"{by}: {_sentence(field, numbers)}")


class _Version:
    """A snapshot of a tensor's version: equal to another as long as the tensor is not written to."""

    def __init__(self, tensor: Tensor | None) -> None:
        self.tensor = tensor
        # Tensors of inference mode have no version counter.
        self.number = None if tensor is None or tensor.is_inference() else tensor._version

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Version) or self.tensor is not other.tensor:
            return False
        return self.tensor is None or (self.number is not None and self.number == other.number)

    __hash__ = None  # type: ignore[assignment]


def _places(experience: Experience) -> tuple[Support, _Version, _Version]:
    """Returns the fields that determine which of a batch's values are checked, and their upper bound."""
    return experience.support, _Version(experience.mask), _Version(experience.extras.get("is_demonstration"))


def _extremes(fields: Sequence[_Field]) -> Tensor:
    """The least and the largest number of each of some fields of one kind, [2, fields]; NaN if one of them is NaN."""
    values = torch.stack([field.values for field in fields]) if len(fields) > 1 else fields[0].values[None]
    if (mask := fields[0].mask) is not None:
        values = torch.where(mask, values, 0)
    return torch.stack(values.flatten(1).aminmax(dim=1))


def _fields(experience: Experience, evaluation: Evaluation | None) -> Iterator[_Field]:
    mask, sampled = experience.mask, experience.mask
    if "is_demonstration" in experience.extras:
        sampled = mask & ~experience.is_demonstration[:, None]
    for name in (*ROWS, *DECISIONS):
        if (values := getattr(experience, name)) is not None:
            highest = experience.support.highest if name in LOGPS else None
            yield _Field(f"experience.{name}", values, _read(values, sampled if name in SAMPLED else mask), highest)
    for name in RECORDED_REWARDS:
        values = experience.extras.get(name)
        if isinstance(values, Tensor) and values.is_floating_point() and values.ndim <= 2:
            yield _Field(f"experience.extras[{name!r}]", values, _read(values, mask))
    if evaluation is not None:
        yield _Field("evaluation.logp", evaluation.logp, mask, evaluation.support.highest)
        for name in ("value", "entropy"):
            if (values := getattr(evaluation, name)) is not None:
                yield _Field(f"evaluation.{name}", values, mask)


def _read(values: Tensor, mask: Tensor) -> Tensor | None:
    return mask if values.ndim == 2 else None


def _sentence(field: _Field, numbers: Tensor) -> str:
    place = field.wrong.nonzero()[0].tolist()
    value = field.values[tuple(place)].item()
    wrong = field.wrong if field.wrong.ndim == 1 else field.wrong.any(1)
    known = numbers[wrong.to(numbers.device)].tolist()
    where = f"row {known[0]}" + (f", position {place[1]}" if len(place) > 1 else "")
    if len(known) > 1:
        others = ", ".join(map(str, known[1:9])) + (f" and {len(known) - 9} more" if len(known) > 9 else "")
        where += f" (and in row{'s' if len(known) > 2 else ''} {others})"
    bound = "finite" if field.highest is None else "finite and at most 0"
    return f"{field.name} must be {bound}, found {value:g} in {where}; {_fix(field, value)}"


def _fix(field: _Field, value: float) -> str:
    name = field.name.rpartition(".")[2]
    if name in ROWS or "extras" in field.name:
        return "correct what computes the reward of these rows, or leave the rows out with experience[keep]"
    if field.highest is not None and 0 < value < torch.inf:
        return (
            "give log-probabilities, not probabilities or losses; log-densities, which may be above 0, belong to "
            "support=po.Density()"
        )
    if field.highest is not None:
        return "a decision that was taken has a probability above 0: correct the policy or sampler that computed it"
    return "correct what computed it, or leave the rows out with experience[keep]"
