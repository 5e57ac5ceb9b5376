"""What verl holds of a batch while it asks for advantages: in the call itself, or in its queue."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.training.provided import SIGNAL

# Field -> verl's name of it.
TENSORS = {"ref_logp": "ref_log_prob", "value": "values", "entropy": "entropy"}


def experience_of(
    heard: Mapping[str, Mapping[str, Any]],
    needs: Collection[str],
    rewards: Tensor,
    mask: Tensor,
    index: Any,
    horizon: int | None,
    apart: bool,
) -> Experience:
    """The batch as experience, with those of `reads` that verl has.

    heard: as `verl_heard.heard`. rewards, mask: [B, T]. index: [B] names of the prompts. apart: whether `rollout_logp`
    is the sampler's, beside the learner's `old_logp`."""
    held = functools.partial(_held, heard)
    found: dict[str, Any] = behaviour(held, apart)
    found |= {field: tensor for field, name in TENSORS.items() if field in needs and (tensor := held(name)) is not None}
    if index is not None:
        found["group"] = groups_of(index).to(mask.device)
    begins = mask & ~torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    return Experience(
        mask=mask,
        reward=torch.where(mask, rewards, 0),
        outcome=rewards.sum(1),  # it may stand on a token that is somebody else's, or that verl rejected
        # verl says of no answer whether it was cut off; its own estimators take every one for ended, too.
        terminated=torch.ones_like(mask[:, 0]),
        turn=(begins.cumsum(1) - 1).clamp(min=0),
        horizon=horizon,
        extras=_extras(heard, needs, mask),
        **found,
    )


def groups_of(index: Any) -> Tensor:
    """[B] numbers of the prompts."""
    return torch.from_numpy(np.unique(np.asarray(index), return_inverse=True)[1])


def behaviour(held: Callable[[str], Tensor | None], apart: bool) -> dict[str, Any]:
    """`rollout_logp`, and `old_logp` beside it, of what verl has under a name. Unless the two are told apart, both are
    its `old_log_probs`, to which its own losses take the ratio."""
    old = held("old_log_probs")
    found = {"rollout_logp": held("rollout_log_probs") if apart else old, "old_logp": old}
    return {field: tensor for field, tensor in found.items() if tensor is not None}


def padded(values: Tensor) -> Tensor:
    """[B, T] of rows of their own lengths, 0 behind them; itself if it was padded."""
    return values.to_padded_tensor(0) if values.is_nested else values


def _held(heard: Mapping[str, Mapping[str, Any]], name: str) -> Tensor | None:
    """[B, T] of that name of verl's, if it has one."""
    data = heard.get("compute_advantage", {}).get("data")
    found = data.batch[name] if data is not None and name in data.batch else _queued(heard, name)
    return None if found is None else padded(found)


def _extras(heard: Mapping[str, Mapping[str, Any]], needs: Collection[str], mask: Tensor) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if "extras.kind" in needs and (kinds := _queued(heard, "data_source")) is not None:
        extras["kind"] = _column(kinds)
    if "extras.answer" in needs and (tokens := _queued(heard, "responses")) is not None:
        decode = heard["_compute_advantage"]["self"].tokenizer.decode
        rows = [row[own[: len(row)]] for row, own in zip(tokens.unbind(), mask.to(tokens.device), strict=True)]
        extras["answer"] = [decode(row.tolist(), skip_special_tokens=True) for row in rows]
    signals = [name.removeprefix(SIGNAL) for name in needs if name.startswith(SIGNAL)]
    if signals and (told := _queued(heard, "extra_fields")) is not None:
        rows = [(row or {}).get("reward_extra_info") or {} for row in _column(told)]
        for name in signals:
            if all(name in row for row in rows):
                values = [float(row[name]) for row in rows]
                extras[f"signal_{name}"] = torch.tensor(values, device=mask.device)
    return extras


def _column(values: Any) -> list[Any]:
    return [getattr(value, "data", value) for value in list(values)]


def _queued(heard: Mapping[str, Mapping[str, Any]], name: str) -> Any:
    """A field of the batch in the queue of verl's trainer, which keeps there what it does not load."""
    batch = heard.get("_compute_advantage", {}).get("batch")
    if batch is None:
        return None
    queue = importlib.import_module("verl.trainer.ppo.v1.trainer_base").tq
    try:
        return queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[name])[name]
    except (KeyError, ValueError):
        return None
