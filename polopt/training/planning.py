"""A stage of a recipe as a job to be planned."""

from __future__ import annotations

import dataclasses
from typing import Any

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.plan.demands import demands
from polopt.plan.hardware import Device
from polopt.plan.job import Job
from polopt.plan.shape import Shape, shape_of
from polopt.policies.adapter import AdapterSpec
from polopt.training.recipe import PolicySpec, StageSpec


def job_of(
    stage: StageSpec,
    policy: PolicySpec,
    algorithm: Algorithm,
    *,
    shape: Shape,
    device: Device,
    prompt: float,
    answer: float,
    limit: float,
    kept: float = 0.6,
    **others: Any,
) -> Job:
    """prompt, answer, limit: mean tokens, and the most of an answer. kept: as `demands`. others: settings of `Job` that
    no recipe has, or that shall differ from the recipe's.

    Raises:
        ConfigError: settings that do not go together.
    """
    needs = demands(algorithm, kept=kept, decisions=answer)
    settings: dict[str, Any] = {
        "rows": stage.rows,
        "group": needs.group or 1,
        "steps": stage.steps,
        "epochs": stage.epochs,
        "minibatches": stage.minibatches,
        "micro_rows": stage.micro_rows,
        "dtype": policy.dtype,
        "compute": policy.compute,
        "checkpointing": policy.checkpointing,
        "lora": policy.adapter.rank if isinstance(policy.adapter, AdapterSpec) else 0,
    }
    given = {name: value for name, value in others.items() if value is not None}
    settings |= given
    return Job(shape=shape, device=device, demands=needs, prompt=prompt, answer=answer, limit=limit, **settings)


def shape_of_model(model: Any) -> Shape:
    """The shape of a `transformers` model with its parameters counted; of an architecture that plans do not know, as if
    it were Llama's."""
    config = model.config.get_text_config()
    try:
        shape = shape_of(config.to_dict())
    except ConfigError:
        width, heads = config.hidden_size, config.num_attention_heads
        shape = Shape(
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
