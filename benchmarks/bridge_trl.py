"""What a method costs in TRL's trainer: a step of GRPOTrainer against one of PoloptTrainer with the same method.

python -m benchmarks.bridge_trl            into benchmarks/results/bridge_trl.{json,md}

Both take steps of GRPO without a reference on the same new model, prompts, seeds and settings, in turns. Counted are
seconds of the processor, on one thread, so that what else the machine does counts for little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.spec import HERE
from polopt.metrics import t_interval

CONFIG = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
STEPS, REPEATS, WARM = 8, 5, 2
RESULTS = HERE / "results"


def measure(side: str, steps: int) -> list[float]:
    """Seconds of each optimiser step, its generation included, but for the first ones."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from polopt.bridges.trl import PoloptTrainer
    from polopt.policies.factory import new_policy

    torch.set_num_threads(1)
    sums = [(f"{a} + {b} =", str(a + b)) for a in range(20) for b in range(20)]
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **others: Any) -> None:
            self.start = time.process_time()

        def on_step_end(self, *args: Any, **others: Any) -> None:
            seconds.append(time.process_time() - self.start)

    def reward(completion_ids: list[list[int]], **others: Any) -> list[float]:
        return [float(ids[0] % 2) for ids in completion_ids]

    with tempfile.TemporaryDirectory() as folder:
        policy = new_policy(CONFIG, [("sum", *row) for row in sums], seed=0, dtype="float32")
        policy.save(Path(folder))
        args = GRPOConfig(
            folder,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            num_generations=8,
            max_completion_length=48,
            max_steps=steps + WARM,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            **({"loss_type": "grpo"} if side == "trl" else {}),
        )
        prompts = Dataset.from_dict({"prompt": [p for p, _ in sums]})
        shared: dict[str, Any] = {"train_dataset": prompts, "args": args, "callbacks": [Clock()]}
        if side == "trl":
            trainer = GRPOTrainer(folder, reward_funcs=reward, **shared)
        else:
            trainer = PoloptTrainer(folder, {"name": "grpo", "kl": 0.0}, reward_funcs=reward, **shared)
        trainer.train()
    return seconds[WARM:]


def markdown(data: dict[str, Any]) -> str:
    ratios = [pair["polopt"] / pair["trl"] for pair in data["seconds"]]
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items() if version)
    lines = [
        "# A method in TRL's trainer",
        "",
        f"{data['date']}, commit {data['commit']}, `{data['command']}`.",
        "",
        f"{data['machine']['cpu']}, {data['machine']['cores']} cores, {data['threads']} thread. {versions}. Load "
        f"average {data['load_before'][0]:.1f} before and {data['load_after'][0]:.1f} after.",
        "",
        f"Steps of GRPO without a reference: 32 answers of at most 48 tokens in two micro-batches, a new model of "
        f"{CONFIG['num_hidden_layers']} layers and width {CONFIG['hidden_size']}. Median of the "
        f"processor's seconds of {data['steps']} steps, generation included; the two sides in turns.",
        "",
        "|GRPOTrainer, s|PoloptTrainer, s|ratio|",
        "|---:|---:|---:|",
        *(f"|{p['trl']:.3f}|{p['polopt']:.3f}|{r:.3f}|" for p, r in zip(data["seconds"], ratios, strict=True)),
        "",
        f"Ratio: {t_interval(ratios)}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    about, pairs = table.about(HERE.parent, threads=1, module="bridge_trl"), []
    for turn in range(options.repeats):
        order = ("trl", "polopt") if turn % 2 == 0 else ("polopt", "trl")
        pairs.append({side: statistics.median(measure(side, options.steps)) for side in order})
    data = {**about, "load_after": os.getloadavg(), "steps": options.steps, "config": CONFIG, "seconds": pairs}
    (RESULTS / "bridge_trl.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "bridge_trl.md").write_text(markdown(data))


if __name__ == "__main__":
    main()
