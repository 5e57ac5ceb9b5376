"""Methods as slime's custom loss, and as its post-processing of rewards.

slime sums the losses of micro-batches and divides by the samples of the step, or by its tokens, on all processes
(`--calculate-per-token-loss`); so means over answers and over tokens are exact, however it splits. Read at slime
624b824 (0.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.functions import FunctionTrainer, Method, Sampler, agree, check_sampler, named
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import SequenceSum, Surrogate, TokenMean


class _Slime(FunctionTrainer):
    counts = "divides by neither the step's samples nor its tokens"


HOST = _Slime(
    name="slime",
    advantage_fields=frozenset({"reward", "outcome", "group", "terminated", "truncated"}),
    loss_fields=frozenset({"rollout_logp", "old_logp", "ref_logp", "advantage"}),
    sampling_settings=frozenset({"group"}),
    carries_fields=False,
    selects=False,
    keeps_state=False,
)


def rewards(method: Method, *, horizon: int | None = None) -> Callable[..., tuple[list[float], list[float]]]:
    """Returns the method's reward and credit, for `--custom-reward-post-process-path`.

    slime's estimator "grpo" then assigns the values to every token.

    horizon: the most tokens of an answer.

    Raises:
        BridgeError: slime does not provide all fields that the method needs; when called, an answer has more than one
            advantage.
    """
    algorithm = _checked(method)

    def post_process(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
        outcomes = torch.tensor([float(sample.get_reward_value(args)) for sample in samples])
        masks = [s.loss_mask if s.loss_mask is not None else [1] * s.response_length for s in samples]
        cut = torch.tensor([sample.status.value == "truncated" for sample in samples])
        experience = Experience(
            mask=_padded([torch.tensor(mask, dtype=torch.bool) for mask in masks]),
            reward=outcomes,
            outcome=outcomes,
            group=torch.tensor(ops.numbered([sample.group_index for sample in samples])),
            truncated=cut,
            terminated=~cut,
            horizon=horizon,
        )
        found, mask = algorithm.with_advantages(experience).advantage, experience.mask
        row_advantage = ops.row_mean(found, mask)
        if not torch.allclose(found[mask], row_advantage[:, None].expand_as(found)[mask]):
            raise BridgeError(f"{algorithm.credit!r} gives decisions of one answer different advantages")
        return outcomes.tolist(), row_advantage.tolist()

    return post_process


def loss(
    method: Method, *, sampler: Sampler = "trainer", horizon: int | None = None
) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
    """Returns the method's objective, for `--loss-type custom_loss --custom-loss-function-path`.

    sampler: the denominator of the ratio, slime's own policy before its first update or the inference engine.
    horizon: as in `rewards`.

    Raises:
        BridgeError: as in `rewards`; when called, slime's arguments are not the method's.
    """
    algorithm = _checked(method)
    check_sampler(algorithm, sampler)
    objective, expected = algorithm.objective, _arguments(algorithm)
    assert isinstance(objective, Surrogate)
    constant = objective.aggregate.length or horizon if isinstance(objective.aggregate, SequenceSum) else 1
    if constant is None:
        raise BridgeError(f"{objective.aggregate!r} divides by a constant length: give horizon, the most of an answer")

    def custom_loss(args: Any, batch: Any, logits: Tensor, sum_of_sample_mean: Any) -> tuple[Tensor, dict[str, Tensor]]:
        agree(args, expected, "args.")
        log_probs = _log_probs(args, batch, logits)
        old = batch.get("log_probs") or [logp.detach() for logp in log_probs]
        masks = [mask.bool() for mask in batch["loss_masks"]]
        if any(int(mask.sum()) != int(whole) for mask, whole in zip(masks, batch["rollout_mask_sums"], strict=True)):
            raise BridgeError("some rollouts are in several samples, which a mean over answers would count separately")
        experience = Experience(
            mask=_padded(masks),
            rollout_logp=_padded(old if sampler == "trainer" else batch["rollout_log_probs"]),
            old_logp=_padded(old),
            advantage=_padded(batch["advantages"]),
            horizon=constant,
        )
        if expected["use_kl_loss"]:
            experience = experience.replace(ref_logp=_padded(batch["ref_log_probs"]))
        result = objective(experience, Evaluation(logp=_padded(log_probs)))
        # The sum behind this micro-batch's mean, which slime divides by the count of the whole step.
        count = objective.aggregate.denominator(experience).to(result.loss) / constant
        return result.loss * count, {
            "loss": (result.loss * count).detach(),
            "pg_clipfrac": result.metrics["clip_fraction"] * count,
        }

    return custom_loss


def arguments(method: Method) -> dict[str, Any]:
    """Returns slime's arguments that are part of the method, by their names in `args`.

    Raises:
        BridgeError: as in `rewards`.
    """
    algorithm = _checked(method)
    group = algorithm.sampling.settings()["group"]
    return {"loss_type": "custom_loss", "n_samples_per_prompt": group, **_arguments(algorithm)}


def _arguments(algorithm: Algorithm) -> dict[str, Any]:
    objective = algorithm.objective
    assert isinstance(objective, Surrogate)
    return {
        "advantage_estimator": "grpo",
        "normalize_advantages": False,
        "calculate_per_token_loss": isinstance(objective.aggregate, TokenMean),
        "use_kl_loss": "ref_logp" in objective.required_fields,  # slime then has a reference; the term is the method's
        "entropy_coef": 0.0,
        "use_tis": False,
        "use_opsm": False,
        "context_parallel_size": 1,  # with more a process has parts of answers
    }


def _log_probs(args: Any, batch: Any, logits: Tensor) -> list[Tensor]:
    from slime.backends.megatron_utils import loss as slime_loss

    _, found = slime_loss.get_log_probs_and_entropy(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        with_entropy=False,
        **slime_loss.get_rollout_top_p_logprob_kwargs(args, batch),
    )
    return found["log_probs"]


def _checked(method: Method) -> Algorithm:
    name, algorithm = named(method)
    HOST.refuse(name, algorithm)
    return algorithm


def _padded(values: Sequence[Tensor]) -> Tensor:
    return pad_sequence(list(values), batch_first=True)
