"""Methods in SkyRL's two registries: advantage estimators and policy losses.

SkyRL divides a loss by dividing the advantages: before an optimiser step it scales them by `loss_reduction` over the
whole mini-batch, and a policy loss is then the plain sum of its terms over the rows of each call. So the whole
mini-batch's normaliser is exact here, however SkyRL splits it, for losses whose terms are proportional to the
advantage; this is tested, and other losses are refused. Read at SkyRL a956457 (0.3.0).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.functions import (
    FunctionTrainer,
    Method,
    Sampler,
    agree,
    check_sampler,
    named,
    not_in_proportion,
    summed,
)
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import Aggregate, ReferenceKL, SequenceMean, SequenceSum, Surrogate, TokenMean
from polopt.sampling import MixedGroups

# SkyRL's reductions, by the equivalent part.
REDUCTIONS: dict[type[Aggregate], str] = {
    TokenMean: "token_mean",
    SequenceMean: "sequence_mean",
    SequenceSum: "seq_mean_token_sum_norm",
}
# Settings by which SkyRL would change the method, with the values that disable them.
WITHOUT: dict[str, Any] = {
    "use_kl_in_reward": False,
    "use_entropy_loss": False,
    "advantage_batch_normalize": False,
    "off_policy_correction.tis_ratio_type": None,
    "off_policy_correction.sequence_mask_metric": None,
    "off_policy_correction.outlier_token_is_threshold_low": None,
    "off_policy_correction.token_mask_is_threshold_low": None,
}


class _SkyRL(FunctionTrainer):
    counts = f"is none of {', '.join(REDUCTIONS.values())}"

    def _refusals(self, algorithm: Algorithm) -> Iterator[str]:
        inner, _ = _split_kl(algorithm)
        yield from super()._refusals(inner)
        if (select := inner.sampling.settings().get("select")) and repr(list(select)) != repr([MixedGroups()]):
            yield f"sampling.select = {select!r} is none of {self.name}, which filters groups of one reward"
        objective = inner.objective
        for part in objective.regularise if isinstance(objective, Surrogate) else ():
            yield f"{part!r} would be averaged over rows, which {objective.aggregate!r} does not"

    def _measured(self, algorithm: Algorithm, objective: Surrogate) -> Iterator[str]:
        yield from super()._measured(algorithm, objective)
        yield from not_in_proportion(objective)


HOST = _SkyRL(
    name="SkyRL",
    advantage_fields=frozenset({"reward", "outcome", "group"}),
    loss_fields=frozenset({"rollout_logp", "old_logp", "advantage"}),
    sampling_settings=frozenset({"group", "select", "refills"}),
    carries_fields=False,
    selects=False,
    keeps_state=False,
)


def register(method: Method, name: str | None = None, *, horizon: int | None = None) -> str:
    """Registers a method in both registries, as `polopt/<method>` by default, and returns the name.

    The call belongs where the run begins, before Ray: SkyRL sends the registered functions to its workers.

    Raises:
        BridgeError: SkyRL does not provide all fields that the method needs.
    """
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, PolicyLossRegistry

    name = _name(method) if name is None else name
    AdvantageEstimatorRegistry.register(name, advantage(method, horizon=horizon))
    PolicyLossRegistry.register(name, loss(method, horizon=horizon))
    return name


def overrides(method: Method, *, horizon: int | None = None) -> dict[str, Any]:
    """Returns the settings of SkyRL that are part of the method: reduction, KL, rollouts per prompt, filter.

    Settings that must keep a default of SkyRL that is None are left out.

    horizon: the most tokens of an answer.

    Raises:
        BridgeError: as in `register`.
    """
    algorithm = _checked(method)
    name, settings = _name(method), _config(algorithm, horizon)
    found = {f"trainer.algorithm.{key}": value for key, value in settings.items() if value is not None}
    found |= {"trainer.algorithm.advantage_estimator": name, "trainer.algorithm.policy_loss_type": name}
    found["generator.n_samples_per_prompt"] = algorithm.sampling.settings()["group"]
    found["generator.step_wise_trajectories"] = False  # otherwise its estimator gets every position as a decision
    if horizon is not None:
        found["generator.sampling_params.max_generate_length"] = horizon
    if algorithm.sampling.settings()["select"]:
        found["trainer.algorithm.dynamic_sampling.type"] = "filter"
        found["trainer.algorithm.dynamic_sampling.max_sample_batches"] = 1 + algorithm.sampling.settings()["refills"]
    return found


def advantage(method: Method, *, horizon: int | None = None) -> Callable[..., tuple[Tensor, Tensor]]:
    """Returns the method's reward and credit as an advantage estimator of SkyRL.

    Rewards are summed over an answer's tokens: the environment's reward is the outcome. Rows that only pad a batch
    (`pad0`, `pad1`, ...) are left out of the credit.

    horizon: as in `overrides`.

    Raises:
        BridgeError: as in `register`; when called, SkyRL's settings are not the method's.
    """
    algorithm = _checked(method)

    def estimator(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[str], config: Any = None, **others: Any
    ) -> tuple[Tensor, Tensor]:
        agree(config, WITHOUT, "trainer.algorithm.")
        rows = [i for i, label in enumerate(index) if not re.fullmatch(r"pad\d+", str(label))]
        rewards = token_level_rewards[rows].sum(1)
        experience = Experience(
            mask=response_mask[rows].bool(),
            reward=rewards,
            outcome=rewards,
            group=torch.tensor(ops.numbered([str(index[i]) for i in rows]), device=rewards.device),
            horizon=horizon,
        )
        found = torch.zeros_like(token_level_rewards)
        found[rows] = torch.where(experience.mask, algorithm.with_advantages(experience).advantage, 0).to(found)
        return found, found

    return estimator


def loss(
    method: Method, *, sampler: Sampler = "trainer", horizon: int | None = None
) -> Callable[..., tuple[Tensor, dict[str, float]]]:
    """Returns the method's objective as a policy loss of SkyRL.

    sampler: the denominator of the ratio, "trainer" for the log-probabilities that SkyRL computes again before its
        first update, as in its own losses, or "engine" for those that its inference engine returned.
    horizon: as in `overrides`.

    Raises:
        BridgeError: as in `register`; when called, SkyRL's settings are not the method's, or the engine's
            log-probabilities are missing.
    """
    algorithm = _checked(method)
    check_sampler(algorithm, sampler)
    inner, _ = _split_kl(algorithm)
    assert isinstance(inner.objective, Surrogate)
    expected, objective = _config(algorithm, horizon), summed(inner.objective)

    def policy_loss(
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        config: Any,
        loss_mask: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        agree(config, expected, "trainer.algorithm.")
        sampled = old_log_probs if sampler == "trainer" else rollout_logprobs
        if sampled is None:
            raise BridgeError("sampler='engine' needs generator.sampling_params.logprobs, so that there are some")
        mask = torch.ones_like(log_probs, dtype=torch.bool) if loss_mask is None else loss_mask.bool()
        experience = Experience(mask=mask, rollout_logp=sampled, old_logp=old_log_probs, advantage=advantages)
        result = objective(experience, Evaluation(logp=log_probs))
        # The micro-batch's metric; SkyRL averages over micro-batches.
        return result.loss, {"clip_ratio": float(result.metrics["clip_fraction"])}

    return policy_loss


def _split_kl(algorithm: Algorithm) -> tuple[Algorithm, ReferenceKL | None]:
    """Returns the algorithm without the KL penalty that SkyRL itself adds exactly, as a mean over rows, and that
    penalty."""
    objective = algorithm.objective
    if isinstance(objective, Surrogate) and isinstance(objective.aggregate, SequenceMean):
        for kl in objective.regularise:
            if isinstance(kl, ReferenceKL) and len(objective.regularise) == 1 and _is_native_kl(kl):
                return algorithm.but(**{"objective.regularise": []}), kl
    return algorithm, None


def _is_native_kl(kl: ReferenceKL) -> bool:
    constant = isinstance(kl.coefficient, float)
    return constant and kl.anchor == "reference" and kl.value == kl.gradient and kl.ratio is None


def _checked(method: Method) -> Algorithm:
    name, algorithm = named(method)
    HOST.refuse(name, algorithm)
    return algorithm


def _name(method: Method) -> str:
    return f"polopt/{named(method)[0]}"


def _config(algorithm: Algorithm, horizon: int | None) -> dict[str, Any]:
    """Returns the settings of SkyRL's `trainer.algorithm` that the method requires."""
    inner, kl = _split_kl(algorithm)
    assert isinstance(inner.objective, Surrogate)
    aggregate = inner.objective.aggregate
    found: dict[str, Any] = {"loss_reduction": REDUCTIONS[type(aggregate)], **WITHOUT}
    if isinstance(aggregate, SequenceSum):
        found["max_seq_len"] = aggregate.length or horizon
        if found["max_seq_len"] is None:
            raise BridgeError(f"{aggregate!r} divides by a constant length: give horizon, the most tokens of an answer")
    found["use_kl_loss"] = kl is not None
    if kl is not None:
        found |= {"kl_loss_coef": kl.coefficient, "kl_estimator_type": kl.gradient}
    return found
