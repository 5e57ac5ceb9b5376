"""Float32 products of a language model by oneDNN and by PyTorch's BLAS, in turn in one process.

python -m benchmarks.products            two minutes, into benchmarks/results/products.{json,md}
python -m benchmarks.products --quick    does it run? measures nothing of use

Alone, on the shapes of SmolLM2-135M; and the recipe `smollm`'s model, which must be installed, learning from 16 answers
of 48 tokens to 2 prompts of 43.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import table
from benchmarks.language import ROOT
from benchmarks.spec import HERE
from polopt.experience import Experience
from polopt.policies import products
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import load_policy
from polopt.training import recipe as recipes

RESULTS = HERE / "results" / "products"
# (rows, in, out): queries, keys and values; attention's output; gates; the way down; a chunk of the vocabulary.
SHAPES = [(854, 576, 960), (854, 576, 576), (854, 576, 3072), (854, 1536, 576), (170, 576, 49152)]
ROWS, PROMPT, ANSWER = 16, 43, 48


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turn(first: Callable[[], object], second: Callable[[], object], times: int) -> tuple[float, float]:
    """Median seconds of each, after one time that does not count."""
    pairs = [(seconds(first), seconds(second)) for _ in range(times + 1)][1:]
    return median(a for a, _ in pairs), median(b for _, b in pairs)


def alone(rows: int, wide: int, out: int, times: int) -> dict[str, Any]:
    """GFLOP/s of x wᵀ and of g w, by oneDNN and by BLAS."""
    x, weight, slope = torch.randn(rows, wide), torch.randn(out, wide), torch.randn(rows, out)
    work = 2e-9 * rows * wide * out

    def rates(a: Tensor, b: Tensor) -> list[float]:
        return [work / s for s in in_turn(lambda: products.linear(a, b), lambda: F.linear(a, b), times)]

    with torch.no_grad():
        return {"shape": [rows, wide, out], "forward": rates(x, weight), "to x": rates(slope, weight.t())}


def learner(policy: LanguagePolicy, times: int) -> dict[str, list[float]]:
    """Seconds of a forward and backward pass, by oneDNN and by BLAS."""
    draw = torch.Generator().manual_seed(0)
    prompts = torch.randint(5, 4000, (ROWS // 8, PROMPT), generator=draw).repeat_interleave(8, 0)
    tokens = torch.cat([prompts, torch.randint(5, 4000, (ROWS, ANSWER), generator=draw)], 1)
    mask = torch.arange(PROMPT + ANSWER).expand(ROWS, -1) >= PROMPT
    batch = Experience(mask=mask, extras={"tokens": tokens})
    own = products._by_onednn

    def step(by_onednn: bool) -> None:
        products._by_onednn = own if by_onednn else lambda x, weight: False
        policy.evaluate(batch).logp[mask].sum().backward()

    try:
        return {"seconds": [*in_turn(lambda: step(True), lambda: step(False), times)]}
    finally:
        products._by_onednn = own


def markdown(data: dict[str, Any]) -> str:
    it = data["about"]
    lines = [
        "# Float32 products by oneDNN and by PyTorch's BLAS",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        "GFLOP/s of x wᵀ and of g w, for the rows, in and out that are named; medians, in turn.",
        "",
        "|shape|x wᵀ, oneDNN|BLAS|ratio|g w, oneDNN|BLAS|ratio|",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in data["alone"]:
        cells = [f"{a:.0f}|{b:.0f}|{a / b:.2f}" for a, b in (row["forward"], row["to x"])]
        lines.append(f"|{' x '.join(map(str, row['shape']))}|{'|'.join(cells)}|")
    if data["learner"]:
        a, b = data["learner"]["seconds"]
        lines += ["", f"A forward and backward pass of the model: {a:.2f} s and {b:.2f} s, {b / a:.2f} times as fast."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data: dict[str, Any] = {"about": table.about(ROOT, options.threads, "products"), "learner": {}}
    data["alone"] = [
        alone(*shape, times=1 if options.quick else 15) for shape in SHAPES[: 1 if options.quick else None]
    ]
    if not options.quick:
        model = recipes.load("smollm").policy.model
        assert model is not None
        data["learner"] = learner(load_policy(model, dtype="float32"), 7)
    data["about"]["load_after"] = os.getloadavg()
    if not options.quick:
        RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        RESULTS.with_suffix(".md").write_text(markdown(data), encoding="utf-8")
    print(markdown(data))


if __name__ == "__main__":
    main()
