"""Export of a stage as a Python script for TRL."""

from __future__ import annotations

import json
from typing import Any

from polopt.bridges.export.job import Exported, ExportedStage
from polopt.bridges.trl.trl_capabilities import host_of
from polopt.training.specs import OptimiserSpec
from polopt.worlds.protocol import signals_of
from polopt.yaml_data import write_yaml

SCRIPT = '''\
"""{name} of a polopt recipe, in TRL. Needs: pip install "polopt[trl]"

recipe.yaml is the recipe. Where it differs from this script:
{notes}
"""

from pathlib import Path

{imports}from datasets import load_dataset
from trl import GRPOConfig

from polopt.bridges.export.reward import WorldReward
from polopt.bridges.trl import PoloptTrainer
{parts}
HERE = Path(__file__).resolve().parent

MODEL = {model}
METHOD = {method}


def main() -> None:
{threads}\
    rows = load_dataset("json", data_files={{"train": str(HERE / "train.jsonl"), "test": str(HERE / "heldout.jsonl")}})
    trainer = PoloptTrainer(
        model=MODEL,
        method=METHOD,
        reward_funcs=WorldReward.of(HERE).trl(),
        args=GRPOConfig(
            output_dir=str(HERE / "checkpoints"),
{args}
        ),
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
    )
    trainer.train()
    trainer.save_model(str(HERE / "trained"))


if __name__ == "__main__":
    main()
'''


def write_trl(job: ExportedStage) -> Exported:
    """Writes train.py and the tasks as JSON lines.

    Raises:
        BridgeError: TRL does not provide all fields that the method needs.
    """
    host_of(["world", *signals_of(job.train)], ["kind"]).refuse(job.name, job.algorithm)
    notes = [*job.notes, *_differences(job)]
    for split, name in (("train", "train.jsonl"), ("heldout", "heldout.jsonl")):
        job.write(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in job.rows(split)))
    threads, method = job.recipe.threads, _method(job)
    job.write(
        "train.py",
        SCRIPT.format(
            name=job.name,
            notes="\n".join(f"- {note}" for note in notes),
            parts="from polopt.part import from_yaml\n" if "from_yaml" in method else "",
            model='str(HERE / "policy")' if job.model is None else repr(job.model),
            method=method,
            args="\n".join(f"            {key}={value!r}," for key, value in _args(job).items()),
            threads=f"    torch.set_num_threads({threads})\n" if threads else "",
            imports="import torch\n" if threads else "",
        ),
    )
    return Exported(job.folder, f"python {job.folder / 'train.py'}", notes)


def _method(job: ExportedStage) -> str:
    """Returns the method's name and settings as source code, or code that loads the whole algorithm from a file if the
    recipe changes parts of it."""
    if job.stage.but or ":" in job.name:
        job.write("method.yaml", write_yaml(job.sentence))
        return 'from_yaml((HERE / "method.yaml").read_text(encoding="utf-8"))'
    return repr(job.stage.method)


def _differences(job: ExportedStage) -> list[str]:
    notes = ["tasks come in TRL's order, and its minibatches are rows at random, not whole groups"]
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


def _args(job: ExportedStage) -> dict[str, Any]:
    stage, recipe, optimiser = job.stage, job.recipe, job.stage.optimiser
    passes = stage.rows // stage.minibatches // job.micro_rows
    signals = signals_of(job.train)
    return {
        **({"reward_weights": [1.0] + [0.0] * len(signals)} if signals else {}),
        "seed": recipe.seed,
        "max_steps": stage.steps * job.updates,
        "num_generations": job.group,
        "per_device_train_batch_size": job.micro_rows,
        "gradient_accumulation_steps": passes,
        "steps_per_generation": passes * stage.minibatches,
        "num_iterations": stage.epochs,
        "max_completion_length": job.limit,
        "temperature": job.algorithm.sampling.settings()["support"].temperature,
        "learning_rate": optimiser.lr,
        "adam_beta1": optimiser.betas[0],
        "adam_beta2": optimiser.betas[1],
        "weight_decay": optimiser.weight_decay,
        "warmup_steps": optimiser.warmup * job.updates,
        **_decay(optimiser),
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


def _decay(optimiser: OptimiserSpec) -> dict[str, Any]:
    """Returns transformers' settings of the learning-rate schedule."""
    if optimiser.decay == "constant":
        return {"lr_scheduler_type": "constant_with_warmup"}
    if not optimiser.final:
        return {"lr_scheduler_type": optimiser.decay}
    if optimiser.decay == "cosine":
        return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": optimiser.final}}
    straight = {"power": 1.0, "lr_end": optimiser.final * optimiser.lr}
    return {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": straight}
