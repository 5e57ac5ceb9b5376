"""The stages of a recipe as jobs of the plan, and the check of their memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.plan.hardware import Device
from polopt.plan.job import PlannedJob
from polopt.plan.memory_budget import memory_budgets
from polopt.plan.requirements import requirements_of
from polopt.plan.shape import ModelShape, shape_of
from polopt.policies.adapter import AdapterSpec
from polopt.policies.preflight import config_of
from polopt.training.language_recipe import LanguageRecipe, PolicySpec
from polopt.training.specs import StageSpec


def job_of(
    stage: StageSpec,
    policy: PolicySpec,
    algorithm: Algorithm,
    *,
    shape: ModelShape,
    device: Device,
    prompt: float,
    answer: float,
    limit: float,
    kept: float = 0.6,
    **others: Any,
) -> PlannedJob:
    """Returns a stage's job. prompt, answer, limit: mean tokens of prompts and answers, and the most of an answer.
    kept: as `requirements_of`. others: settings of `PlannedJob` that no recipe has, or that differ from the recipe's.

    Raises:
        ConfigError: settings that do not go together.
    """
    needs = requirements_of(algorithm, kept=kept, decisions=answer)
    settings: dict[str, Any] = {
        "rows": stage.rows,
        "group": needs.group,
        "steps": stage.steps,
        "epochs": stage.epochs,
        "minibatches": algorithm.minibatches(round(stage.rows * answer), stage.minibatches),
        "micro_rows": stage.micro_rows,
        "dtype": policy.dtype,
        "compute": policy.compute,
        "checkpointing": policy.checkpointing,
        "lora": policy.adapter.rank if isinstance(policy.adapter, AdapterSpec) else 0,
    }
    overrides = {name: value for name, value in others.items() if value is not None}
    settings |= overrides
    return PlannedJob(shape=shape, device=device, demands=needs, prompt=prompt, answer=answer, limit=limit, **settings)


# Tokens of a prompt before any is known: few, so that the memory in a refusal is a lower bound.
LEAST_PROMPT = 8


def check_memory(recipe: LanguageRecipe) -> None:
    """Refuses a recipe whose named model this machine cannot train, from the model's config and the plan's formulas,
    before any weight is loaded. Sharded weights, and other engines than polopt's own, are not checked.

    Raises:
        ConfigError: the memory that would be held, and the memory that there is.
    """
    name = recipe.policy.model
    if name is None or recipe.rollout.engine != "native" or recipe.parallel != "ddp":
        return
    if (Path(name) / "adapter_config.json").is_file():  # no model: it is refused where models are loaded
        return
    have = memory_of(recipe.device)
    shape = shape_of_place(name)
    for stage, job in jobs_of(recipe, shape, recipe.device, LEAST_PROMPT):
        for budget in memory_budgets(job).values():
            if budget.peak > have:
                largest = sorted(budget.items.items(), key=lambda item: -item[1])[:4]
                parts = ", ".join(f"{what} {value / 1e9:.1f} GB" for what, value in largest if value)
                raise ConfigError(
                    f"stages.{stage} needs at least {budget.peak / 1e9:.1f} GB with policy.model = {name!r} ({parts}), "
                    f"and {recipe.device} has {have / 1e9:.1f} GB; set micro_rows, policy.checkpointing: true, an "
                    "adapter, policy.dtype: bfloat16, or take a smaller model"
                )


def jobs_of(recipe: LanguageRecipe, shape: ModelShape, device: str, prompt: int) -> Iterator[tuple[str, PlannedJob]]:
    """Yields each stage's name and job on one device of unbounded memory, with prompts of so many tokens and answers
    that run to their limit."""
    kind = torch.device(device).type  # the number of logits in memory depends on it
    anything = Device(name=kind, kind=kind, flops={"float32": 1}, memory=1e18, bandwidth=1, held=0.0)
    engine = "native" if recipe.rollout.engine == "native" else "paged"
    for name, stage in recipe.stages.items():
        limit = recipe.limit_of(name)
        lengths = {"prompt": prompt, "answer": limit, "limit": limit}
        algorithm = recipe.algorithms[name]
        yield name, job_of(stage, recipe.policy, algorithm, shape=shape, device=anything, engine=engine, **lengths)


def memory_of(device: str) -> float:
    """Returns the bytes of memory that a device has in all."""
    if torch.device(device).type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def shape_of_place(name: str) -> ModelShape:
    """Returns the shape of a named model, from its config: its parameters are counted without memory.

    Raises:
        ConfigError: there is no such model.
    """
    from transformers import AutoModelForCausalLM

    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        return shape_of_model(AutoModelForCausalLM.from_config(config_of(name)))


def shape_of_model(model: Any) -> ModelShape:
    """Returns the shape of a `transformers` model with its parameters counted; an architecture without a plan of its
    own is treated as Llama's."""
    config = model.config.get_text_config()
    try:
        shape = shape_of(config.to_dict())
    except ConfigError:
        width, heads = config.hidden_size, config.num_attention_heads
        shape = ModelShape(
            name=config.model_type,
            layers=config.num_hidden_layers,
            width=width,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_width=getattr(config, "head_dim", None) or width // heads,
            inner=getattr(config, "intermediate_size", None) or 4 * width,
            vocabulary=config.vocab_size,
            tied=bool(getattr(config, "tie_word_embeddings", False)),
        )
    return dataclasses.replace(shape, counted=sum(p.numel() for p in model.parameters()))
