"""polopt and TRL side by side on given answers: dpo on pairs, kto on labelled answers.

python -m benchmarks.preference_training            1M and 25M parameters, into benchmarks/results/
python -m benchmarks.preference_training --quick    seconds: shows that everything runs, measures nothing of use

TRL's side is the script that `polopt export --to trl` writes of polopt's recipe, so both start from one folder of
weights and read the same tokens, in batches of as many answers; only the order of the answers is each library's own.
Sides alternate, each in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import runpy
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks import table
from benchmarks.spec import HERE
from benchmarks.worker import Measured, Stopwatch, peak, resident

ROOT = HERE.parent
# The laptop recipe's model, and one of 25 million parameters; batches of answers, optimiser steps that count, repeats.
SIZES: dict[str, dict[str, Any]] = {
    "1M": {"config": {"n_embd": 128, "n_layer": 4, "n_head": 4}, "rows": 64, "steps": 12, "repeats": 3},
    "25M": {"config": {"n_embd": 512, "n_layer": 8, "n_head": 8}, "rows": 32, "steps": 3, "repeats": 1},
    "tiny": {"config": {"n_embd": 32, "n_layer": 1, "n_head": 2}, "rows": 8, "steps": 2, "repeats": 1},
}
METHODS = {"dpo": "pairs", "kto": "labelled"}
CONTEXT = 256
# Tokens of a prompt and of an answer, which are characters.
PROMPT, ANSWER = (40, 120), (20, 120)
# Steps that do not count: libraries are imported and memory is taken.
WARMUP = 2


def texts(count: int, seed: int) -> list[dict[str, str]]:
    """Pairs of answers of unlike lengths to prompts of unlike lengths."""
    draw = random.Random(seed)
    write = lambda ends: "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=draw.randint(*ends))).strip()  # noqa: E731
    return [
        {"prompt": f"{i} {write(PROMPT)}", "chosen": write(ANSWER), "rejected": write(ANSWER)} for i in range(count)
    ]


def prepare(folder: Path, size: dict[str, Any], threads: int) -> int:
    """Writes the policy, and for each method its rows and its recipe; returns the number of parameters."""
    from polopt.policies.factory import new_policy

    steps = size["steps"] + WARMUP
    pairs = texts(size["rows"] // 2 * steps, seed=0)
    config = {"model_type": "gpt2", "n_positions": CONTEXT, **size["config"]}
    examples = [("", pair["prompt"], pair["chosen"]) for pair in pairs]
    policy = new_policy(config, examples, seed=0, dtype="float32")
    policy.save(folder / "policy")
    heldout = texts(4, seed=1)
    for method, kind in METHODS.items():
        place = folder / method
        place.mkdir()
        for name, some in (("train", pairs), ("heldout", heldout)):
            rows = some if kind == "pairs" else [row for pair in some for row in _labelled(pair)]
            (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        recipe: dict[str, Any] = {
            "seed": 0,
            "threads": threads,
            "policy": {"model": str(folder / "policy"), "dtype": "float32"},
            "tasks": {"kind": kind, "path": str(place / "train.jsonl"), "heldout": str(place / "heldout.jsonl")},
            "limit": 8,
            "stages": {method: {"method": method, "steps": steps, "rows": size["rows"], "optimiser": {"lr": 1e-5}}},
            "evaluation": {"problems": 1, "quick": 1, "every": 0},
            "checkpoint": steps + 1,
        }
        (place / "trl.yaml").write_text(yaml.safe_dump(recipe))
        # The last stage alone is evaluated, and this one is never begun.
        recipe["stages"]["never"] = {"method": method, "steps": 1, "rows": size["rows"]}
        (place / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return sum(parameter.numel() for parameter in policy.model.parameters())


def _labelled(pair: dict[str, str]) -> list[dict[str, Any]]:
    return [{"prompt": pair["prompt"], "completion": pair[k], "label": k == "chosen"} for k in ("chosen", "rejected")]


class Clock:
    """Seconds of each step, by the clock and of processors, and the memory that training took beyond what was held
    before it."""

    def __init__(self) -> None:
        self.watch, self.ready = Stopwatch(), 0
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def begin(self) -> None:
        self.ready = resident()
        self.watch.resume()

    def step(self) -> None:
        lap = self.watch.lap()
        self.seconds.append(lap["whole"])
        self.processor.append(lap["cpu"])

    def found(self) -> Measured:
        kept = {"seconds": self.seconds[WARMUP:], "processor": self.processor[WARMUP:]}
        return {**kept, "memory": peak() - self.ready, "held": self.ready}


def measure_polopt(recipe: Path, steps: int) -> Measured:
    from polopt.training.launch import train

    clock = Clock()

    class Done(Exception):
        pass

    class Watch:
        def begin(self, *_: Any) -> None:
            clock.begin()

        def step(self, _: Any) -> None:
            clock.step()
            if len(clock.seconds) == steps:
                raise Done

        def evaluation(self, _: Any) -> None:
            clock.watch.resume()

    with tempfile.TemporaryDirectory() as folder:
        try:
            train(recipe, Path(folder) / "run", watchers=(Watch(),))
        except Done:
            return clock.found()
    raise SystemExit("the run ended before its last step")


def measure_trl(script: Path, steps: int) -> Measured:
    import torch
    import transformers
    import trl

    transformers.logging.set_verbosity_error()
    clock = Clock()

    class Follow(transformers.TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            clock.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.step()

    class Saved(Exception):
        pass

    def timed(trainer: type) -> None:
        train = trainer.train  # type: ignore[attr-defined]

        def run(self: Any) -> None:
            self.args.save_strategy = "no"
            self.add_callback(Follow())
            self.model.train()
            train(self)
            raise Saved

        trainer.train = run  # type: ignore[attr-defined]

    for trainer in (trl.DPOTrainer, trl.KTOTrainer):
        timed(trainer)
    # TRL as its users run it: its own threads' ways, which polopt would change.
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with contextlib.suppress(Saved):
        runpy.run_path(str(script), run_name="__main__")
    assert len(clock.seconds) == steps
    return clock.found()


def export(folder: Path) -> None:
    """Writes TRL's scripts."""
    from polopt.bridges.export import export as write
    from polopt.training import recipe as recipes
    from polopt.training.language_recipe import LanguageRecipe

    for method in METHODS:
        made = LanguageRecipe.require(recipes.load(folder / method / "trl.yaml"))
        write(made, "trl", folder / method / "trl")


