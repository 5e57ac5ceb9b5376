"""What is measured: one specification that both libraries receive, word for word."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Spec:
    """One measurement of one library in one process.

    model: folder with the weights and tokenizer that both start from. world: the tasks, as a recipe names them.
    rows: answers in a batch, `group` to a prompt, at most `limit` tokens each. steps: batches. minibatches:
    optimiser steps per batch. micro_rows: rows per forward pass, None for all of a minibatch. every, problems,
    target: evaluate held-out accuracy every so many batches on so many problems and stop at the target; every = 0
    measures speed only, and problems = 0 never evaluates. dtype: of weights, gradients and optimiser state. compute: of
    the arithmetic, None for the same. sampling: of polopt's rollouts, None for that of the arithmetic.
    checkpointing: layers' activations are computed again in the backward pass. reward: the world's, or the first
    token's (first_token.py). warm: begin with one batch of answers of so many tokens, which does not count.
    """

    model: str
    world: dict[str, Any]
    rows: int
    group: int
    limit: int
    steps: int
    minibatches: int
    optimiser: dict[str, Any]
    threads: int
    seed: int
    dtype: str = "float32"
    compute: str | None = None
    sampling: str | None = None
    micro_rows: int | None = None
    every: int = 0
    problems: int = 1
    target: float = 2.0
    device: str = "cpu"
    checkpointing: bool = False
    reward: Literal["world", "first token"] = "world"
    warm: int = 0
    trl: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Spec:
        return cls(**json.loads(path.read_text()))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))


@dataclasses.dataclass(frozen=True)
class Size:
    """A row of the speed table. length: mean answer length that the stop tokens are calibrated to. Both sides learn
    from `micro_rows` rows at a time. warm: as of `Spec`, in place of a first step that does not count."""

    name: str
    config: dict[str, Any]
    rows: int
    micro_rows: int
    group: int
    limit: int
    length: int
    steps: int
    repeats: int
    warm: int = 0


def sizes(laptop: dict[str, Any]) -> list[Size]:
    """The laptop recipe's model and a larger one of the same architecture."""
    small = laptop["policy"]["config"]
    large = {**small, "n_embd": 512, "n_layer": 8, "n_head": 8, "n_positions": 320}
    return [
        Size("1M", small, rows=128, micro_rows=32, group=8, limit=96, length=20, steps=5, repeats=3),
        Size("25M", large, rows=64, micro_rows=16, group=8, limit=256, length=60, steps=2, repeats=2),
    ]


def pretrained() -> dict[str, tuple[Size, dict[str, str]]]:
    """Rows of the smollm recipe's model, whose answers all run to the limit, and what their `Spec`s change."""
    short = Size("135M", {}, rows=64, micro_rows=16, group=8, limit=48, length=48, steps=3, repeats=1)
    long = dataclasses.replace(short, micro_rows=4, limit=512, length=512, steps=1, warm=16)
    rows: dict[str, tuple[Size, dict[str, str]]] = {
        "135M": (short, {}),
        "135M-bfloat16": (short, {"compute": "bfloat16"}),
        "135M-rollouts": (short, {"sampling": "bfloat16"}),
        "135M-512": (long, {}),
    }
    return {name: (dataclasses.replace(size, name=name), changes) for name, (size, changes) in rows.items()}


def tiny(laptop: dict[str, Any]) -> Size:
    """Seconds, not minutes: shows that everything runs, and no more."""
    config = {**laptop["policy"]["config"], "n_embd": 32, "n_layer": 1, "n_head": 2}
    return Size("tiny", config, rows=16, micro_rows=8, group=4, limit=24, length=8, steps=3, repeats=1)
