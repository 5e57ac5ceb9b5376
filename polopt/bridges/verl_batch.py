"""Reads the fields of verl's batch during a call for advantages, from the call itself or from verl's queue."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.tokens import observed_states
from polopt.training.provided import SIGNAL

# Field -> its name in verl.
TENSORS = {"ref_logp": "ref_log_prob", "value": "values", "entropy": "entropy"}


def experience_of(
    calls: Mapping[str, Mapping[str, Any]],
    needs: Collection[str],
    rewards: Tensor,
    mask: Tensor,
    index: Any,
    horizon: int | None,
    use_sampler_logp: bool,
) -> Experience:
    """Returns the batch as experience, with those fields of `needs` that verl has.

    calls: as `verl_call_context.call_arguments`.
    rewards, mask: [B, T].
    index: [B] names of the prompts.
    use_sampler_logp: whether `rollout_logp` is the sampler's, in addition to the learner's `old_logp`.
    """
    stored = functools.partial(_stored, calls)
    fields: dict[str, Any] = behaviour(stored, use_sampler_logp)
    fields |= {
        field: tensor for field, name in TENSORS.items() if field in needs and (tensor := stored(name)) is not None
    }
    if index is not None:
        fields["group"] = groups_of(index).to(mask.device)
    begins = mask & ~torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    turn = (begins.cumsum(1) - 1).clamp(min=0)
    return Experience(
        mask=mask,
        reward=torch.where(mask, rewards, 0),
        outcome=rewards.sum(1),  # the reward may be on a token outside the mask, or on one that verl rejected
        # verl does not mark truncated answers; its own estimators, too, take every answer as ended.
        terminated=torch.ones_like(mask[:, 0]),
        turn=turn,
        horizon=horizon,
        extras=_extras(calls, needs, mask) | _tokens(calls, needs, turn.masked_fill(~mask, -1)),
        **fields,
    )


def groups_of(index: Any) -> Tensor:
    """Returns the number of each row's prompt, [B]."""
    return torch.from_numpy(np.unique(np.asarray(index), return_inverse=True)[1])


def behaviour(tensor_of: Callable[[str], Tensor | None], use_sampler_logp: bool) -> dict[str, Any]:
    """Returns `rollout_logp` and `old_logp` from verl's tensors, which `tensor_of` returns by name.

    Unless `use_sampler_logp` is set, both are `old_log_probs`, the denominator of the ratio in verl's own losses.
    """
    old = tensor_of("old_log_probs")
    fields = {"rollout_logp": tensor_of("rollout_log_probs") if use_sampler_logp else old, "old_logp": old}
    return {field: tensor for field, tensor in fields.items() if tensor is not None}


def padded(values: Tensor) -> Tensor:
    """Returns rows of different lengths padded with 0 to [B, T]; a padded tensor is returned as it is."""
    return values.to_padded_tensor(0) if values.is_nested else values


def _stored(calls: Mapping[str, Mapping[str, Any]], name: str) -> Tensor | None:
    """Returns verl's tensor [B, T] of that name, if there is one."""
    data = calls.get("compute_advantage", {}).get("data")
    tensor = data.batch[name] if data is not None and name in data.batch else _queued(calls, name)
    return None if tensor is None else padded(tensor)


def _extras(calls: Mapping[str, Mapping[str, Any]], needs: Collection[str], mask: Tensor) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if "extras.kind" in needs and (kinds := _queued(calls, "data_source")) is not None:
        extras["kind"] = _column(kinds)
    if "extras.answer" in needs and (tokens := _queued(calls, "responses")) is not None:
        decode = calls["_compute_advantage"]["self"].tokenizer.decode
        rows = [row[own[: len(row)]] for row, own in zip(tokens.unbind(), mask.to(tokens.device), strict=True)]
        extras["answer"] = [decode(row.tolist(), skip_special_tokens=True) for row in rows]
    signals = [name.removeprefix(SIGNAL) for name in needs if name.startswith(SIGNAL)]
    if signals and (reported := _queued(calls, "extra_fields")) is not None:
        rows = [(row or {}).get("reward_extra_info") or {} for row in _column(reported)]
        for name in signals:
            if all(name in row for row in rows):
                values = [float(row[name]) for row in rows]
                extras[f"signal_{name}"] = torch.tensor(values, device=mask.device)
    return extras


def _tokens(calls: Mapping[str, Mapping[str, Any]], needs: Collection[str], turn: Tensor) -> dict[str, Tensor]:
    """Returns the tokens of the answers, and what was read before each turn. turn: -1 at tokens that were read."""
    wanted = {"extras.tokens", "extras.turn_state"} & set(needs)
    if not wanted or (tokens := _stored(calls, "responses")) is None:
        return {}
    tokens = tokens.to(turn.device)
    found = {"extras.tokens": lambda: tokens, "extras.turn_state": lambda: observed_states(tokens, turn)}
    return {name.removeprefix("extras."): found[name]() for name in sorted(wanted)}


def _column(values: Any) -> list[Any]:
    return [getattr(value, "data", value) for value in list(values)]


def _queued(calls: Mapping[str, Mapping[str, Any]], name: str) -> Any:
    """Returns a field of the batch from the queue of verl's trainer, which holds fields that are not loaded."""
    batch = calls.get("_compute_advantage", {}).get("batch")
    if batch is None:
        return None
    queue = importlib.import_module("verl.trainer.ppo.v1.trainer_base").tq
    try:
        return queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[name])[name]
    except (KeyError, ValueError):
        return None