def call(threads: int, *order: object) -> Any:
    """One piece of the work in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "benchmarks.preference_training", "--work", *map(str, order)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def work(name: str, place: str, number: str) -> Any:
    """What a process of its own does."""
    if name == "polopt":
        return measure_polopt(Path(place) / "recipe.yaml", int(number))
    if name == "trl":
        return measure_trl(Path(place) / "trl" / "train.py", int(number))
    size = SIZES[number]
    parameters = prepare(Path(place), size, int(os.environ["OMP_NUM_THREADS"]))
    export(Path(place))
    return parameters


def measure(name: str, threads: int) -> dict[str, Any]:
    """Both methods at one size."""
    size, found = SIZES[name], {}
    with tempfile.TemporaryDirectory() as folder:
        parameters = call(threads, "prepare", folder, name)
        for method in METHODS:
            runs: dict[str, list[Measured]] = {"polopt": [], "trl": []}
            for _ in range(size["repeats"]):
                for side in runs:
                    runs[side].append(call(threads, side, Path(folder) / method, size["steps"] + WARMUP))
                    print(f"{name} {method} {side}: {statistics.median(runs[side][-1]['seconds']):.2f} s", flush=True)
            found[method] = runs
    return {"size": size, "parameters": parameters, "runs": found}


def markdown(results: dict[str, Any]) -> str:
    """The table: medians over the steps of all repeats, and the ratio in each repeat."""
    it = results["about"]
    lines = [
        "# Learning from given answers, beside TRL",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        "Answers a second of processor time, by medians over steps, which other programs on the machine change little,",
        "and the memory that training takes beyond what a process holds before it, the largest of the repeats. Faster:",
        "the ratio of the medians, in brackets of each repeat; and by the clock.",
        "",
        "| | parameters | polopt | TRL | faster | by the clock | memory, polopt | TRL | smaller |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in results["sizes"].items():
        for method, runs in row["runs"].items():
            clock, processor = (ratios(runs, kind) for kind in ("seconds", "processor"))
            memory = {side: max(run["memory"] for run in runs[side]) for side in runs}
            rates = [f"{row['size']['rows'] / middle(runs[side], 'processor'):.1f}" for side in ("polopt", "trl")]
            faster = f"{processor[0]:.2f} ({', '.join(f'{x:.2f}' for x in processor[1:])})"
            sizes = [f"{memory[side] / 2**20:.0f} MiB" for side in ("polopt", "trl")]
            smaller = f"{memory['trl'] / memory['polopt']:.2f}"
            cells = [f"{method}, {name}", f"{row['parameters']:,}", *rates, faster, f"{clock[0]:.2f}", *sizes, smaller]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def middle(runs: list[Measured], kind: str) -> float:
    """Returns the median of all steps of some runs, in seconds."""
    return statistics.median(second for run in runs for second in run[kind])


def ratios(runs: dict[str, list[Measured]], kind: str) -> list[float]:
    """Returns how many times longer TRL takes: by all repeats, and by each."""
    pairs = zip(runs["trl"], runs["polopt"], strict=True)
    return [
        middle(runs["trl"], kind) / middle(runs["polopt"], kind),
        *(middle([one], kind) / middle([other], kind) for one, other in pairs),
    ]


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test on a tiny model")
    parser.add_argument("--only", nargs="+", choices=("1M", "25M"), default=("1M", "25M"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(*options.work)))
        return
    results: dict[str, Any] = {"about": table.about(ROOT, options.threads, "preference_training"), "sizes": {}}
    for name in ("tiny",) if options.quick else options.only:
        results["sizes"][name] = measure(name, options.threads)
        results["about"]["load_after"] = os.getloadavg()
    if not options.quick:
        output = HERE / "results" / "preference_training"
        results["about"]["command"] = "python -m benchmarks.preference_training"
        output.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
        output.with_suffix(".md").write_text(markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
