"""Export of a stage that learns from given answers as a script with TRL's DPOTrainer or KTOTrainer."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.export.job import Exported, ExportedStage
from polopt.bridges.export.trl_arguments import differences, optimiser_arguments
from polopt.objectives import (
    HingeLink,
    LabelledObjective,
    LogisticLink,
    LogRatioReward,
    PairedObjective,
    SigmoidLink,
    SquaredLink,
)
from polopt.worlds.protocol import Task

SCRIPT = '''\
"""{name} of a polopt recipe, in TRL. Needs: pip install trl

recipe.yaml is the recipe. Where it differs from this script:
{notes}
"""

from pathlib import Path

{imports}from datasets import load_dataset
from transformers import AutoTokenizer
from trl import {trainer}Config, {trainer}Trainer

HERE = Path(__file__).resolve().parent

MODEL = {model}


def main() -> None:
{threads}\
    rows = load_dataset("json", data_files={{"train": str(HERE / "train.jsonl"), "test": str(HERE / "heldout.jsonl")}})
    trainer = {trainer}Trainer(
        model=MODEL,
        processing_class=AutoTokenizer.from_pretrained(MODEL),
        args={trainer}Config(
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


@dataclasses.dataclass(frozen=True)
class TrlLoss:
    """A loss of TRL's. trainer: DPO or KTO. settings: of its configuration. threshold: an answer of a higher score has
    the label True."""

    trainer: str
    settings: dict[str, Any]
    threshold: float = 0.5


def trl_loss(name: str, algorithm: Algorithm) -> TrlLoss:
    """Returns the loss of TRL's that is this algorithm's.

    Raises:
        BridgeError: TRL has none, or one of that name that is another function.
    """
    objective = algorithm.objective
    if isinstance(objective, LabelledObjective):
        found = _of_labels(objective)
    else:
        found = _of_pairs(objective) if isinstance(objective, PairedObjective) else None
    if found is None or len(getattr(objective, "regularise", ())) or algorithm.reference_tau != 0.0:
        raise BridgeError(
            f"{name} cannot be written as TRL's script: its DPOTrainer and KTOTrainer have dpo, ipo with "
            "objective.implicit.decisions: mean, a hinge on DPO's log-ratios with threshold 1, and kto, without "
            f"regularisers and with a fixed reference; found {objective!r:.300}. Train it in polopt's own loop"
        )
    return found


def _of_pairs(objective: PairedObjective) -> TrlLoss | None:
    implicit, link = objective.implicit, objective.link
    if type(implicit) is not LogRatioReward or implicit.anchor != "reference" or objective.by != "outcome":
        return None
    whole = implicit.decisions == "sum"
    if whole and type(link) is LogisticLink and link.label_smoothing == link.shift == 0:
        return TrlLoss("DPO", {"loss_type": ["sigmoid"], "beta": implicit.scale})
    if whole and type(link) is HingeLink and link.threshold == 1:
        return TrlLoss("DPO", {"loss_type": ["hinge"], "beta": implicit.scale})
    if not whole and type(link) is SquaredLink and implicit.scale == 1:
        return TrlLoss("DPO", {"loss_type": ["ipo"], "beta": 1 / (2 * link.target)})
    return None


def _of_labels(objective: LabelledObjective) -> TrlLoss | None:
    implicit = objective.implicit
    if type(implicit) is not LogRatioReward or implicit.decisions != "sum" or implicit.anchor != "reference":
        return None
    if type(objective.link) is not SigmoidLink or not 0 <= objective.threshold < 1:
        return None
    return TrlLoss(
        "KTO",
        {
            "loss_type": "kto" if objective.relative else "apo_zero_unpaired",
            "beta": implicit.scale,
            "desirable_weight": objective.desirable,
            "undesirable_weight": objective.undesirable,
        },
        objective.threshold,
    )


def write_trl_preferences(job: ExportedStage) -> Exported:
    """Writes train.py and the answers as JSON lines.

    Raises:
        BridgeError: TRL has no such loss, or the answers have scores where TRL has labels or pairs.
    """
    loss = trl_loss(job.name, job.algorithm)
    each = 2 if loss.trainer == "DPO" else 1
    notes = [*job.notes, "rows come in TRL's order", *differences(job)]
    if loss.settings["loss_type"] == "kto":
        notes.append("the reference point is that of each forward pass; here it is that of the batch")
    for split, name in (("train", "train.jsonl"), ("heldout", "heldout.jsonl")):
        lines = (row for task in job.tasks(split) for row in _rows(job, task, loss))
        job.write(name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines))
    batch, micro = job.stage.rows // job.stage.minibatches // each, max(1, job.micro_rows // each)
    threads, most = job.recipe.threads, job.tokenizer.model_max_length
    arguments = {
        **loss.settings,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": batch // micro,
        "max_length": most if most < 10**6 else None,
        **optimiser_arguments(job),
    }
    job.write(
        "train.py",
        SCRIPT.format(
            name=job.name,
            notes="\n".join(f"- {note}" for note in notes),
            trainer=loss.trainer,
            model='str(HERE / "policy")' if job.model is None else repr(job.model),
            args="\n".join(f"            {key}={value!r}," for key, value in arguments.items()),
            threads=f"    torch.set_num_threads({threads})\n" if threads else "",
            imports="import torch\n" if threads else "",
        ),
    )
    return Exported(job.folder, f"python {job.folder / 'train.py'}", notes)


def _rows(job: ExportedStage, task: Task, loss: TrlLoss) -> Iterator[dict[str, Any]]:
    """Yields a task's answers in TRL's form: a pair, or each with a label."""
    said = (lambda text: [{"role": "assistant", "content": text}]) if job.chat else (lambda text: text)
    prompt = job.prompt_of(task)
    if loss.trainer == "KTO":
        for text, score in task.rated:
            yield {"prompt": prompt, "completion": said(text), "label": score > loss.threshold}
        return
    if len(task.rated) != 2:
        raise BridgeError(f"task {task.id} has {len(task.rated)} answers, and TRL's DPOTrainer takes pairs of two")
    chosen, rejected = (said(answer.text) for answer in task.rated)
    yield {"prompt": prompt, "chosen": chosen, "rejected": rejected}
