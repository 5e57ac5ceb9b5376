"""Rewards of an answer's text: its blocks <name>...</name>, their order, their length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.rewards.parts import Reward


def block(text: str, name: str) -> str | None:
    """Returns the text inside the first <name>...</name>, stripped; None if there is no such block."""
    _, opened, rest = text.partition(f"<{name}>")
    inside, closed, _ = rest.partition(f"</{name}>")
    return inside.strip() if opened and closed else None


def in_order(text: str, names: Sequence[str]) -> bool:
    """Returns True if the text is exactly these blocks, each once, in this order, separated by whitespace only."""
    pattern = r"\s*".join(rf"<{re.escape(n)}>.*?</{re.escape(n)}>" for n in names)
    once = all(text.count(f"<{n}>") == text.count(f"</{n}>") == 1 for n in names)
    return once and re.fullmatch(pattern, text.strip(), re.DOTALL) is not None


def begins_with(text: str, names: Sequence[str]) -> bool:
    """Returns True if the text begins with these blocks, in this order, separated by whitespace only.

    The last of them must end at the end of a line. A block may contain further tags, and further lines may follow.
    """
    pattern = r"\s*".join(rf"<{re.escape(n)}>.*?</{re.escape(n)}>" for n in names)
    return re.match(pattern + r"(?=\n|\Z)", text, re.DOTALL) is not None


class TextReward(Reward):
    """Base of rewards of an answer's text: `read(text, row, experience) -> float`, `row` being the row's index in the
    batch."""

    reads = frozenset({"extras.answer"})

    def read(self, text: str, row: int, experience: Experience) -> float:
        raise NotImplementedError

    def forward(self, experience: Experience) -> Tensor:
        found = [self.read(text, row, experience) for row, text in enumerate(experience.extras["answer"])]
        return torch.tensor(found, dtype=experience.precision, device=experience.device)


class Blocks(TextReward):
    """Reward 1 for an answer that is the blocks `names`, each once, in this order, and nothing else; 0 otherwise."""

    names: Sequence[str]

    def setup(self) -> None:
        if not self.names:
            raise ValueError("rewards.Blocks needs the names of the blocks, as in ('thinking', 'response'), found none")

    def read(self, text: str, row: int, experience: Experience) -> float:
        return float(in_order(text, self.names))


class LeadingBlocks(TextReward):
    """Reward 1 for an answer that `begins_with` the blocks `names`, else 0.

    Source: the format reward of GTAlign, arXiv:2510.08872.
    """

    names: Sequence[str]

    def setup(self) -> None:
        if not self.names:
            raise ValueError(
                "rewards.LeadingBlocks needs the names of the blocks, as in ('thinking', 'response'), found none"
            )

    def read(self, text: str, row: int, experience: Experience) -> float:
        return float(begins_with(text, self.names))


class HasBlock(TextReward):
    """Reward 1 for an answer with a block `name` anywhere in it, else 0."""

    name: str

    def read(self, text: str, row: int, experience: Experience) -> float:
        return float(block(text, self.name) is not None)


class LengthFunction(Reward):
    """Base of rewards that are a function of an answer's length L, `worth(L) -> [B]`.

    of: decisions of the row, or words or characters of the answer's text. Parts of the text (`block`, `before`) have
        words and characters only.
    block: measure this block alone; the length is 0 where it is missing.
    before: measure the text before the first <before>, the whole text where there is none.
    """

    of: Literal["decisions", "words", "characters"] = "decisions"
    block: str | None = None
    before: str | None = None

    def setup(self) -> None:
        if self.block is not None and self.before is not None:
            raise ValueError(
                f"{type(self).__name__}: the length is that of block {self.block!r} or of what stands before "
                f"<{self.before}>; set one of the two"
            )
        piece = self.block or self.before
        if piece is not None and self.of == "decisions":
            raise ValueError(f"{type(self).__name__}: the length of block {piece!r} is counted in words or characters")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset() if self.of == "decisions" else frozenset({"extras.answer"})

    def worth(self, length: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, experience: Experience) -> Tensor:
        kind = experience.precision
        if self.of == "decisions":
            return self.worth(experience.lengths.to(kind))
        texts = [self._piece(text) for text in experience.extras["answer"]]
        counts = [len(t.split()) if self.of == "words" else len(t) for t in texts]
        return self.worth(torch.tensor(counts, dtype=kind, device=experience.device))

    def _piece(self, text: str) -> str:
        if self.before is not None:
            return text.partition(f"<{self.before}>")[0]
        return text if self.block is None else block(text, self.block) or ""


class LengthWindow(LengthFunction):
    """Reward sigmoid(k (L - low)) sigmoid(k (high - L)): about 1 between low and high, with soft edges of width 1 / k.

    k is `steepness`. `LengthEnvelope` has straight edges and is exactly 0 outside. Source: GTAlign, arXiv:2510.08872.
    """

    low: float
    high: float
    steepness: float = 0.005

    def setup(self) -> None:
        super().setup()
        if not self.low < self.high or self.steepness <= 0:
            raise ValueError(
                "rewards.LengthWindow: need low < high and steepness > 0, found "
                f"low={self.low}, high={self.high}, steepness={self.steepness}"
            )

    def worth(self, length: Tensor) -> Tensor:
        return torch.sigmoid(self.steepness * (length - self.low)) * torch.sigmoid(
            self.steepness * (self.high - length)
        )


class Brevity(LengthFunction):
    """Reward exp(-L / scale): 1 for an empty answer, decreasing in the length L. Source: GTAlign, arXiv:2510.08872."""

    scale: float

    def setup(self) -> None:
        super().setup()
        if self.scale <= 0:
            raise ValueError(f"rewards.Brevity: scale must be > 0, found {self.scale}")

    def worth(self, length: Tensor) -> Tensor:
        return torch.exp(-length / self.scale)
