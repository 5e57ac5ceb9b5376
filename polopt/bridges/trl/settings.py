"""Reconciliation of TRL's config with a method, before any model is loaded."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.part import settings_of
from polopt.sampling import Rollouts
from polopt.support import PLAIN, Support

# Settings of GRPOConfig that the method replaces.
REPLACED = (
    *("loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta", "scale_rewards"),
    *("multi_objective_aggregation", "sapo_temperature_neg", "sapo_temperature_pos", "vespo_k_pos", "vespo_lambda_pos"),
    *("vespo_k_neg", "vespo_lambda_neg", "top_entropy_quantile", "entropy_coef", "use_adaptive_entropy"),
    *("off_policy_mask_threshold", "use_bias_correction_kl"),
)
# Settings by which TRL's sampling distribution differs from that of its log-probabilities, with the values that
# disable them.
RESHAPING: dict[str, tuple[Any, ...]] = {
    "top_p": (1.0,),
    "top_k": (0, None),
    "min_p": (0.0, None),
    "repetition_penalty": (1.0,),
}


def settle(args: Any, name: str, algorithm: Algorithm) -> tuple[Any, Algorithm, list[str]]:
    """Returns a copy of the GRPOConfig `args`, the algorithm, and the changes to both, a sentence each.

    TRL's config decides the rollouts of a prompt and the split of rows into steps and processes; the method decides
    credit and loss. The temperature is that of whichever of the two sets one that is not the default.

    Raises:
        BridgeError: the two disagree, or TRL cannot do what the method or the config needs.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(args)}
    for key in REPLACED:
        if (found := getattr(args, key)) != defaults[key]:
            raise BridgeError(
                f"GRPOConfig({key}={found!r}) has no effect: {name} defines the loss; leave {key} at its default "
                f"{defaults[key]!r}, and set the method's own settings, as method={{'name': {name!r}, ...}}"
            )
    for key, harmless in RESHAPING.items():
        if (found := getattr(args, key)) not in harmless:
            raise BridgeError(
                f"GRPOConfig({key}={found!r}) samples from another distribution than TRL's log-probabilities are of, "
                f"so that ratios would not be 1 on policy; leave it at {harmless[0]!r}"
            )
    if reshaped := sorted({"temperature", *RESHAPING} & (args.generation_kwargs or {}).keys()):
        raise BridgeError(
            f"GRPOConfig(generation_kwargs) changes {', '.join(reshaped)}, which TRL's log-probabilities ignore; "
            "set GRPOConfig's own temperature, and leave the others out"
        )
    args, notes = copy.copy(args), list[str]()
    _reference(args, name, algorithm, notes)
    _windows(args, notes)
    if isinstance(algorithm.sampling, Rollouts):
        algorithm = _sampled(args, name, algorithm, notes)
    return args, algorithm, notes


def _reference(args: Any, name: str, algorithm: Algorithm, notes: list[str]) -> None:
    """Reconciles `beta`, with which TRL makes a reference policy if it is not 0, with the method's own coefficient."""
    compares = [p for p in algorithm.parts() if "ref_logp" in p.reads]
    own = [p.coefficient for p in compares if any(f.name == "coefficient" for f in settings_of(type(p)))]
    if args.beta and not compares:
        raise BridgeError(
            f"GRPOConfig(beta={args.beta}) sets a penalty on the distance to a reference policy, which {name} does "
            "not have; leave beta at 0.0, or add one to the method, as algorithm.but(**{'objective.regularise': "
            f"[po.objectives.ReferenceKL(coefficient={args.beta})]}})"
        )
    if args.beta and args.beta not in own:
        raise BridgeError(
            f"GRPOConfig(beta={args.beta}) and {name} disagree, whose own is {own or 'not a coefficient'}; leave beta "
            "at 0.0, and set the method's"
        )
    if compares and not args.beta:
        args.beta = next((float(c) for c in own if isinstance(c, (int, float)) and c), 1.0)
        notes.append(f"beta = {args.beta:g}: {name} compares with a reference policy")


def _windows(args: Any, notes: list[str]) -> None:
    """Makes an optimiser batch part of one generation."""
    micro, window = args.steps_per_generation, args.gradient_accumulation_steps
    if micro % window == 0:
        return
    if window % micro:
        raise BridgeError(
            f"GRPOConfig(steps_per_generation={micro}, gradient_accumulation_steps={window}): an optimiser batch would "
            "end in the middle of a generation; let one be a multiple of the other"
        )
    args.steps_per_generation = window
    args.generation_batch_size = args.generation_batch_size // micro * window
    notes.append(
        f"steps_per_generation = {window}, not {micro}: an optimiser batch is generated at once, since its normalisers "
        "are of all of it"
    )


def _sampled(args: Any, name: str, algorithm: Algorithm, notes: list[str]) -> Algorithm:
    sampling: Any = algorithm.sampling
    own, of_config = sampling.support, Support(temperature=args.temperature)
    if own.truncated or own.by_entropy is not None:
        raise BridgeError(
            f"{name} samples over {own}, and TRL's log-probabilities are of the whole vocabulary at one temperature; "
            "take algorithm.but(**{'sampling.support': po.Support()}), or train it in polopt's own loop"
        )
    if own != of_config and PLAIN not in (own, of_config):
        raise BridgeError(
            f"GRPOConfig(temperature={args.temperature}) and {name}, which samples at {own.temperature}, disagree; set "
            "one of the two"
        )
    if own != of_config and of_config == PLAIN:
        args.temperature, of_config = own.temperature, own
        notes.append(f"temperature = {own.temperature:g}: {name} samples at it")
    if sampling.group != args.num_generations:
        notes.append(f"{name} has groups of {sampling.group}; num_generations makes it {args.num_generations}")
    if sampling.refills:
        notes.append(
            f"{name} samples again where filters leave less than a full batch; TRL does not, so batches are smaller"
        )
    changes: dict[str, Any] = {"sampling.group": args.num_generations, "sampling.support": of_config}
    return algorithm.but(changes)


def name_of(method: str | Mapping[str, Any] | Algorithm) -> str:
    """Returns the method's name in messages."""
    return "the algorithm" if isinstance(method, Algorithm) else method if isinstance(method, str) else method["name"]


def paper_of(method: Any) -> dict[str, str]:
    """Returns the paper for the model card; empty for a method without a name in the catalogue."""
    name = method if isinstance(method, str) else method.get("name", ":") if isinstance(method, Mapping) else ":"
    if ":" in name:
        return {}
    found = catalogue.find(name)
    return {"title": found.paper.title, "id": found.paper.arxiv or "", "citation": found.paper.bibtex(found.slug)}


def names_of(rewards: Any) -> Iterable[str]:
    """Returns TRL's names of reward functions."""
    from trl.trainer.utils import get_callable_name

    listed = rewards if isinstance(rewards, list) else [] if rewards is None else [rewards]
    return [get_callable_name(r) for r in listed if callable(r) and not isinstance(r, nn.Module)]
