"""Methods inside verl (0.9 or later): credit as an advantage estimator, the objective as a policy loss.

Importing this module registers every published method under `polopt/<slug>`; verl imports it in each of its processes
where the configuration says `actor_rollout_ref.model.external_lib: polopt.bridges.verl`, as that of `config` does.

verl hands an estimator the rewards and the groups, and a loss the log-probabilities and the advantages. Its functions
that call ours, `ppo_loss`, `compute_advantage` and the trainer's method around that, hold more (values, the reference,
the sampler's log-probabilities, the entropy, the answers). They are wrapped so that what they were called with can be
read meanwhile; they compute what they always did.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from polopt import catalogue, ops
from polopt.algorithm import Algorithm
from polopt.bridges.host import BridgeError
from polopt.bridges.verl_batch import behaviour, experience_of
from polopt.bridges.verl_config import HOST, PREFIX, config, critic_of, fitted, named, written
from polopt.experience import Evaluation, Experience
from polopt.objectives import SequenceMean, SequenceSum, Surrogate, TokenMean, Weight
from polopt.objectives.parts import Aggregate

try:
    from omegaconf import DictConfig, OmegaConf
    from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss
    from verl.workers.config import PolicyLossConfig
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; pip install "polopt[verl]"', name=error.name) from None

__all__ = ["HOST", "BridgeError", "PolicyLoss", "config", "register"]

_registered: dict[str, Algorithm] = {}
# What the wrapped function of verl that is running was called with.
_heard: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("heard", default={})  # noqa: B039


@dataclasses.dataclass(frozen=True)
class _Runs:
    """An algorithm in verl. whole: as published. algorithm: without what verl does itself."""

    whole: Algorithm
    algorithm: Algorithm

    @property
    def sampler_apart(self) -> bool:
        """Whether the sampler's log-probabilities are told from the learner's own before its first update. Who asks
        only for one is given verl's `old_log_probs`."""
        return "old_logp" in self.algorithm.all_needs


def register(name: str, algorithm: Algorithm) -> None:
    """An algorithm of one's own as estimator and policy loss `name`, such as `polopt/mine`.

    It must run in every process of verl: in a module that imports this one, and that `external_lib` names.

    Raises:
        BridgeError: verl does not hand over what it needs. ValueError: the name is taken.
    """
    fitted(name, algorithm)
    _offer(name)
    _registered[name] = algorithm


@dataclasses.dataclass
class PolicyLoss(PolicyLossConfig):
    """verl's settings of a policy loss, and the sentence. Made when verl checks its configuration, before it loads
    anything.

    polopt: `algorithm.polopt` of the configuration; empty for the method of the name with its defaults.

    Raises:
        BridgeError: verl does not hand over what the algorithm needs.
    """

    polopt: Any = None

    def __post_init__(self) -> None:
        if self.loss_mode.startswith(PREFIX):
            _runs(self.loss_mode, _plain(self.polopt))


def _offer(name: str) -> None:
    register_adv_est(name)(functools.partial(_estimate, name))
    register_policy_loss(name)(functools.partial(_loss, name))


def _plain(spec: Any) -> dict[str, Any]:
    found = OmegaConf.to_container(spec, resolve=True) if isinstance(spec, DictConfig) else spec
    return dict(found or {})  # type: ignore[arg-type]


def _runs(name: str, spec: Mapping[str, Any]) -> _Runs:
    return _built(name, json.dumps(spec, sort_keys=True))


@functools.cache
def _built(name: str, spec: str) -> _Runs:
    """One for each process: credit remembers what it learned from batch to batch."""
    given = json.loads(spec)
    whole = written(given) if "algorithm" in given else _registered[name] if name in _registered else named(name)
    return _Runs(whole, fitted(name, whole))


# Credit ---------------------------------------------------------------------------------------------------------


def _estimate(
    name: str,
    token_level_rewards: Tensor,
    response_mask: Tensor,
    config: Any = None,
    index: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """verl's advantage estimator: ([B, T] advantages, [B, T] returns).

    The outcome is a row's summed reward. Rows without decisions, by which verl fills batches up, are in no statistic.
    """
    settings = _plain(config.get("polopt")) if config is not None else {}
    if config is not None and config.get("use_kl_in_reward", False):
        raise BridgeError(
            f"{name}: algorithm.use_kl_in_reward puts a penalty into the reward behind the sentence's back; set it to "
            "false, and rewards.KLPenalty in the sentence"
        )
    runs, mask = _runs(name, settings), response_mask.bool()
    real, needs = mask.any(1), runs.algorithm.reward.all_needs | runs.algorithm.credit.all_needs
    horizon = settings.get("horizon")
    experience = experience_of(_heard.get(), needs, token_level_rewards, mask, index, horizon, runs.sampler_apart)[real]
    advantages, returns = torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)
    if not real.any():
        return advantages, returns
    credited = runs.algorithm.credited(experience)
    advantages[real] = credited.advantage.to(advantages)
    returns[real] = _returns(runs.whole, credited).to(returns)
    runs.algorithm.advance()
    return advantages, returns


