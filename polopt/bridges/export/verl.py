"""Export of a stage as YAML and a command for verl."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from polopt.bridges.export.job import Exported, ExportedStage
from polopt.bridges.verl_config import config
from polopt.config import ConfigError

# The command sets paths: verl resolves its configuration in other processes, which have another working directory.
COMMAND = """\
#!/usr/bin/env bash
# {name} of a polopt recipe, in verl. Needs: pip install "polopt[verl]"
# recipe.yaml is the recipe. Where it differs from verl.yaml:
{notes}
# More settings of verl go behind: bash train.sh trainer.n_gpus_per_node=8
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python -m verl.trainer.main_ppo --config-path "$here" --config-name verl \\
  data.train_files="$here/train.parquet" data.val_files="$here/heldout.parquet" \\
  reward.custom_reward_function.path="$here/reward.py" \\
  actor_rollout_ref.model.path={model} trainer.default_local_dir="$here/checkpoints" "$@"
"""

REWARD = '''\
"""What an answer is worth: the world of recipe.yaml."""

from pathlib import Path

from polopt.bridges.export.reward import WorldReward

world = WorldReward.of(Path(__file__).resolve().parent)


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **others):
    return world.verl(solution_str, extra_info)
'''


def write_verl(job: ExportedStage) -> Exported:
    """Writes verl.yaml, train.sh, reward.py and the tasks as parquet.

    Raises:
        BridgeError: verl does not provide all fields that the method needs.
        ConfigError: the model's tokenizer has no chat template, which verl needs; pyarrow is not installed.
    """
    if not job.chat:
        raise ConfigError(f"{job.model}: its tokenizer has no chat template, and verl's prompts are conversations")
    name = job.name.rpartition(":")[2]
    data = _merged(config(job.algorithm, name=name), _settings(job))
    notes = [*job.notes, *_differences(job)]
    longest = max(_write(job, split) for split in ("train", "heldout"))
    data["data"]["max_prompt_length"] = min(longest, job.recipe.max_prompt_length or longest)
    data["algorithm"]["polopt"]["algorithm"] = job.sentence
    job.write("verl.yaml", yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
    job.write("reward.py", REWARD)
    model = '"$here/policy"' if job.model is None else shlex.quote(job.model)
    comments = "\n".join(f"# - {note}" for note in notes)
    job.write("train.sh", COMMAND.format(name=job.name, notes=comments, model=model))
    return Exported(job.folder, f"bash {job.folder / 'train.sh'}", notes)


def _write(job: ExportedStage, split: str) -> int:
    """Writes the tasks in verl's format, and returns the tokens of the longest prompt."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ConfigError('verl reads parquet, which is written by pyarrow: pip install "polopt[verl]"') from None
    rows, longest = [], 0
    for row in job.rows(split):
        prompt = job.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=True)
        longest = max(longest, len(prompt["input_ids"]))
        rows.append(
            {
                "data_source": row["kind"],
                "prompt": row["prompt"],
                "reward_model": {"style": "rule", "ground_truth": row["answer"]},
                "extra_info": {"split": split, "index": row["index"], "id": row["id"]},
            }
        )
    parquet.write_table(pyarrow.Table.from_pylist(rows), job.folder / f"{split}.parquet")
    return longest


def _settings(job: ExportedStage) -> dict[str, Any]:
    stage, recipe, optimiser = job.stage, job.recipe, job.stage.optimiser
    prompts = stage.rows // job.group
    micro = {"log_prob_micro_batch_size_per_gpu": job.micro_rows}
    actor = {
        "ppo_mini_batch_size": prompts // stage.minibatches,
        "ppo_micro_batch_size_per_gpu": job.micro_rows,
        "ppo_epochs": stage.epochs,
        "data_loader_seed": recipe.seed,
        "optim": {
            "lr": optimiser.lr,
            "betas": list(optimiser.betas),
            "weight_decay": optimiser.weight_decay,
            "lr_warmup_steps": optimiser.warmup,
            "lr_scheduler_type": "constant" if optimiser.decay == "constant" else "cosine",
            "min_lr_ratio": optimiser.final,
            "clip_grad": optimiser.clip,
        },
    }
    filtered = {} if recipe.max_prompt_length is None else {"filter_overlong_prompts": True}
    rollout = {"name": "vllm", "tensor_model_parallel_size": 1, "seed": recipe.seed, **micro}
    return {
        "data": {
            "train_batch_size": prompts,
            "max_response_length": job.limit,
            **filtered,
            "seed": recipe.seed,
        },
        "actor_rollout_ref": {
            "actor": actor,
            "rollout": rollout,
            "ref": micro,
            "model": {"enable_gradient_checkpointing": recipe.policy.checkpointing},
        },
        "reward": {"custom_reward_function": {"name": "compute_score"}},
        "trainer": {
            "total_training_steps": stage.steps,
            "total_epochs": -(-stage.steps * prompts // len(job.train)) + 1,
            "save_freq": recipe.checkpoint.every,
            "test_freq": recipe.evaluation.every or -1,
            "nnodes": 1,
            "n_gpus_per_node": 1,
            "logger": ["console"],
            "project_name": "polopt",
            "experiment_name": job.name.rpartition(":")[2],
        },
    }


def _differences(job: ExportedStage) -> list[str]:
    notes = [
        "tasks come in verl's order, and answers that are cut off are scored, too, where polopt gives them reward 0",
    ]
    if job.stage.optimiser.decay == "linear":
        notes.append("verl has no linear decay: its cosine ends at the same rate")
    if job.recipe.policy.dtype != "float32" or job.recipe.policy.compute is not None:
        notes.append("precision is verl's own: weights in float32, arithmetic in bfloat16")
    return notes


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the union of both settings; the first has precedence."""
    found = {**second, **first}
    for key in first.keys() & second.keys():
        if isinstance(first[key], Mapping) and isinstance(second[key], Mapping):
            found[key] = _merged(first[key], second[key])
    return found
