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
from polopt.bridges.verl_call_context import call_arguments
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
    use_sampler_logp: bool,
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

    use_sampler_logp: as in `verl_batch.experience_of`.

    The other arguments are those of verl's losses.
    """
    mask, objective = response_mask.bool(), algorithm.objective
    assert isinstance(objective, Surrogate)
    tensors = {"old_log_probs": old_log_prob, **_micro(objective.required_fields, use_sampler_logp)}
    fields = behaviour(tensors.get, use_sampler_logp) | {"ref_logp": tensors.get("ref_log_prob")}
    experience = Experience(mask=mask, advantage=advantages, horizon=config.loss_scale_factor, **fields)
    if rollout_is_weights is not None:
        objective = objective.but(weights=[*objective.weights, RolloutCorrection()])
        experience = experience.replace(extras={"rollout_is_weights": torch.where(mask, rollout_is_weights, 0)})
    evaluation = Evaluation(logp=log_prob, **_entropy(objective))
    result = objective(experience, evaluation)
    fraction = _share(objective.aggregate, experience, _batch_sizes(config.global_batch_info, mask.device))
    with torch.no_grad():
        drift = ops.masked_mean(torch.where(mask, old_log_prob - log_prob, 0), mask)
    metrics = {f"polopt/{key}": value.item() for key, value in result.metrics.items()}
    metrics |= {"actor/pg_clipfrac": metrics.get("polopt/clip_fraction", 0.0), "actor/ppo_kl": drift.item()}
    return result.loss * fraction, metrics


def _micro(needs: frozenset[str], use_sampler_logp: bool) -> dict[str, Any]:
    """Returns fields of the micro-batch that verl has and does not pass to its losses."""
    data: Any = call_arguments.get().get("ppo_loss", {}).get("data", {})
    names = (["ref_log_prob"] if "ref_logp" in needs else []) + (["rollout_log_probs"] if use_sampler_logp else [])
    names = [key for key in names if key in data]
    return dict(data.select(*names).to_padded_tensor().items()) if names else {}


def _entropy(objective: Surrogate) -> dict[str, Any]:
    call = call_arguments.get().get("ppo_loss", {})
    if "entropy" not in objective.required_outputs or (entropy := call.get("model_output", {}).get("entropy")) is None:
        return {}
    from verl.workers.utils.padding import no_padding_2_padding

    return {"entropy": no_padding_2_padding(entropy, call["data"])}


@dataclasses.dataclass(frozen=True)
class _BatchSizes:
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


def _batch_sizes(reported: Mapping[str, Any], device: torch.device) -> _BatchSizes:
    """Counts the optimiser batch, once each; without access to verl's worker it takes verl's own numbers.

    verl's own numbers include tokens that it rejected, and rows by which it padded the batch.
    """
    workers, tokens, rows = (reported.get(key) for key in ("dp_size", "batch_num_tokens", "global_batch_size"))
    step = call_arguments.get().get("train_batch")
    if step is None:
        return _BatchSizes(workers or 1, tokens, rows, rows)
    if "counts" not in step:
        mask = padded(step["data"]["response_mask"]).bool()
        counts = torch.stack([mask.sum(), mask.any(1).sum()]).to(device)
        torch.distributed.all_reduce(counts, group=step["self"].engine.get_data_parallel_group())
        step["counts"] = counts.tolist()
    return _BatchSizes(workers or 1, step["counts"][0], rows, step["counts"][1])


def _share(aggregate: Aggregate, experience: Experience, sizes: _BatchSizes) -> float:
    """Returns the factor from a loss over the micro-batch's own denominator to its share of the optimiser batch's, on
    all processes."""
    own = float(aggregate.denominator(experience))
    count: dict[type[Aggregate], Callable[[], float | None]] = {
        TokenMean: lambda: sizes.tokens,
        SequenceMean: lambda: sizes.decided,
        SequenceSum: lambda: None if sizes.rows is None else sizes.rows * own / len(experience),
    }
    total = count[type(aggregate)]()
    if total is None:
        if sizes.workers > 1:
            raise BridgeError(
                "verl did not report the size of the whole optimiser batch, and there are several processes"
            )
        return 1.0
    return sizes.workers * max(own, 1.0) / max(float(total), 1.0)
