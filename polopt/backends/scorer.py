"""A small byte-level network that scores texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

BYTES, PAD, SEPARATOR = 256, 256, 257


@dataclasses.dataclass(frozen=True)
class ScorerShape:
    """The architecture of a `TextScorer`.

    width: width of its vectors.
    layers: number of attention layers over the embeddings of windows of `window` bytes; 0 takes the mean of these
        windows, which ignores their positions.
    window: bytes of a window.
    length: the most bytes of a prompt, and of a text, that the network reads.
    compares: whether an answer is scored relative to a reference.
    antisymmetric: whether exchanging answer and reference negates the score, for a scorer that compares.
    outputs: numbers that it returns of each text.

    Raises:
        ValueError: a number is outside its range.
    """

    width: int = 64
    layers: int = 1
    window: int = 3
    length: int = 512
    compares: bool = False
    antisymmetric: bool = False
    outputs: int = 1

    def __post_init__(self) -> None:
        if self.outputs < 1 or (self.antisymmetric and not self.compares):
            raise ValueError(
                "TextScorer: outputs must be >= 1, and antisymmetric needs compares, found "
                f"{self.outputs}, {self.antisymmetric} and {self.compares}"
            )
        if self.width < 4 or self.width % 4 or self.layers < 0 or self.window < 1 or self.length < 1:
            raise ValueError(
                "TextScorer: width must be a multiple of 4, layers >= 0, window >= 1 and length >= 1, found "
                f"{self.width}, {self.layers}, {self.window} and {self.length}"
            )


class TextScorer(nn.Module):
    """A network that computes score(prompt, answer), or score(prompt, reference, answer) where `compares`.

    One encoder reads prompt and text byte by byte: an embedding, windows of a few bytes, layers of attention, the mean.
    A head scores the answer's vector; with a reference, it scores both vectors and their product; where it is
    antisymmetric, the score is half the difference of both orders. The capacity suits the texts of policies with a few
    thousand weights, not essays.

    seed: seed of the initial weights.
    """

    def __init__(self, shape: ScorerShape | None = None, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape = shape or ScorerShape()
        width = shape.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.bytes = nn.Embedding(BYTES + 2, width, padding_idx=PAD)
            self.place = nn.Embedding(2 * shape.length + 1, width) if shape.layers else None
            self.windows = nn.Linear(width * shape.window, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
                )
                for _ in range(shape.layers)
            )
            self.head = nn.Sequential(
                nn.Linear(width * (3 if shape.compares else 1), 2 * width),
                nn.GELU(),
                nn.Linear(2 * width, shape.outputs),
            )
            self.norm = nn.LayerNorm(width)

    @property
    def compares(self) -> bool:
        """Tests whether the scorer reads a reference."""
        return self.shape.compares

    @property
    def outputs(self) -> int:
        """Numbers that it returns of each text."""
        return self.shape.outputs

    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Tensor:
        """Returns scores [B], or [B, outputs] of several outputs, with gradient."""
        encoded = self.encode(prompts, answers)
        if not self.shape.compares:
            return self._scores(encoded)
        if references is None:
            raise ValueError("TextScorer: it compares with references, found none")
        return self.compare(self.encode(prompts, references), encoded)

    def compare(self, reference: Tensor, answer: Tensor) -> Tensor:
        """Returns scores [B] of answers relative to references, from their vectors [B, width]."""
        scores = self._scores(torch.cat([reference, answer, reference * answer], 1))
        if not self.shape.antisymmetric:
            return scores
        return (scores - self._scores(torch.cat([answer, reference, reference * answer], 1))) / 2

    def _scores(self, vectors: Tensor) -> Tensor:
        scores: Tensor = self.head(vectors)
        return scores[:, 0] if self.outputs == 1 else scores

    def encode(self, prompts: Sequence[str], texts: Sequence[str]) -> Tensor:
        """Returns the encoding [B, width] of each prompt with its text."""
        ids = self.read(prompts, texts)
        there = ids != PAD
        x = nn.functional.pad(self.bytes(ids), (0, 0, self.shape.window - 1, 0))
        x = nn.functional.relu(self.windows(x.unfold(1, self.shape.window, 1).flatten(2)))
        if self.place is not None:
            x = x + self.place.weight[: x.shape[1]]
            for layer in self.layers:
                x = layer(x, src_key_padding_mask=~there)
        x = torch.where(there[..., None], x, 0)
        return self.norm(x.sum(1) / there.sum(1, keepdim=True))

    def read(self, prompts: Sequence[str], texts: Sequence[str]) -> Tensor:
        """Returns the bytes [B, T] of prompt, separator and text; too long prompts lose their beginning, too long texts
        their end."""
        rows = []
        for prompt, text in zip(prompts, texts, strict=True):
            before = prompt.encode("utf-8", "replace")[-self.shape.length :]
            after = text.encode("utf-8", "replace")[: self.shape.length]
            rows.append([*before, SEPARATOR, *after])
        longest = max(map(len, rows), default=1)
        ids = [row + [PAD] * (longest - len(row)) for row in rows]
        return torch.tensor(ids, dtype=torch.long, device=self.bytes.weight.device).view(len(rows), longest)