def _returns(algorithm: Algorithm, credited: Experience) -> Tensor:
    """[B, T] what verl's critic learns by, if the sentence has one; the row's return elsewhere."""
    if (critic := critic_of(algorithm)) is None:
        return torch.where(credited.mask, credited.returns()[:, None], 0)
    with torch.no_grad():
        return torch.where(credited.mask, critic.target(credited) + credited.value, 0)


# Objective ------------------------------------------------------------------------------------------------------


class Handed(Weight):
    """w = `experience.weight`: verl's rollout correction."""

    needs = frozenset({"weight"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return experience.weight


def _loss(
    name: str,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """verl's policy loss: this micro-batch's share of the whole optimiser batch's loss, times the data-parallel size,
    by which verl divides gradients again. The sentence's own reducer decides, not `loss_agg_mode`."""
    runs, mask = _runs(name, _plain(getattr(config.policy_loss, "polopt", None))), response_mask.bool()
    objective = runs.algorithm.objective
    assert isinstance(objective, Surrogate)
    held = {"data": {"old_log_probs": old_log_prob, **_micro(objective.all_needs, runs)}}
    found = behaviour(held, runs.sampler_apart) | {"ref_logp": held["data"].get("ref_log_prob")}
    experience = Experience(mask=mask, advantage=advantages, horizon=config.loss_scale_factor, **found)
    if rollout_is_weights is not None:
        objective = objective.but(weights=[*objective.weights, Handed()])
        experience = experience.replace(weight=rollout_is_weights)
    evaluation = Evaluation(logp=log_prob, **_entropy(objective))
    result = objective(experience, evaluation)
    share = _share(objective.aggregate, experience, config.global_batch_info)
    with torch.no_grad():
        drift = ops.masked_mean(torch.where(mask, old_log_prob - log_prob, 0), mask)
    metrics = {f"polopt/{key}": value.item() for key, value in result.metrics.items()}
    metrics |= {"actor/pg_clipfrac": metrics.get("polopt/clip_fraction", 0.0), "actor/ppo_kl": drift.item()}
    return result.loss * share, metrics


def _micro(needs: frozenset[str], runs: _Runs) -> dict[str, Any]:
    """Fields of the micro-batch that verl has and does not hand to its losses."""
    data: Any = _heard.get().get("data", {})
    wanted = (["ref_log_prob"] if "ref_logp" in needs else []) + (["rollout_log_probs"] if runs.sampler_apart else [])
    wanted = [key for key in wanted if key in data]
    return dict(data.select(*wanted).to_padded_tensor().items()) if wanted else {}


def _entropy(objective: Surrogate) -> dict[str, Any]:
    heard = _heard.get()
    if "entropy" not in objective.all_evaluates or (said := heard.get("model_output", {}).get("entropy")) is None:
        return {}
    from verl.workers.utils.padding import no_padding_2_padding

    return {"entropy": no_padding_2_padding(said, heard["data"])}


def _share(aggregate: Aggregate, experience: Experience, whole: Mapping[str, Any]) -> float:
    """What a loss over the micro-batch's own denominator is of the optimiser batch's, on all processes."""
    workers, tokens, rows = (whole.get(key) for key in ("dp_size", "batch_num_tokens", "global_batch_size"))
    own = float(aggregate.denominator(experience))
    count: dict[type[Aggregate], Callable[[], Any]] = {
        TokenMean: lambda: tokens,
        SequenceMean: lambda: rows,
        SequenceSum: lambda: None if rows is None else rows * own / len(experience),
    }
    total = count[type(aggregate)]()
    if total is None:
        if (workers or 1) > 1:
            raise BridgeError("verl did not say what the whole optimiser batch holds, and there are several processes")
        return 1.0
    return (workers or 1) * max(own, 1.0) / max(float(total), 1.0)


# verl -----------------------------------------------------------------------------------------------------------


def _overhear(where: Any, name: str) -> None:
    """What `name` of a module or class is called with can be read while it runs, by whoever of verl calls it."""
    original = getattr(where, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        token = _heard.set({**_heard.get(), **signature.bind(*args, **kwargs).arguments})
        try:
            return original(*args, **kwargs)
        finally:
            _heard.reset(token)

    for known in [where, *(module for key, module in sys.modules.items() if key.startswith("verl."))]:
        if vars(known).get(name) is original:
            setattr(known, name, wrapper)


for _slug in catalogue.slugs():
    _offer(PREFIX + _slug)
_overhear(importlib.import_module("verl.workers.utils.losses"), "ppo_loss")
with contextlib.suppress(ImportError):  # without what verl's trainers need there is nobody who would call them
    _overhear(importlib.import_module("verl.trainer.ppo.ray_trainer"), "compute_advantage")
    _overhear(importlib.import_module("verl.trainer.ppo.v1.trainer_base").PPOTrainer, "_compute_advantage")
