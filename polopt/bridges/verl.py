"""Methods inside verl (0.9 or later): credit as an advantage estimator, the objective as a policy loss.

Importing this module registers every published method under `polopt/<slug>`; verl imports it in each of its processes
if the configuration sets `actor_rollout_ref.model.external_lib: polopt.bridges.verl`, as that of `config` does.

verl passes rewards and groups to an estimator, and log-probabilities and advantages to a loss. The functions of verl
that call them, and the methods around these, have more fields (values, the reference, the sampler's log-probabilities,
the entropy, the answers, the whole of an optimiser batch). They are wrapped so that their arguments can be read during
the call; their results do not change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polopt import index, ops
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.verl_batch import experience_of, groups_of
from polopt.bridges.verl_call_context import call_arguments, record_arguments
from polopt.bridges.verl_config import HOST, PREFIX, config, critic_of, fitted, named, written
from polopt.bridges.verl_loss import policy_loss
from polopt.experience import Experience

try:
    from omegaconf import DictConfig, OmegaConf
    from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss
    from verl.workers.config import PolicyLossConfig
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error}; pip install "polopt[verl]"', name=error.name) from None

__all__ = ["HOST", "BridgeError", "PolicyLoss", "config", "register"]

_registered: dict[str, Algorithm] = {}


@dataclasses.dataclass(frozen=True)
class _Runs:
    """An algorithm in verl.

    whole: the algorithm as published.
    algorithm: the algorithm without the parts that verl itself replaces.
    """

    whole: Algorithm
    algorithm: Algorithm

    @property
    def uses_sampler_logp(self) -> bool:
        """True if the algorithm distinguishes the sampler's log-probabilities from the learner's own before its first
        update.

        Otherwise both are verl's `old_log_probs`.
        """
        return "old_logp" in self.algorithm.required_fields


def register(name: str, algorithm: Algorithm) -> None:
    """Registers an algorithm as estimator and policy loss `name`, such as `polopt/mine`.

    The call must run in every process of verl: in a module that imports this one, and that `external_lib` names.

    Raises:
        BridgeError: verl does not provide all fields that the algorithm needs.
        ValueError: the name is taken.
    """
    fitted(name, algorithm)
    _offer(name)
    _registered[name] = algorithm


@dataclasses.dataclass
class PolicyLoss(PolicyLossConfig):
    """verl's settings of a policy loss, with the algorithm. verl makes one when it checks its configuration, before it
    loads any model.

    polopt: `algorithm.polopt` of the configuration; empty for the method of the name with its defaults.

    Raises:
        BridgeError: verl does not provide all fields that the algorithm needs.
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
    """Returns one instance per process, since credit keeps state from batch to batch."""
    settings = json.loads(spec)
    whole = written(settings) if "algorithm" in settings else _registered[name] if name in _registered else named(name)
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
    """Computes verl's advantage estimator: ([B, T] advantages, [B, T] returns).

    The outcome is a row's summed reward. Groups without decisions, by which verl pads batches, are left out of all
    statistics.
    """
    settings = _plain(config.get("polopt")) if config is not None else {}
    if config is not None and config.get("use_kl_in_reward", False):
        raise BridgeError(
            f"{name}: algorithm.use_kl_in_reward puts a penalty into the reward that is not in the sentence; set it to "
            "false, and rewards.KLPenalty in the sentence"
        )
    runs, mask = _runs(name, settings), response_mask.bool()
    needs, real = runs.algorithm.reward.required_fields | runs.algorithm.credit.required_fields, mask.any(1)
    if index is not None:
        real = ops.group_sum(real.double(), groups_of(index).to(mask.device)) > 0
    horizon = settings.get("horizon")
    experience = experience_of(
        call_arguments.get(), needs, token_level_rewards, mask, index, horizon, runs.uses_sampler_logp
    )[real]
    advantages, returns = torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)
    if not real.any():
        return advantages, returns
    credited = runs.algorithm.with_advantages(experience)
    advantages[real] = credited.advantage.to(advantages)
    returns[real] = _returns(runs.whole, credited).to(returns)
    runs.algorithm.step()
    return advantages, returns


def _returns(algorithm: Algorithm, credited: Experience) -> Tensor:
    """Returns the targets [B, T] of verl's critic, if the algorithm has a critic; else the row's return."""
    if (critic := critic_of(algorithm)) is None:
        return torch.where(credited.mask, credited.returns()[:, None], 0)
    credited.require({"value_target"}, by=critic)
    return torch.where(credited.mask, credited.value_target, 0)


# Objective ------------------------------------------------------------------------------------------------------


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
    """Computes verl's policy loss."""
    runs = _runs(name, _plain(getattr(config.policy_loss, "polopt", None)))
    arguments = (old_log_prob, log_prob, advantages, response_mask, config, rollout_is_weights)
    return policy_loss(runs.algorithm, runs.uses_sampler_logp, *arguments)


# verl -----------------------------------------------------------------------------------------------------------


for _slug in index.slugs("algorithm"):
    _offer(PREFIX + _slug)
for _module, _class, _name in (
    ("verl.workers.utils.losses", None, "ppo_loss"),
    ("verl.workers.engine_workers", "TrainingWorker", "train_batch"),
    ("verl.trainer.ppo.ray_trainer", None, "compute_advantage"),
    ("verl.trainer.ppo.v1.trainer_base", "PPOTrainer", "_compute_advantage"),
):
    with contextlib.suppress(ImportError):  # without the requirements of verl's trainers these functions are not called
        _found = importlib.import_module(_module)
        record_arguments(_found if _class is None else getattr(_found, _class), _name)
