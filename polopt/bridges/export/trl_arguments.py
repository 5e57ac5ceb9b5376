"""Settings of TRL's trainers that all of its scripts share."""

from __future__ import annotations

from typing import Any

from polopt.bridges.export.job import ExportedStage
from polopt.training.specs import OptimiserSpec


def differences(job: ExportedStage) -> list[str]:
    """Returns in what the trainer differs from polopt's loop, a sentence each."""
    notes = []
    if job.updates > 1 and (job.stage.optimiser.decay != "constant" or job.stage.optimiser.warmup):
        notes.append("the learning rate moves with every optimiser step; here it moves with every batch")
    if job.stage.optimiser.warmup:
        notes.append("the learning rate rises from 0; here the first step already has a share")
    if job.stage.micro_rows is not None and job.micro_rows != job.stage.micro_rows:
        notes.append(f"micro_rows is {job.micro_rows}, which divides an optimiser batch")
    if job.recipe.evaluation.every:
        notes.append("evaluations are not made while it trains; heldout.jsonl is the trainer's eval_dataset")
    if job.recipe.max_prompt_length is not None:
        notes.append("max_prompt_length: TRL's trainer has no such limit; longer prompts stay in train.jsonl")
    return notes


def optimiser_arguments(job: ExportedStage) -> dict[str, Any]:
    """Returns the settings of the optimiser, of precision and of the log."""
    stage, recipe, optimiser = job.stage, job.recipe, job.stage.optimiser
    return {
        "seed": recipe.seed,
        "max_steps": stage.steps * job.updates,
        "learning_rate": optimiser.lr,
        "adam_beta1": optimiser.betas[0],
        "adam_beta2": optimiser.betas[1],
        "weight_decay": optimiser.weight_decay,
        "warmup_steps": optimiser.warmup * job.updates,
        **decay(optimiser),
        "max_grad_norm": optimiser.clip,
        "disable_dropout": True,
        "gradient_checkpointing": recipe.policy.checkpointing,
        "bf16": recipe.policy.compute == "bfloat16",
        "model_init_kwargs": {"dtype": recipe.policy.dtype},
        "use_cpu": recipe.device == "cpu",
        "save_steps": recipe.checkpoint.every * job.updates,
        "logging_steps": job.updates,
        "report_to": "none",
    }


def decay(optimiser: OptimiserSpec) -> dict[str, Any]:
    """Returns transformers' settings of the learning-rate schedule."""
    if optimiser.decay == "constant":
        return {"lr_scheduler_type": "constant_with_warmup"}
    if not optimiser.final:
        return {"lr_scheduler_type": optimiser.decay}
    if optimiser.decay == "cosine":
        return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": optimiser.final}}
    straight = {"power": 1.0, "lr_end": optimiser.final * optimiser.lr}
    return {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": straight}
