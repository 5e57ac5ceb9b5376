"""Fields of a batch: their shapes and types, and the errors for missing fields and wrong shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from polopt.errors import UserError
from polopt.extras import EXTRAS
from polopt.part_names import name_of


class ExperienceError(UserError, ValueError):
    """A field is missing or has the wrong shape or type. The message names what needs it and the fix."""


# A field is None until it is computed. Parts declare the fields that they read, and a call without one raises an
# error first, so the fields are typed as the tensors that the parts then read.
ABSENT: Any = None

# Units that must stay together in one micro-batch: one decision, the decisions of a row, or the rows of a group.
Binding = Literal["decision", "row", "group"]

# Field -> the shapes it may have. B rows (trajectories), T decisions.
SHAPES: dict[str, tuple[str, ...]] = {
    "mask": ("BT",),
    "rollout_logp": ("BT",),
    "old_logp": ("BT",),
    "ref_logp": ("BT",),
    "prev_logp": ("BT",),
    "value": ("BT",),
    "entropy": ("BT",),
    "advantage": ("BT",),
    "value_target": ("BT",),
    "turn": ("BT",),
    "reward": ("B", "BT"),
    "terminated": ("B", "BT"),
    "truncated": ("B", "BT"),
    "group": ("B",),
    "outcome": ("B",),
    "final_value": ("B", "BT"),
}
FLOATS = frozenset(SHAPES) - {"mask", "terminated", "truncated", "group", "turn"}
BOOLS = frozenset({"mask", "terminated", "truncated"})
# Meaningful only where the policy decided; `zero_masked` clears the rest.
PER_DECISION = ("rollout_logp", "old_logp", "ref_logp", "prev_logp", "value", "entropy", "advantage", "value_target")
# Prefix of fields with the policy's `Evaluation.extras` from before its first update on the batch.
OLD = "extras.old_"

# Auxiliary policy -> the field with its log-probabilities [B, T] of the batch's decisions; that of any other
# name is `extras.<name>_logp`.
POLICY_FIELDS = {"reference": "ref_logp", "previous": "prev_logp"}
# Fields with the log-probabilities under the learner itself at an earlier time.
OWN_FIELDS = {"sampler": "rollout_logp", "old": "old_logp"}


def policy_field(name: str) -> str:
    """Returns the field of a batch that holds the log-probabilities under another policy than the present one.

    name: reference; previous, the learner one batch earlier; sampler, the behaviour policy; old, the learner before its
        first update on the batch; or the name of a policy that the stage gives.
    """
    return (POLICY_FIELDS | OWN_FIELDS).get(name, f"extras.{name}_logp")


HINTS = {
    "advantage": "set it with experience.replace(advantage=algorithm.credit(experience))",
    "value_target": "take one credit that has targets for a critic, as credit.GAE, and set the field with "
    "algorithm.with_advantages(experience)",
    "ref_logp": "evaluate the reference policy on this batch",
    "prev_logp": "evaluate the policy as it was one batch earlier on this batch",
    "old_logp": "evaluate the policy on this batch before its first update",
    "value": "the policy needs a critic: build it with critic=True",
    "rollout_logp": "record the behaviour policy's log-probabilities while sampling",
    "group": "number the rows by prompt or start state",
    "reward": "score the rollouts first",
    "outcome": "give each row's reward as reward or outcome, [B]",
}


def check_fields(mask: Any, fields: Mapping[str, Any]) -> None:
    """Raises ExperienceError for a wrong type or shape of one of these fields of a batch with this mask; None is an
    absent field.

    Raises:
        ExperienceError: naming the field, its expected type and shape, and the given ones.
    """
    if "mask" in fields and not (isinstance(mask, Tensor) and mask.ndim == 2 and mask.dtype == torch.bool):
        raise ExperienceError(f"Experience: field 'mask' must be bool of shape [B, T], found {describe(mask)}")
    for name, value in fields.items():
        if name in SHAPES and value is not None:
            _check_field(name, value, mask.shape)
    if "extras" in fields:
        _check_extras(fields["extras"], mask)


def _check_field(name: str, value: Any, size: torch.Size) -> None:
    if isinstance(value, Tensor):
        dtype, rank = value.dtype, "B" if value.ndim == 1 else "BT"
        if name in FLOATS:
            right_kind = dtype.is_floating_point
        else:
            right_kind = dtype == torch.bool if name in BOOLS else dtype in (torch.int64, torch.int32)
        if right_kind and rank in SHAPES[name] and value.shape == (size if rank == "BT" else size[:1]):
            return
    expected = " or ".join(f"[{', '.join(s)}] = {list(size if s == 'BT' else size[:1])}" for s in SHAPES[name])
    kind = "bool" if name in BOOLS else "floating point" if name in FLOATS else "integer"
    raise ExperienceError(f"Experience: field {name!r} must be {kind} of shape {expected}, found {describe(value)}")


def _check_extras(extras: Any, mask: Tensor) -> None:
    if not isinstance(extras, dict):
        raise ExperienceError(
            f"Experience: extras must be a dict of tensors and lists by name, found {type(extras).__name__}"
        )
    rows, decisions = mask.shape
    for name, value in extras.items():
        if not hasattr(value, "__len__") or len(value) != rows:
            raise ExperienceError(
                f"Experience: extras[{name!r}] must have one entry per row, B = {rows}, found {describe(value)}"
            )
        known = EXTRAS.get(name)
        if known is not None and (expected := known.problem(value, rows, decisions)) is not None:
            raise ExperienceError(f"Experience: extras[{name!r}] must be {expected}, found {describe(value)}")


def check_shape(value: Tensor, like: Tensor, by: object) -> Tensor:
    """Returns `value` if it has the shape of `like`, so that it is never broadcast silently.

    Raises:
        ExperienceError: `value`, which the part `by` returned, does not have the shape of `like`.
    """
    if value.shape != like.shape:
        raise ExperienceError(f"{requirer(by)} must return shape {list(like.shape)}, found {list(value.shape)}")
    return value


def describe(value: Any) -> str:
    """Returns type and shape of a tensor, or the value itself, for an error message."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return f"{type(value).__name__} {value!r:.60}"


def listed(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields each field's name, type and shape."""
    for name, value in fields.items():
        found = describe(value) if isinstance(value, Tensor) else f"{type(value).__name__} of {len(value)}"
        yield f"{prefix}{name}: {found}"


def requirer(by: object) -> str:
    """Returns the name of the object that needs a field, for an error message: a part's, or the text of `by`."""
    return name_of(type(by)) if isinstance(by, nn.Module) else str(by)
