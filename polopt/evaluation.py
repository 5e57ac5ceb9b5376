"""The current policy's outputs on the decisions of a batch, and the loss that an objective computes from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from polopt.fields import ABSENT, ExperienceError, describe, listed, requirer
from polopt.support import PLAIN, Support

# The current policy's outputs for each decision.
OUTPUTS = ("logp", "entropy", "logits", "value")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Evaluation:
    """The *current* policy's outputs on the decisions of a batch, with gradient.

    logp: [B, T] over `support`. Only if some part declares them: entropy [B, T] in nats,
    logits [B, T, V] (divided by the temperature), value [B, T] and final_value [B]. extras: other outputs of a policy,
    by name, [B, T, ...].
    """

    logp: Tensor
    support: Support = PLAIN
    entropy: Tensor = ABSENT
    logits: Tensor = ABSENT
    value: Tensor = ABSENT
    final_value: Tensor = ABSENT
    extras: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    declared_as: ClassVar[str] = "policy_outputs"

    def require(self, names: Iterable[str], by: object) -> None:
        """Raises ExperienceError, as `Experience.require`, for an output of the policy that is missing."""
        for name in sorted(names):
            extra = name.removeprefix("extras.")
            if (getattr(self, name, None) if extra == name else self.extras.get(extra)) is None:
                raise ExperienceError(
                    f"{requirer(by)} needs evaluation.{name} of shape {list(self.logp.shape)}, found None; "
                    f"evaluate the policy with needs={{{name!r}}}"
                )

    def __repr__(self) -> str:
        """Lists the fields that are set, by type and shape."""
        fields = {name: value for name in (*OUTPUTS, "final_value") if (value := getattr(self, name)) is not None}
        settings = [] if self.support == PLAIN else [f"support={self.support!r}"]
        return f"Evaluation({', '.join([*listed(fields), *listed(self.extras, 'extras.'), *settings])})"

    def check(self, mask: Tensor) -> None:
        """Checks that the shapes of the evaluation are those of the batch with this mask [B, T].

        Raises:
            ExperienceError: shapes that differ from the mask's.
        """
        for name in OUTPUTS:
            value = getattr(self, name)
            rank = 3 if name == "logits" else 2
            if value is not None and (value.ndim != rank or value.shape[:2] != mask.shape):
                raise ExperienceError(
                    f"Evaluation: field {name!r} must be [{'B, T, V' if rank == 3 else 'B, T'}] with [B, T] = "
                    f"{list(mask.shape)}, found {describe(value)}"
                )
        for name, value in self.extras.items():
            if value.shape[:2] != mask.shape:
                raise ExperienceError(
                    f"Evaluation: extras[{name!r}] must be [B, T, ...] with [B, T] = {list(mask.shape)}, "
                    f"found {describe(value)}"
                )

    def zero_masked(self, mask: Tensor) -> Evaluation:
        """Sets outputs to 0, with zero gradient, where `mask` is False."""

        def blank(value: Tensor) -> Tensor:
            return torch.where(mask.reshape(*mask.shape, *[1] * (value.ndim - 2)), value, 0)

        return self.mapped(lambda name, value: blank(value) if name in OUTPUTS or name in self.extras else value)

    def detach(self) -> Evaluation:
        """Returns the evaluation without gradient."""
        return self.mapped(lambda name, value: value.detach())

    @classmethod
    def cat(cls, parts: Sequence[Evaluation]) -> Evaluation:
        """Concatenates the evaluations of the micro-batches of one batch, in order."""
        first, names = parts[0], (*OUTPUTS, "final_value")
        fields = {n: torch.cat([getattr(p, n) for p in parts]) for n in names if getattr(first, n) is not None}
        extras = {k: torch.cat([p.extras[k] for p in parts]) for k in first.extras}
        return cls(support=first.support, extras=extras, **fields)

    def to(self, device: torch.device | str) -> Evaluation:
        """Moves the evaluation to another device."""
        return self.mapped(lambda name, value: value.to(device))

    def __getitem__(self, rows: Tensor) -> Evaluation:
        """Selects rows by position, in this order."""
        return self.mapped(lambda name, value: value[rows])

    def mapped(self, change: Callable[[str, Tensor], Tensor]) -> Evaluation:
        """Replaces each value by `change(name, value)`."""
        fields = {n: change(n, v) for n in (*OUTPUTS, "final_value") if (v := getattr(self, n)) is not None}
        return dataclasses.replace(self, extras={k: change(k, v) for k, v in self.extras.items()}, **fields)  # type: ignore[arg-type]


class Loss(NamedTuple):
    """loss: scalar with gradient. metrics: name -> scalar; those of micro-batches add up to the batch's."""

    loss: Tensor
    metrics: dict[str, Tensor]


def add_metrics(parts: Iterable[Mapping[str, Tensor | float]]) -> dict[str, float]:
    """Sums the metrics of micro-batches, which are shares of the whole batch's."""
    total: dict[str, float] = {}
    for metrics in parts:
        for name, value in metrics.items():
            total[name] = total.get(name, 0.0) + float(value)
    return total
