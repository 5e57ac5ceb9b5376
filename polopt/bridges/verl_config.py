"""verl's capabilities, and verl's configuration of an algorithm. Imports nothing of verl."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError, TrainerCapabilities
from polopt.objectives import SequenceMean, SequenceSum, Surrogate, TokenMean, ValueLoss
from polopt.part import build
from polopt.part_names import name_of
from polopt.sampling import MixedGroups, Rollouts
from polopt.training.provided import SIGNAL

PREFIX = "polopt/"
MODULE = "polopt.bridges.verl"
# verl's name of a reducer, by which it sums its own terms and its metrics.
MODES = {TokenMean: "token-mean", SequenceMean: "seq-mean-token-mean", SequenceSum: "seq-mean-token-sum-norm"}
# A value clip that is never active, since verl's critic has no setting for none.
NEVER = 1e9


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Verl(TrainerCapabilities):
    """Capabilities of verl, with further refusals."""

    def _refusals(self, algorithm: Algorithm) -> Iterator[str]:
        support = algorithm.sampling.rollout_support
        if support is not None and support.truncated:
            yield f"{support} leaves choices out, and verl's log-probabilities are over the whole vocabulary"
        if support is not None and support.by_entropy is not None:
            yield f"{support} gives each token a temperature, and verl has one for all"
        yield from super()._refusals(_fitted(algorithm))
        objective = algorithm.objective
        if type(objective) is not Surrogate:
            yield f"{name_of(type(objective))} has more than one denominator, or its own, and verl counts for one"
            return
        if type(objective.aggregate) not in MODES:
            yield (
                f"{name_of(type(objective.aggregate))} divides by what verl does not count; a micro-batch gets the "
                "tokens and the rows of the whole"
            )
        moving = {name_of(type(p)) for p in objective.parts() if next(p.buffers(recurse=False), None) is not None}
        if moving:
            yield f"{', '.join(sorted(moving))} in the objective moves from batch to batch, which workers cannot see"


# Fields of verl's trainer during a call for advantages, in the call or in its queue: `polopt.bridges.verl_batch`.
HOST = _Verl(
    name="verl",
    advantage_fields=frozenset(
        {"rollout_logp", "old_logp", "ref_logp", "value", "entropy", "reward", "outcome", "terminated", "group"}
    )
    | {"turn", "extras.answer", "extras.kind", "extras.turn_state", "extras.tokens"},
    loss_fields=frozenset({"rollout_logp", "old_logp", "ref_logp", "advantage"}),
    prefixes=(
        SIGNAL,
    ),  # a reward function of verl may return a dictionary with further signals in addition to the score
    policy_outputs=frozenset({"entropy"}),
    carries_fields=False,
    selects=False,
)


def fitted(name: str, algorithm: Algorithm) -> Algorithm:
    """Returns the algorithm without the parts that verl itself replaces: the filter of unanimous groups, and the
    critic's loss, by which verl's own critic learns.

    Raises:
        BridgeError: verl does not provide all fields that the algorithm needs.
    """
    HOST.refuse(name, algorithm)
    return _fitted(algorithm)


def _fitted(algorithm: Algorithm) -> Algorithm:
    changes: dict[str, Any] = {}
    if filters_groups(algorithm):
        changes |= {"sampling.select": [], "sampling.refills": 0}
    if critic_of(algorithm) is not None:
        others = [r for r in algorithm.objective.regularise if not isinstance(r, ValueLoss)]  # type: ignore[union-attr]
        changes["objective.regularise"] = others
    return algorithm.but(changes)


def filters_groups(algorithm: Algorithm) -> bool:
    """Returns True if the algorithm's only filter is verl's own: groups of equal outcomes are dropped."""
    sampling = algorithm.sampling
    return type(sampling) is Rollouts and [type(s) for s in sampling.select] == [MixedGroups]


def critic_of(algorithm: Algorithm) -> ValueLoss | None:
    """Returns the critic's loss in the algorithm's objective, None without one."""
    objective = algorithm.objective
    found = [r for r in objective.regularise if isinstance(r, ValueLoss)] if isinstance(objective, Surrogate) else []
    return found[0] if found else None


def named(name: str) -> Algorithm:
    """Returns the published algorithm behind `polopt/<slug>`.

    Raises:
        BridgeError: there is none; the nearest name is given.
    """
    try:
        return catalogue.method(name.removeprefix(PREFIX))
    except ValueError as error:
        raise BridgeError(f"{name!r}: {error}") from None


def written(spec: Mapping[str, Any]) -> Algorithm:
    """Returns the algorithm of a configuration, in the form that `config` writes.

    Raises:
        BridgeError: there is none, or it is not valid.
    """
    try:
        algorithm = build(dict(spec).get("algorithm"))
    except (TypeError, ValueError) as error:
        raise BridgeError(f"algorithm.polopt.algorithm: {error}") from None
    if not isinstance(algorithm, Algorithm):
        raise BridgeError(
            f"algorithm.polopt needs `algorithm`, an Algorithm as Algorithm.to_dict() writes it, found {algorithm!r}"
        )
    return algorithm


def config(method: str | Algorithm, *, name: str | None = None) -> dict[str, Any]:
    """Returns verl's configuration of a method, or of an algorithm under `name`, over verl's `ppo_trainer` defaults.

    It is plain data, to be written as YAML and given to `verl.trainer.main_ppo` by --config-path and --config-name.
    `algorithm.polopt.algorithm` holds the whole algorithm, to be edited there. Model, data, batch sizes and hardware
    are left to verl's defaults and the command line.

    Raises:
        BridgeError: the algorithm cannot run in verl; every reason.
        ValueError: no such method.
    """
    algorithm = catalogue.method(method) if isinstance(method, str) else method
    name = PREFIX + (name or (method if isinstance(method, str) else "mine")).removeprefix(PREFIX)
    runs = fitted(name, algorithm)
    objective, critic = runs.objective, critic_of(algorithm)
    assert isinstance(objective, Surrogate)
    needs, aggregate = runs.required_fields, objective.aggregate
    length, sentence = getattr(aggregate, "length", None), "${algorithm.polopt.algorithm"
    credit: dict[str, Any] = {
        "adv_estimator": name,
        "use_kl_in_reward": False,
        "polopt": {"horizon": "${data.max_response_length}", "algorithm": algorithm.to_dict()},
    }
    if filters_groups(algorithm):
        refills: int = algorithm.sampling.settings()["refills"]
        filters = {"enable": True, "metric": "reward", "max_num_gen_batches": 1 + refills}
        credit["filter_groups"] = {"_target_": "verl.trainer.config.FilterGroupsConfig", **filters}
    actor = {
        "policy_loss": {"_target_": f"{MODULE}.PolicyLoss", "loss_mode": name, "polopt": "${algorithm.polopt}"},
        "loss_agg_mode": MODES[type(aggregate)],
        "loss_scale_factor": "${data.max_response_length}" if length is None else length,
        # With this setting verl evaluates the reference; the term itself is in the algorithm.
        "use_kl_loss": "ref_logp" in needs,
        "kl_loss_coef": 0.0,
        "entropy_coeff": 0.0,
        "calculate_entropy": any("entropy" in p.policy_outputs for p in objective.parts()),
    }
    rollout = {
        "n": f"{sentence}.sampling.group}}",
        "temperature": f"{sentence}.sampling.support.temperature}}",
        "top_p": 1.0,
        "top_k": -1,
        "calculate_log_probs": "old_logp" in needs,
    }
    value: dict[str, Any] = {"enable": "value" in needs or critic is not None}
    if critic is not None:
        value |= {
            "cliprange_value": NEVER if critic.clip is None else critic.clip,
            "loss_agg_mode": MODES[type(aggregate)],
        }
    return {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_trainer", "_self_"],
        "algorithm": credit,
        "actor_rollout_ref": {"model": {"external_lib": MODULE}, "actor": actor, "rollout": rollout},
        "critic": value,
    }
