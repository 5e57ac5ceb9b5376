"""The one batch that every part reads: B trajectories by T decisions."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.fields import ABSENT, HINTS, PER_DECISION, SHAPES, Binding, ExperienceError, check_fields, listed, requirer
from polopt.names import nearest
from polopt.stacking import stacked_extras, stacked_fields, take, whole_groups
from polopt.support import PLAIN, Support, SupportError


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Experience:
    """A padded batch of decisions, B trajectories by T decisions. Immutable: stages return new views.

    mask: [B, T] bool, True where the policy decided; False on prompts, padding and tool output.
    rollout_logp: [B, T] log-probability of each decision under the behaviour policy, over `support`.
    support: the sampler's reshaping that `rollout_logp` (and every other log-prob of the batch) belongs to.
    horizon: the largest number of decisions of a row, if there is a limit.
    old_logp: [B, T] the learner's own log-probabilities before its first update on this batch.
    ref_logp: [B, T] log-probabilities under a reference policy.
    prev_logp: [B, T] log-probabilities under the learner's policy one batch earlier.
    outcome: [B] the environment's reward of the whole row, before any shaping. reward: [B], or [B, T] for each
        decision, the reward that credit is computed from; `Algorithm.with_advantages` sets it from the outcome.
    terminated, truncated: [B] or [B, T] bool; the end of the episode, and its truncation by a limit.
    group: [B] int64, same number = same prompt or start state.
    turn: [B, T] int64, index of the turn of each decision.
    value: [B, T] critic's value before each decision; final_value: [B] after the last one, or [B, T] after
        each decision at which an episode inside the row was truncated.
    value_target: [B, T] the critic's target before each decision; credit computes it.
    entropy: [B, T] of the sampler's distribution at each decision, in nats.
    advantage: [B, T] how much better than expected each decision was; credit computes it.
    extras: tensors with leading dimension B, or lists of length B, by name; `polopt.extras.EXTRAS` is the registry of
        the names, shapes and types that polopt's own parts use, and those are checked.
    sampled_by: the sampling part that made the batch, as it prints; None for a batch from anywhere else, to which
        `Algorithm.compute_advantages` applies that part's filters.
    full_batch_evaluation: the current policy's outputs on the whole optimiser batch, without gradient, for the parts
        that need a statistic of all of it (`Part.full_batch_outputs`). It is set before a batch is split.

    Raises:
        ExperienceError: a field whose shape or type is not as above.
    """

    mask: Tensor
    rollout_logp: Tensor = ABSENT
    support: Support = PLAIN
    horizon: int | None = None
    old_logp: Tensor = ABSENT
    ref_logp: Tensor = ABSENT
    prev_logp: Tensor = ABSENT
    reward: Tensor = ABSENT
    outcome: Tensor = ABSENT
    terminated: Tensor = ABSENT
    truncated: Tensor = ABSENT
    group: Tensor = ABSENT
    turn: Tensor = ABSENT
    value: Tensor = ABSENT
    final_value: Tensor = ABSENT
    entropy: Tensor = ABSENT
    advantage: Tensor = ABSENT
    value_target: Tensor = ABSENT
    extras: dict[str, Any] = dataclasses.field(default_factory=dict)
    sampled_by: str | None = None
    full_batch_evaluation: Evaluation = ABSENT
    declared_as: ClassVar[str] = "reads"  # where a part lists the fields that it reads
    _whole: Experience | None = None
    _rows: Tensor | None = None  # which rows of the whole these are
    _counted: Experience | None = None
    _kept: Tensor | None = None  # [B] bool, the rows that `restrict` left
    _checked: Any = None  # fields that `check_values` has passed, which need no second check

    def __post_init__(self) -> None:
        check_fields(self.mask, {name: getattr(self, name) for name in _FIELDS})

    def __len__(self) -> int:
        return self.mask.shape[0]

    def __repr__(self) -> str:
        """Lists the fields that are set, by type and shape."""
        fields = {name: value for name in SHAPES if (value := getattr(self, name)) is not None}
        rest = {"support": self.support, "horizon": self.horizon, "sampled_by": self.sampled_by}
        settings = [f"{k}={v!r}" for k, v in rest.items() if v is not None and v != PLAIN]
        return f"Experience({', '.join([*listed(fields), *listed(self.extras, 'extras.'), *settings])})"

    @property
    def device(self) -> torch.device:
        return self.mask.device

    @property
    def full_batch(self) -> Experience:
        """Returns the optimiser batch that this micro-batch was split from; itself if it was not split.

        Every normaliser is computed on it, so that a split never changes a loss.
        """
        return self if self._whole is None else self._whole

    @property
    def denominator_batch(self) -> Experience:
        """Returns the batch that denominators count: the whole, unless several branches share one denominator."""
        return self.full_batch if self._counted is None else self._counted

    @property
    def row_count(self) -> int:
        """Number of rows that a mean over rows divides by, empty ones too: those kept by `restrict`, else all."""
        return len(self) if self._kept is None else int(self._kept.sum())

    @property
    def is_demonstration(self) -> Tensor:
        """Mask of the demonstrated rows, [B], which are to be imitated. A batch without the flag has none.

        Demonstrations have no behaviour log-probability: `rollout_logp` holds 0 there, without meaning. They are left
        out of ratios, of metrics of the behaviour policy, and of every statistic that credits rollouts; their own
        advantage is 1 on each decision.
        """
        mask = self.extras.get("is_demonstration")
        return torch.zeros(len(self), dtype=torch.bool, device=self.device) if mask is None else mask

    @property
    def is_opponent(self) -> Tensor:
        """Mask of the opponents' rows, [B], with which a reward compares the others. A batch without the flag has none.

        They leave the batch once rewards are computed: neither credit nor the objective sees them.
        """
        mask = self.extras.get("is_opponent")
        return torch.zeros(len(self), dtype=torch.bool, device=self.device) if mask is None else mask

    def local_rows(self, values: Tensor) -> Tensor:
        """Selects this micro-batch's rows of `values`, which has one entry for each row of `full_batch`: [B of the
        whole, ...] -> [B, ...]."""
        return values if self._rows is None else values[self._rows]

    def place(self, index: Tensor | None = None) -> Tensor | None:
        """Returns the positions [M] in the whole batch of rows of this one; of all rows, None if it was not split."""
        if index is None:
            return self._rows
        return index if self._rows is None else self._rows[index]

    def with_full_batch_evaluation(self, evaluation: Evaluation) -> Self:
        """Returns the batch with its full-batch evaluation; for a batch that was not split, that is `evaluation`
        itself.

        Raises:
            ExperienceError: the batch was split without a full-batch evaluation.
        """
        if self._whole is None:
            return self.replace(full_batch_evaluation=evaluation.detach())
        if self._whole.full_batch_evaluation is None:
            raise ExperienceError(
                "this objective needs a statistic of the whole optimiser batch under the current policy, and the batch "
                "was split without one; before experience.split, evaluate the policy on the whole and set "
                "experience.replace(full_batch_evaluation=evaluation.detach())"
            )
        return self

    def restrict(self, keep: Tensor, counted: Experience | None = None) -> Self:
        """Returns the batch with fewer decisions: `keep` is bool, [B] or [B, T] of the whole. Normalisers count the
        kept decisions, and the kept rows if it is [B]; denominators too, or those of `counted`."""
        whole, kept = self.full_batch, self.full_batch._kept
        if keep.ndim == 1:
            kept = keep if kept is None else kept & keep
            keep = keep[:, None]
        narrowed = whole._changed({"mask": whole.mask & keep, "_kept": kept, "_counted": counted})
        if self._whole is None:
            return narrowed  # type: ignore[return-value]
        return self._changed({"mask": self.mask & self.local_rows(keep), "_whole": narrowed, "_counted": counted})

    def require(self, names: Iterable[str], by: object) -> None:
        """Checks that the fields `names`, which `by` reads, are set.

        Raises:
            ExperienceError: naming the part, the field, its expected shape and how to fill it in.
        """
        for name in sorted(names):
            if name.startswith("extras."):
                key = name.removeprefix("extras.")
                if key not in self.extras:
                    raise ExperienceError(
                        f"{requirer(by)} needs experience.extras[{key!r}] with B = {len(self)} entries, found none; "
                        f"extras holds {sorted(self.extras) or 'nothing'}"
                    )
            elif name not in SHAPES:
                raise ExperienceError(f"{requirer(by)} declares a need for {name!r}, which is no field of Experience")
            elif getattr(self, name) is None:
                B, T = self.mask.shape
                shapes = " or ".join(str([B] if s == "B" else [B, T]) for s in SHAPES[name])
                fix = f"; {HINTS[name]}" if name in HINTS else ""
                raise ExperienceError(f"{requirer(by)} needs experience.{name} of shape {shapes}, found None{fix}")

    def replace(self, **changes: Any) -> Self:
        """Returns a view with some fields changed; `extras` given here are added to those already there."""
        if "extras" in changes:
            changes["extras"] = {**self.extras, **changes["extras"]}
        return self._changed(changes)

    def _changed(self, changes: Mapping[str, Any]) -> Self:
        """Returns a changed copy, as `dataclasses.replace`, but checks the changed fields only."""
        for name in changes.keys() - _FIELDS.keys():
            raise TypeError(f"Experience has no field {name!r}{nearest(name, (n for n in _FIELDS if n[0] != '_'))}")
        result = object.__new__(type(self))
        result.__dict__.update(self.__dict__)
        result.__dict__.update(changes)
        sized = "mask" not in changes or getattr(result.mask, "shape", None) == self.mask.shape
        check_fields(result.mask, changes if sized else {name: getattr(result, name) for name in _FIELDS})
        return result

    def with_missing_fields_of(self, other: Experience) -> Self:
        """Adds the fields that only `other` has, blank: 0 and False, -1 for integers, None in lists."""
        B, T = self.mask.shape

        def blank(value: Any, shape: Sequence[int]) -> Any:
            if not isinstance(value, Tensor):
                return [None] * B
            integer = not value.is_floating_point() and value.dtype != torch.bool
            return value.new_full(tuple(shape), -1 if integer else 0)

        absent = {n: v for n in SHAPES if getattr(self, n) is None and (v := getattr(other, n)) is not None}
        fields = {name: blank(value, (B, T)[: value.ndim]) for name, value in absent.items()}
        unknown = {name: value for name, value in other.extras.items() if name not in self.extras}
        extras = {name: blank(value, (B, *getattr(value, "shape", (B,))[1:])) for name, value in unknown.items()}
        return self.replace(extras=extras, **fields)

    def returns(self) -> Tensor:
        """Undiscounted return of each row, [B]: the outcome, or the sum of its decisions' rewards; of a row without
        decisions `extras["row_reward"]`, or 0."""
        self.require({"reward"}, by="Experience.returns")
        if self.reward.ndim == 1:
            return self.reward
        total = torch.where(self.mask, self.reward, 0).sum(1)
        alone = self.extras.get("row_reward")
        return total if alone is None else torch.where(self.mask.any(1), total, alone.to(total))

    @property
    def precision(self) -> torch.dtype:
        """The type of the batch's numbers, in which rewards and advantages are computed: the outcome's, the reward's
        or the log-probabilities'."""
        known = (self.outcome, self.reward, self.rollout_logp)
        return next((value.dtype for value in known if value is not None), torch.get_default_dtype())

    @property
    def temperatures(self) -> float | Tensor:
        """Temperatures by which logits are divided: the support's, or [B, T] where each decision has its own.

        Raises:
            ExperienceError: temperatures depend on the entropy, and `extras["temperature"]` is missing.
        """
        if self.support.by_entropy is None:
            return self.support.temperature
        self.require({"extras.temperature"}, by="a support whose temperature follows the entropy")
        return self.extras["temperature"]

    @property
    def lengths(self) -> Tensor:
        """Number of decisions in each row, [B]."""
        return self.mask.sum(1)

    def __getitem__(self, rows: Any) -> Self:
        """Returns a new batch of some rows: a slice, a bool mask or indices. Its normalisers are its own."""
        if not isinstance(rows, slice):
            rows = torch.as_tensor([rows] if isinstance(rows, int) else rows, device=self.device)
            rows = rows if rows.dtype == torch.bool else rows.long()
        alone: dict[str, Any] = {"full_batch_evaluation": ABSENT, "_whole": None, "_rows": None, "_counted": None}
        alone["_kept"] = None if self._kept is None else self._kept[rows]
        return self._changed({**alone, **self._map(lambda v: take(v, rows))})

    def split(self, rows: int, only: Tensor | None = None, binds: Binding = "row") -> Iterator[Self]:
        """Yields micro-batches of 1 to `rows` rows that refer to the whole batch for their normalisers.

        only: [B] bool, leaves out rows that contribute nothing.
        binds: the unit that stays together, an objective's `binding`. "group": micro-batches of whole groups, in the
            order of their first rows; a group of more than `rows` rows is a micro-batch of its own.

        Raises:
            ExperienceError: binds is "group" and the batch has no `group`.
        """
        for index in self.micro_batches(rows, only, binds):
            yield self.piece(index)

    def micro_batches(self, rows: int, only: Tensor | None = None, binds: Binding = "row") -> Sequence[Tensor]:
        """Returns the positions [M] of the rows of each micro-batch of `split`."""
        if rows < 1:
            raise ValueError(f"Experience.split: rows per micro-batch must be >= 1, found {rows}")
        chosen = torch.arange(len(self), device=self.device) if only is None else only.nonzero().flatten()
        if not len(chosen):
            return ()
        if binds != "group":
            return chosen.split(rows)
        self.require({"group"}, by="Experience.split(binds='group')")
        return whole_groups(chosen, self.group[chosen], rows)

    def piece(self, index: Tensor) -> Self:
        """Returns the rows at these positions [M], in this order, as a micro-batch that refers to the whole batch."""
        return self[index]._changed({"_whole": self.full_batch, "_rows": self.place(index), "_counted": self._counted})

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Moves every tensor, as `Tensor.to`; a dtype applies to the floating-point ones only.

        A micro-batch still refers to its whole batch, which is not moved; a full-batch evaluation is dropped.
        """

        def move(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if value.is_floating_point():
                return value.to(*args, **kwargs)
            # Never through the floating-point dtype: large group numbers would be rounded together.
            return value.to(torch.empty(0, device=value.device).to(*args, **kwargs).device)

        return self._changed({"full_batch_evaluation": ABSENT, "_kept": move(self._kept), **self._map(move)})

    def zero_masked(self) -> Self:
        """Sets per-decision fields to 0 outside the mask, so that no value there can reach a loss, not even NaN."""
        blank: dict[str, Any] = {
            name: torch.where(self.mask, value, 0)
            for name in PER_DECISION
            if (value := getattr(self, name)) is not None
        }
        return self._changed(blank)

    def _map(self, change: Any) -> dict[str, Any]:
        tensors = {n: change(v) for n in SHAPES if (v := getattr(self, n)) is not None}
        return {**tensors, "extras": {k: change(v) for k, v in self.extras.items()}}

    @classmethod
    def cat(cls, parts: Sequence[Experience]) -> Experience:
        """Stacks batches, padding to the longest T: integers with -1, the rest with 0. The group numbers of
        different batches are kept distinct.

        Raises:
            SupportError: the batches were sampled from different supports.
            ExperienceError: a field is there in some batches and not in others, or not of the same rank.
        """
        if not parts:
            raise ExperienceError("Experience.cat needs at least one batch, found none")
        first = parts[0]
        for part in parts[1:]:
            if part.support != first.support:
                raise SupportError(
                    f"Experience.cat: batches sampled under {first.support} and {part.support} do not mix"
                )
        fields = stacked_fields([{name: getattr(part, name) for name in SHAPES} for part in parts])
        extras = stacked_extras([part.extras for part in parts])
        horizons, makers = {p.horizon for p in parts}, {p.sampled_by for p in parts}
        horizon = horizons.pop() if len(horizons) == 1 else None
        maker = makers.pop() if len(makers) == 1 else None
        return cls(support=first.support, horizon=horizon, extras=extras, sampled_by=maker, **fields)

    @classmethod
    def join(cls, parts: Sequence[Experience]) -> Experience:
        """Stacks batches as `cat`, but with common group numbers: one number means one group in all of them.

        Raises:
            SupportError, ExperienceError: as `cat`; or a batch has no `group`.
        """
        for part in parts:
            part.require({"group"}, by="Experience.join")
        return cls.cat(parts).replace(group=torch.cat([part.group for part in parts]))


def _public(cls: type) -> inspect.Signature:
    """Returns the signature of a dataclass without its private fields."""
    whole = inspect.signature(cls)
    return whole.replace(parameters=[p for name, p in whole.parameters.items() if not name.startswith("_")])


# In their order, as keys.
_FIELDS = dict.fromkeys(field.name for field in dataclasses.fields(Experience))
Experience.__signature__ = _public(Experience)  # type: ignore[attr-defined]
