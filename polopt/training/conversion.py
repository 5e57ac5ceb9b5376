"""Conversion between formats: a run's checkpoint, an adapter with its base, a whole model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polopt.config import ConfigError
from polopt.policies.adapter import check_scale, is_adapted, require, save_adapter
from polopt.policies.engine import NativeSpec
from polopt.policies.language import LanguagePolicy
from polopt.policies.lowrank import Extracted, extract, save_extracted
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.origin import entered
from polopt.training.reference_policy import load_parameters
from polopt.training.run import CheckpointChoice, Run

# The texts that two policies are compared on by default.
TEXTS = ("What is 7 + 5? The answer is 12.", "Once upon a time there was", "def add(a, b):\n    return a + b\n")


def policy_at(folder: Path | str, checkpoint: CheckpointChoice = "last") -> LanguagePolicy:
    """Returns the policy of a run's checkpoint, finished or not: that of a step, the last, or the best (see
    `Run.best`).

    Raises:
        RunError: the folder is no run, or has no such checkpoint. ConfigError: the recipe cannot be prepared here.
    """
    run = Run.open(Path(folder).absolute())
    tensors = run.tensors(checkpoint)
    with entered(run) as recipe:
        # On the CPU, whatever the run's device was, and without its rollout engine.
        domain = LanguageDomain(
            LanguageRecipe.require(recipe).model_copy(update={"rollout": NativeSpec(), "device": "cpu"})
        )
    domain.check_base(run.about)
    load_parameters(domain.policy, {k.removeprefix("policy."): v for k, v in tensors.items()})
    return domain.policy


def write_checkpoint(
    folder: Path | str, to: Path, checkpoint: CheckpointChoice = "last", *, adapter: bool = False
) -> None:
    """Writes a checkpoint's policy in the Hugging Face format, an adapter merged; with `adapter`, that in PEFT's.

    Raises:
        RunError, ConfigError: as `policy_at`. ConfigError: an adapter of a run that trains none.
    """
    policy = policy_at(folder, checkpoint)
    if not adapter:
        policy.save(to)
    elif is_adapted(policy.model):
        save_adapter(policy.model, to)
    else:
        raise ConfigError(f"{folder} trains the whole model, so it has no adapter; convert the model with --base")


def merge(adapter: Path | str, base: Path | str | None, to: Path) -> None:
    """Merges base and adapter into one model in the Hugging Face format, by PEFT's own merge, whatever kind it can
    merge. The sum is taken in float32 or wider and rounded once, to the base's precision.

    base: None for the one that the adapter names.

    Raises:
        ConfigError: PEFT is not installed, one of the two cannot be loaded, or they do not belong together.
    """
    peft = require()
    try:
        config = peft.PeftConfig.from_pretrained(str(adapter))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{adapter} is no adapter in PEFT's format: {_line(error)}") from error
    check_scale(config, str(adapter))
    base = base or config.base_model_name_or_path
    if not base:
        raise ConfigError(f"{adapter} does not name its base; give --base FOLDER_OR_HUB_NAME")
    policy = _load(base)
    dtype = policy.model.dtype
    try:
        wide = policy.model.to(torch.promote_types(dtype, torch.float32))
        merged = peft.PeftModel.from_pretrained(wide, str(adapter)).merge_and_unload().to(dtype)
    except (OSError, ValueError, TypeError, RuntimeError, KeyError) as error:
        raise ConfigError(f"{adapter} cannot be put on {base}: {_line(error)}") from error
    LanguagePolicy(merged, policy.tokenizer).save(to)


@dataclasses.dataclass(frozen=True)
class Difference:
    """An adapter extracted from two models, and its error. kl: nats per token from the model to base and adapter, mean
    and largest over the texts' tokens."""

    found: Extracted
    kl: float
    worst_kl: float


@torch.no_grad()
def split(
    model: Path | str, base: Path | str, to: Path, *, rank: int | None = None, texts: Sequence[str] = TEXTS
) -> Difference:
    """Extracts the adapter, in PEFT's format, that takes a base nearest to a model of its shape; see `lowrank.extract`.

    Raises:
        ConfigError: PEFT is not installed, one of the two cannot be loaded, or they are not of one shape.
    """
    peft = require()
    model_policy, base_policy = _load(model), _load(base)
    found = extract(model_policy.model, base_policy.model, rank)
    save_extracted(found, to, base_policy.model, str(base))
    adapted = peft.PeftModel.from_pretrained(base_policy.model, str(to))
    kl = torch.cat([_kl(model_policy, adapted, text) for text in texts if text])
    return Difference(found, float(kl.mean()), float(kl.max()))


def _kl(policy: LanguagePolicy, other: Any, text: str) -> Tensor:
    """[T] KL divergence sum_a p_a log(p_a / q_a) after each token of a text, in nats."""
    ids = torch.tensor([policy.tokenizer(text)["input_ids"]])
    p, q = (m(ids, use_cache=False).logits[0].double().log_softmax(-1) for m in (policy.model, other))
    return (p.exp() * (p - q)).sum(-1)


def _load(name: Path | str) -> LanguagePolicy:
    try:
        return LanguagePolicy.load(name, dtype="auto")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name} cannot be loaded as a model: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
