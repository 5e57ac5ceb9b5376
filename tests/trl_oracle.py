"""TRL's own loss of preferences, for tests of several folders."""

from __future__ import annotations

import collections
import types
from typing import Any

import pytest
import torch
from torch import Tensor

BETA = 0.3


def trl_dpo(mask: Tensor, logp: Tensor, ref: Tensor, loss_type: str) -> tuple[Tensor, dict[str, float]]:
    """DPOTrainer._compute_loss, unbound, on a stand-in whose model answers with the given log-probabilities."""
    trl = pytest.importorskip("trl", minversion="1.16")
    said = types.SimpleNamespace(log_probs=logp, entropy=logp.detach(), mean_logits=logp.detach(), is_top1=mask)
    trainer: Any = types.SimpleNamespace(
        model=types.SimpleNamespace(training=True),
        accelerator=types.SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x),
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=[loss_type],
        loss_weights=[1.0],
        beta=BETA,
        use_weighting=False,
        _metrics={"train": collections.defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    completion = torch.nn.functional.pad(mask.long(), (1, 0))  # a prompt of one token
    chosen, rejected = ref.sum(1).chunk(2)
    inputs = {
        "input_ids": completion,
        "attention_mask": completion,
        "completion_mask": completion,
        "ref_chosen_logps": chosen,
        "ref_rejected_logps": rejected,
    }
    loss = trl.DPOTrainer._compute_loss(trainer, lambda **_: said, inputs, False)
    return loss, {name: values[0] for name, values in trainer._metrics["train"].items()}


def trl_kto(
    mask: Tensor, logp: Tensor, ref: Tensor, good: Tensor, strange: Tensor, weights: tuple[float, float], loss_type: str
) -> Tensor:
    """KTOTrainer._compute_loss, unbound, on a stand-in model.

    strange: sums of log-probabilities of mismatched answers, by the policy and by the reference, [2, M].
    """
    trl = pytest.importorskip("trl", minversion="1.16")
    said = types.SimpleNamespace(log_probs=logp, entropy=logp.detach(), mean_logits=logp.detach())
    policy, reference = strange
    trainer: Any = types.SimpleNamespace(
        model=types.SimpleNamespace(training=True),
        accelerator=types.SimpleNamespace(device="cpu", gather_for_metrics=lambda x: x),
        aux_loss_enabled=False,
        calculate_KL=loss_type == "kto",
        precompute_ref_logps=True,
        loss_type=loss_type,
        beta=BETA,
        desirable_weight=weights[0],
        undesirable_weight=weights[1],
        _compute_kl_logps=lambda model, batch: policy,
        _metrics={"train": collections.defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    completion = torch.nn.functional.pad(mask.long(), (1, 0))  # a prompt of one token
    inputs = {
        "input_ids": completion,
        "attention_mask": completion,
        "completion_mask": completion,
        "label": good,
        "ref_logps": ref.sum(1),
        "ref_KL_logps": reference,
    }
    loss: Tensor = trl.KTOTrainer._compute_loss(trainer, lambda **_: said, inputs, False)
    return loss


def trl_reward(chosen: Tensor, rejected: Tensor, margin: Tensor | None, center: float | None) -> Tensor:
    """RewardTrainer.compute_loss, unbound, on a stand-in model that answers with the given scores."""
    trl = pytest.importorskip("trl", minversion="1.16")
    model = types.SimpleNamespace(training=True)
    trainer: Any = types.SimpleNamespace(
        model=model,
        args=types.SimpleNamespace(center_rewards_coefficient=center),
        accelerator=types.SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x),
        _metrics={"train": collections.defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    logits = torch.cat([chosen, rejected])[:, None]
    inputs: dict[str, Any] = {"attention_mask": torch.ones(len(logits), 3, dtype=torch.long)}
    inputs |= {} if margin is None else {"margin": margin}
    loss: Tensor = trl.RewardTrainer.compute_loss(trainer, lambda **_: types.SimpleNamespace(logits=logits), inputs)
    return loss
