"""Memory and seconds of one long rollout over a large vocabulary, again and again, each in a process of its own.

python -m benchmarks.rollout_memory            20 runs, some minutes, into benchmarks/results/rollout_memory.{json,md}
python -m benchmarks.rollout_memory --quick    does it run? measures nothing of use

4 rows x 2,032 tokens from a model of Qwen2's shape with 128 hidden dimensions and Qwen2's 151,936 ids. The floor of
memory is what a step holds at once: logits, log-probabilities and probabilities in float32 and their running sum in
float64, 20 bytes for each of 4 x 151,936, and the keys and values of 2,032 tokens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from statistics import median
from typing import Any

import torch

from benchmarks import table
from benchmarks.random_model import QWEN2, SHAPES, VOCABULARY
from benchmarks.spec import HERE
from benchmarks.worker import resident

RESULTS = HERE / "results" / "rollout_memory"
ROWS, LIMIT = 4, 2032


def once(limit: int, threads: int) -> dict[str, float]:
    """One rollout in this process: seconds, and the most bytes that it held beyond what it held before."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from polopt.policies.decoder import Decoder
    from polopt.policies.sampler import sample
    from polopt.support import Support

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    settings = {**QWEN2, **SHAPES["vocabulary"]}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings)).eval()
    decoder = Decoder.of(model)
    before = resident()
    most, over = [before], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], resident())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    begun, spent = time.perf_counter(), time.process_time()
    sample(
        model,
        [[5, 6, 7]],
        group=ROWS,
        support=Support(),
        limit=limit,
        stop=frozenset(),
        generator=torch.Generator().manual_seed(1),
        decoder=decoder,
    )
    seconds, processor = time.perf_counter() - begun, time.process_time() - spent
    over.set()
    watcher.join()
    return {"seconds": seconds, "processor_seconds": processor, "bytes": most[0] - before}


def markdown(results: dict[str, Any]) -> str:
    about, runs = results["about"], results["runs"]
    rows = [
        ("memory of the rollout, MB", [run["bytes"] / 1e6 for run in runs]),
        ("seconds", [run["seconds"] for run in runs]),
        ("processor seconds", [run["processor_seconds"] for run in runs]),
    ]
    lines = [
        f"# One rollout of {ROWS} x {results['limit']:,} tokens over {VOCABULARY:,} ids, {len(runs)} times",
        "",
        "| | least | median | greatest |",
        "|---|---:|---:|---:|",
        *(f"| {name} | {min(v):,.1f} | {median(v):,.1f} | {max(v):,.1f} |" for name, v in rows),
        "",
        f"{about['machine']['cpu']}, {about['threads']} threads, torch {about['versions']['torch']}, load "
        f"{about['load_before'][0]:.1f} before; `{about['command']}`, {about['date']}, commit {about['commit']}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two short rollouts, nothing is written")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--once", type=int, metavar="LIMIT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.once, options.threads)))
        return
    limit, count = (8, 2) if options.quick else (LIMIT, options.runs)
    command = [
        sys.executable,
        "-m",
        "benchmarks.rollout_memory",
        "--once",
        str(limit),
        "--threads",
        str(options.threads),
    ]
    results: dict[str, Any] = {"about": table.about(HERE.parent, options.threads, "rollout_memory"), "limit": limit}
    results["runs"] = []
    for _ in range(count):
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=True)
        results["runs"].append(json.loads(done.stdout.splitlines()[-1]))
        print(results["runs"][-1], flush=True)
    if not options.quick:
        RESULTS.with_suffix(".json").write_text(json.dumps(results, indent=1))
        RESULTS.with_suffix(".md").write_text(markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
