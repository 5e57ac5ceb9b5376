"""Parts of a step on one GPU: a token of a rollout, one operation at a time and as a graph, and a micro-batch.

python -m benchmarks.gpu_parts                              1.5B in bfloat16, in a minute
python -m benchmarks.gpu_parts --device cpu --model tiny --rows 16 --tokens 4 --limit 8   does it run?
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.random_model import make
from benchmarks.spec import HERE
from polopt.experience import Experience
from polopt.policies.graph_steps import GraphSteps
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import RolloutRecord
from polopt.policies.sampler_steps import DecoderSteps
from polopt.support import Support
from polopt.worlds import build_tasks


def seconds_of(function: Callable[[], object], settle: Callable[[], None]) -> tuple[float, float]:
    """Seconds until the host has issued the work, and until the device has done it."""
    settle()
    start = time.perf_counter()
    function()
    issued = time.perf_counter() - start
    settle()
    return issued, time.perf_counter() - start


@torch.inference_mode()
def rollout(
    policy: LanguagePolicy, contexts: list[list[int]], rows: int, tokens: int, settle: Callable[[], None]
) -> None:
    decoder = policy.decoder
    assert decoder is not None
    kinds = [DecoderSteps, GraphSteps] if policy.device.type == "cuda" else [DecoderSteps]
    logits: list[Tensor] = []
    for kind in kinds:
        for trial in ("first", "second"):
            steps = kind(decoder)
            token = steps.begin(contexts, [rows // len(contexts)] * len(contexts), 1024).argmax(-1)
            # The first token's operations are loaded, those of the second captured.
            begun = [seconds_of(lambda: steps.step(token), settle)[1] for _ in range(2)]  # noqa: B023

            def go_on(steps: DecoderSteps = steps, token: Tensor = token) -> None:
                for _ in range(tokens):
                    logits[:] = [steps.step(token)]

            issued, done = seconds_of(go_on, settle)
            print(
                f"{kind.__name__}, {trial} rollout, {rows} rows: tokens 1 and 2 {begun[0] * 1e3:.1f} and "
                f"{begun[1] * 1e3:.1f} ms, then issued in {issued / tokens * 1e3:.2f}, done in "
                f"{done / tokens * 1e3:.2f} ms each",
                flush=True,
            )
    record = RolloutRecord(Support(), tokens + 1, logits[0].float())
    alive, noise = torch.arange(rows, device=policy.device), torch.rand(rows, device=policy.device, dtype=torch.float64)
    record.choose(alive, logits[0], noise)
    _, done = seconds_of(lambda: [record.choose(alive, logits[0], noise) for _ in range(tokens)], settle)
    print(f"choice of a token: {done / tokens * 1e3:.2f} ms", flush=True)


def learner(policy: LanguagePolicy, prompt: list[int], rows: int, limit: int, settle: Callable[[], None]) -> None:
    answers = torch.randint(3, 100, (rows, limit))
    tokens = torch.cat([torch.tensor(prompt).expand(rows, -1), answers], 1).to(policy.device)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    mask[:, len(prompt) :] = True
    batch = Experience(mask=mask, extras={"tokens": tokens})
    for _ in range(3):
        issued, done = seconds_of(lambda: policy.evaluate(batch).logp.sum().backward(), settle)
        print(
            f"micro-batch of {rows} x {limit} tokens, forward and backward: issued in {issued * 1e3:.0f} ms, done in "
            f"{done * 1e3:.0f} ms, {rows * limit / done:,.0f} tokens/s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="1.5B", help="tiny, 0.5B or 1.5B")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--micro-rows", type=int, default=8)
    parser.add_argument("--limit", type=int, default=1024)
    options = parser.parse_args()
    settle = torch.cuda.synchronize if options.device != "cpu" else lambda: None
    tasks = build_tasks({"kind": f"{HERE / 'world.py'}:digits", "length": 100, "train": 32}, seed=1).train
    with tempfile.TemporaryDirectory() as folder:
        make(options.model, tasks, Path(folder), device=options.device, dtype="bfloat16")
        policy = LanguagePolicy.load(folder, dtype=torch.bfloat16, checkpointing=True)
    policy.to(options.device)
    contexts = [list(policy.tokenizer(tasks[i].prompt)["input_ids"]) for i in range(8)]
    rollout(policy, contexts, options.rows, options.tokens, settle)
    learner(policy, contexts[0], options.micro_rows, options.limit, settle)


if __name__ == "__main__":
    main()
