"""Export of a stage as a Python script for TRL."""

from __future__ import annotations

import json
from typing import Any

from polopt.bridges.export.job import Exported, ExportedStage
from polopt.bridges.export.trl_arguments import differences, optimiser_arguments
from polopt.bridges.export.trl_preferences import write_trl_preferences
from polopt.bridges.trl.trl_capabilities import host_of
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


ORDER = "tasks come in TRL's order, and its minibatches are rows at random, not whole groups"


def write_trl(job: ExportedStage) -> Exported:
    """Writes train.py and the tasks as JSON lines; of a method that learns from given answers, see
    `write_trl_preferences`.

    Raises:
        BridgeError: TRL does not provide all fields that the method needs.
    """
    if {"pairs", "rated"} & job.algorithm.sampling.source_capabilities:
        return write_trl_preferences(job)
    host_of(["world", *signals_of(job.train)], ["kind"]).refuse(job.name, job.algorithm)
    notes = [*job.notes, ORDER, *differences(job)]
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


def _args(job: ExportedStage) -> dict[str, Any]:
    stage = job.stage
    passes = stage.rows // stage.minibatches // job.micro_rows
    signals = signals_of(job.train)
    return {
        **({"reward_weights": [1.0] + [0.0] * len(signals)} if signals else {}),
        "num_generations": job.group,
        "per_device_train_batch_size": job.micro_rows,
        "gradient_accumulation_steps": passes,
        "steps_per_generation": passes * stage.minibatches,
        "num_iterations": stage.epochs,
        "max_completion_length": job.limit,
        "temperature": job.algorithm.sampling.settings()["support"].temperature,
        **optimiser_arguments(job),
    }
