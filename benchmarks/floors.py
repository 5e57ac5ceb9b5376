"""How fast a step could be: its arithmetic and memory traffic, against what this machine reaches."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polopt.plan.clock import fastest


@dataclasses.dataclass(frozen=True)
class Shape:
    """A transformer as its costs see it.

    matrix: parameters of the layers that every token meets. head: those that turn a hidden state into logits.
    total: all parameters. width: keys of one token in one of the `layers`; queries: its queries, of which several
    may share a key. prompt: its mean number of tokens.
    """

    matrix: int
    head: int
    total: int
    layers: int
    width: int
    queries: int
    prompt: float

    @classmethod
    def of(cls, model: Any, *, prompt: float) -> Shape:
        """Counted on the model itself."""
        head = model.get_output_embeddings().weight
        tables = {id(m.weight) for m in model.modules() if type(m).__name__ == "Embedding"} | {id(head)}
        config = model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        each = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            matrix=sum(p.numel() for p in model.parameters() if p.dim() == 2 and id(p) not in tables),
            head=head.numel(),
            total=sum(p.numel() for p in model.parameters()),
            layers=config.num_hidden_layers,
            width=each * heads,
            queries=each * config.num_attention_heads,
            prompt=prompt,
        )

    def record(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Machine:
    """What this machine reached, with the benchmark's precision and number of threads."""

    flops: float
    bandwidth: float


def floors(
    shape: Shape, prompts: int, rows: int, step: Mapping[str, float], machine: Machine, size: float = 4.0
) -> dict[str, Any]:
    """Least FLOPs, bytes and seconds of a step with so many answer `tokens` in `rows` rows, the longest `longest`,
    in numbers of `size` bytes.

    Each prompt is read once, and the first token of an answer comes from it, so rows need `tokens - rows`
    further passes. A token costs 2 FLOPs a matrix parameter, 2 a head parameter where it is decided, and
    4 x queries x context in each layer's attention. By Jensen, rows of equal length have the least context.
    Decoding is `longest` passes over all weights, and each token reads its row's keys and values.
    The learner reads each token once, backward costs twice forward, and the optimiser reads and writes
    parameter, gradient and two moments (7 passes).
    """
    tokens, longest = step["tokens"], step["longest"]
    prompt_tokens = prompts * shape.prompt
    answer = tokens / rows
    context = tokens * shape.prompt + rows * answer**2 / 2 + prompt_tokens * shape.prompt / 2
    attention = 4 * shape.layers * shape.queries * context
    forward = 2 * shape.matrix * (prompt_tokens + tokens - rows) + 2 * shape.head * tokens + attention
    learn = 3 * forward
    weights = size * (shape.matrix + shape.head)
    cache = size * 2 * shape.layers * shape.width * (tokens * shape.prompt + rows * answer**2 / 2)
    read = weights * longest + cache
    update = size * 7 * shape.total
    return {
        "rollout": {
            "flops": forward,
            "bytes": read,
            "seconds": max(forward / machine.flops, read / machine.bandwidth),
        },
        "learn": {
            "flops": learn,
            "bytes": update,
            "seconds": learn / machine.flops + update / machine.bandwidth,
        },
    }


def measure(weight_bytes: float, dtype: str = "float32") -> Machine:
    """The best of several matrix sizes, and of reading a buffer as large as the model's weights: one that fits a cache
    is read at the cache's speed, so the floor stays a floor. dtype: of the matrices."""
    import torch

    flops = 0.0
    for n in (256, 512, 1024, 2048):
        a, b = (torch.randn(n, n).to(getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        flops = max(flops, 2 * n**3 / fastest(lambda a=a, b=b, out=out: torch.mm(a, b, out=out)))
    buffer = torch.ones(int(weight_bytes) // 4)
    vector = torch.ones(1024)
    matrix = buffer[: len(buffer) // 1024 * 1024].view(-1, 1024)
    seconds = min(fastest(buffer.sum), fastest(lambda: torch.mv(matrix, vector)))
    return Machine(flops=flops, bandwidth=4 * len(buffer) / seconds)


def measure_device(device: str, dtype: str, sizes: Sequence[int], copied: int) -> Machine:
    """The best of square matrix products of `sizes`, ten in a row, and of copying `copied` bytes, each of which is
    read once and written once. Random numbers: products of zeros are faster."""
    import torch

    settle = torch.cuda.synchronize if device != "cpu" else lambda: None
    flops = 0.0
    for n in sizes:
        a, b = (torch.randn(n, n, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
        out = torch.empty_like(a)
        ten = lambda a=a, b=b, out=out: [torch.mm(a, b, out=out) for _ in range(10)]  # noqa: E731
        flops = max(flops, 10 * 2 * n**3 / fastest(ten, settle=settle))
    source = torch.ones(copied // 4, device=device)
    target = torch.empty_like(source)
    seconds = fastest(lambda: target.copy_(source), settle=settle)
    return Machine(flops=flops, bandwidth=2 * 4 * len(source) / seconds)


if __name__ == "__main__":
    import torch

    order = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(order["threads"])
    dtype = order.get("dtype", "float32")
    found = {name: dataclasses.asdict(measure(size, dtype)) for name, size in order["weights"].items()}
    Path(sys.argv[2]).write_text(json.dumps(found))
