"""Methods in SkyRL's two registries: advantage estimators and policy losses.

SkyRL divides a loss by dividing the advantages: before an optimiser step it scales them by what `loss_reduction` says
of the whole mini-batch, and a policy loss is then the plain sum of its terms over whatever rows it is called with. So
the whole mini-batch's normaliser is exact here, however SkyRL splits it, for losses whose terms are in proportion to
the advantage; that is measured, and others are refused. Read at SkyRL a956457 (0.3.0).
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

# Its reductions, by the part that they are.
REDUCTIONS: dict[type[Aggregate], str] = {
    TokenMean: "token_mean",
    SequenceMean: "sequence_mean",
    SequenceSum: "seq_mean_token_sum_norm",
}
# What SkyRL could add to a method, and must not.
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
        inner, _ = _kl_apart(algorithm)
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
    """Put a method into both registries, as `polopt/<method>`; the name.

    Call it where the run begins, before Ray: SkyRL sends what is registered to its workers.

    Raises:
        BridgeError: SkyRL hands over less than the method needs.
    """
    from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry, PolicyLossRegistry

    name = _name(method) if name is None else name
    AdvantageEstimatorRegistry.register(name, advantage(method, horizon=horizon))
    PolicyLossRegistry.register(name, loss(method, horizon=horizon))
    return name


def overrides(method: Method, *, horizon: int | None = None) -> dict[str, Any]:
    """The settings of SkyRL that are part of the method: reduction, KL, rollouts per prompt, filter. What must stay at
    SkyRL's default of none is not among them.

    horizon: the most tokens an answer may have.

    Raises:
        BridgeError: as `register`.
    """
    algorithm = _checked(method)
    name, settings = _name(method), _config(algorithm, horizon)
    found = {f"trainer.algorithm.{key}": value for key, value in settings.items() if value is not None}
    found |= {"trainer.algorithm.advantage_estimator": name, "trainer.algorithm.policy_loss_type": name}
    found["generator.n_samples_per_prompt"] = algorithm.sampling.settings()["group"]
    found["generator.step_wise_trajectories"] = False  # its estimator would be told that every position is a decision
    if horizon is not None:
        found["generator.sampling_params.max_generate_length"] = horizon
    if algorithm.sampling.settings()["select"]:
        found["trainer.algorithm.dynamic_sampling.type"] = "filter"
        found["trainer.algorithm.dynamic_sampling.max_sample_batches"] = 1 + algorithm.sampling.settings()["refills"]
    return found


def advantage(method: Method, *, horizon: int | None = None) -> Callable[..., tuple[Tensor, Tensor]]:
    """The method's reward and credit as an advantage estimator of SkyRL. horizon: as in `overrides`.

    Rewards are summed over an answer's tokens: what SkyRL's environment paid is the outcome. Rows that only fill a
    batch up (`pad0`, `pad1`, ...) are not seen by the credit.

    Raises:
        BridgeError: as `register`; when called, SkyRL's settings are not the method's.
    """
    algorithm = _checked(method)

    def estimator(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[str], config: Any = None, **others: Any
    ) -> tuple[Tensor, Tensor]:
        agree(config, WITHOUT, "trainer.algorithm.")
        rows = [i for i, label in enumerate(index) if not re.fullmatch(r"pad\d+", str(label))]
        paid = token_level_rewards[rows].sum(1)
        experience = Experience(
            mask=response_mask[rows].bool(),
            reward=paid,
            outcome=paid,
            group=torch.tensor(ops.numbered([str(index[i]) for i in rows]), device=paid.device),
            horizon=horizon,
        )
        found = torch.zeros_like(token_level_rewards)
        found[rows] = torch.where(experience.mask, algorithm.with_advantages(experience).advantage, 0).to(found)
        return found, found

    return estimator


def loss(
    method: Method, *, sampler: Sampler = "trainer", horizon: int | None = None
) -> Callable[..., tuple[Tensor, dict[str, float]]]:
    """The method's objective as a policy loss of SkyRL. horizon: as in `overrides`.

    sampler: whose log-probabilities the ratio is to, "trainer" for those that SkyRL computed again before its first
    update, as in its own losses, or "engine" for those that its inference engine returned.

    Raises:
        BridgeError: as `register`; when called, SkyRL's settings are not the method's, or the engine's
            log-probabilities are not there.
    """
    algorithm = _checked(method)
    check_sampler(algorithm, sampler)
    inner, _ = _kl_apart(algorithm)
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
        # Of the micro-batch: SkyRL averages them.
        return result.loss, {"clip_ratio": float(result.metrics["clip_fraction"])}

    return policy_loss


def _kl_apart(algorithm: Algorithm) -> tuple[Algorithm, ReferenceKL | None]:
    """The algorithm without the distance to the reference that SkyRL itself adds, exactly, as a mean over rows."""
    objective = algorithm.objective
    if isinstance(objective, Surrogate) and isinstance(objective.aggregate, SequenceMean):
        for kl in objective.regularise:
            if isinstance(kl, ReferenceKL) and len(objective.regularise) == 1 and _is_theirs(kl):
                return algorithm.but(**{"objective.regularise": []}), kl
    return algorithm, None


def _is_theirs(kl: ReferenceKL) -> bool:
    constant = isinstance(kl.coefficient, float)
    return constant and kl.anchor == "reference" and kl.value == kl.gradient and kl.ratio is None


def _checked(method: Method) -> Algorithm:
    name, algorithm = named(method)
    HOST.refuse(name, algorithm)
    return algorithm


def _name(method: Method) -> str:
    return f"polopt/{named(method)[0]}"


def _config(algorithm: Algorithm, horizon: int | None) -> dict[str, Any]:
    """What SkyRL's `trainer.algorithm` must say for the method to be the method."""
    inner, kl = _kl_apart(algorithm)
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
