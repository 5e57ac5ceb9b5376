"""An algorithm's objective as a policy loss of verl: a micro-batch's exact share of the whole optimiser batch's
loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.verl_batch import behaviour, padded
from polopt.bridges.verl_call_context import heard
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import SequenceMean, SequenceSum, Surrogate, TokenMean, Weight
from polopt.objectives.parts import Aggregate


class RolloutCorrection(Weight):
    """w = `extras["rollout_is_weights"]` [B, T]: verl's rollout correction."""

    reads = frozenset({"extras.rollout_is_weights"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return experience.extras["rollout_is_weights"]


def policy_loss(
    algorithm: Algorithm,
    apart: bool,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    config: Any,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Returns this micro-batch's share of the whole optimiser batch's loss, and metrics.

    The share is multiplied by the data-parallel size, by which verl divides gradients again. The algorithm's own
    reducer applies, not verl's.

    apart: as in `verl_batch.experience_of`.

    The other arguments are those of verl's losses.
    """
    mask, objective = response_mask.bool(), algorithm.objective
    assert isinstance(objective, Surrogate)
    held = {"old_log_probs": old_log_prob, **_micro(objective.required_fields, apart)}
    found = behaviour(held.get, apart) | {"ref_logp": held.get("ref_log_prob")}
    experience = Experience(mask=mask, advantage=advantages, horizon=config.loss_scale_factor, **found)
    if rollout_is_weights is not None:
        objective = objective.but(weights=[*objective.weights, RolloutCorrection()])
        experience = experience.replace(extras={"rollout_is_weights": torch.where(mask, rollout_is_weights, 0)})
    evaluation = Evaluation(logp=log_prob, **_entropy(objective))
    result = objective(experience, evaluation)
    share = _share(objective.aggregate, experience, _whole(config.global_batch_info, mask.device))
    with torch.no_grad():
        drift = ops.masked_mean(torch.where(mask, old_log_prob - log_prob, 0), mask)
    metrics = {f"polopt/{key}": value.item() for key, value in result.metrics.items()}
    metrics |= {"actor/pg_clipfrac": metrics.get("polopt/clip_fraction", 0.0), "actor/ppo_kl": drift.item()}
    return result.loss * share, metrics


def _micro(needs: frozenset[str], apart: bool) -> dict[str, Any]:
    """Returns fields of the micro-batch that verl has and does not pass to its losses."""
    data: Any = heard.get().get("ppo_loss", {}).get("data", {})
    wanted = (["ref_log_prob"] if "ref_logp" in needs else []) + (["rollout_log_probs"] if apart else [])
    wanted = [key for key in wanted if key in data]
    return dict(data.select(*wanted).to_padded_tensor().items()) if wanted else {}


def _entropy(objective: Surrogate) -> dict[str, Any]:
    call = heard.get().get("ppo_loss", {})
    if "entropy" not in objective.required_outputs or (said := call.get("model_output", {}).get("entropy")) is None:
        return {}
    from verl.workers.utils.padding import no_padding_2_padding

    return {"entropy": no_padding_2_padding(said, call["data"])}


@dataclasses.dataclass(frozen=True)
class _Whole:
    """Sizes of the optimiser batch over all processes.

    workers: processes.
    tokens: decided tokens.
    rows: rows, padding rows included.
    decided: rows with decisions.
    """

    workers: int
    tokens: int | None
    rows: int | None
    decided: int | None


def _whole(told: Mapping[str, Any], device: torch.device) -> _Whole:
    """Counts the optimiser batch, once each; without access to verl's worker it takes verl's own numbers.

    verl's own numbers include tokens that it rejected, and rows by which it padded the batch.
    """
    workers, tokens, rows = (told.get(key) for key in ("dp_size", "batch_num_tokens", "global_batch_size"))
    step = heard.get().get("train_batch")
    if step is None:
        return _Whole(workers or 1, tokens, rows, rows)
    if "counts" not in step:
        mask = padded(step["data"]["response_mask"]).bool()
        counts = torch.stack([mask.sum(), mask.any(1).sum()]).to(device)
        torch.distributed.all_reduce(counts, group=step["self"].engine.get_data_parallel_group())
        step["counts"] = counts.tolist()
    return _Whole(workers or 1, step["counts"][0], rows, step["counts"][1])


def _share(aggregate: Aggregate, experience: Experience, whole: _Whole) -> float:
    """Returns the factor from a loss over the micro-batch's own denominator to its share of the optimiser batch's, on
    all processes."""
    own = float(aggregate.denominator(experience))
    count: dict[type[Aggregate], Callable[[], float | None]] = {
        TokenMean: lambda: whole.tokens,
        SequenceMean: lambda: whole.decided,
        SequenceSum: lambda: None if whole.rows is None else whole.rows * own / len(experience),
    }
    total = count[type(aggregate)]()
    if total is None:
        if whole.workers > 1:
            raise BridgeError("verl did not say what the whole optimiser batch holds, and there are several processes")
        return 1.0
    return whole.workers * max(own, 1.0) / max(float(total), 1.0)
