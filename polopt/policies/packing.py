"""Reading a group's shared prompt once: answers to one prompt packed behind it, blind to each other."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

# Beyond this width the mask's square costs more than the prompts that are saved.
WIDEST = 1024


@dataclasses.dataclass(frozen=True)
class Packed:
    """Several rows in one: a prompt followed by what each row has after it.

    tokens, position: [P, S], padding is token 0. mask: [P, 1, S, S] additive, 0 where a token may look.
    pack: [B] which pack row b is in; start: [B] where its continuation begins; prompt: [B] its prompt's length.
    """

    tokens: Tensor
    position: Tensor
    mask: Tensor
    pack: Tensor
    start: Tensor
    prompt: Tensor

    def place(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Where the token of row b, column t stands: (pack, position in the pack)."""
        prompt = self.prompt[rows]
        inside = torch.where(columns < prompt, columns, self.start[rows] + columns - prompt)
        return self.pack[rows], inside


def pack(tokens: Tensor, mask: Tensor, dtype: torch.dtype, widest: int = WIDEST) -> Packed | None:
    """Pack rows [B, T] (right-padded with -1) that share everything up to their first decision.

    None where it would not pay: too few tokens are shared, or a pack would be wider than `widest`.
    """
    length = (tokens >= 0).sum(1)
    prompt = torch.where(mask.any(1), mask.int().argmax(1), length)
    ids, lengths, prompts = tokens.tolist(), length.tolist(), prompt.tolist()
    packs: dict[tuple[int, ...], list[int]] = {}
    for row, (line, n) in enumerate(zip(ids, prompts, strict=True)):
        packs.setdefault(tuple(line[:n]), []).append(row)
    sizes = [len(key) + sum(lengths[r] - len(key) for r in rows) for key, rows in packs.items()]
    width = max(sizes)
    if width > widest or len(packs) * width > 0.7 * tokens.numel():
        return None

    flat = torch.zeros(len(packs), width, dtype=torch.long)
    position = torch.zeros(len(packs), width, dtype=torch.long)
    segment = torch.full((len(packs), width), -1)
    of_row = torch.zeros(len(ids), dtype=torch.long)
    start = torch.zeros(len(ids), dtype=torch.long)
    for p, (key, rows) in enumerate(packs.items()):
        line, places, parts = list(key), list(range(len(key))), [0] * len(key)
        for number, row in enumerate(rows, start=1):
            of_row[row], start[row] = p, len(line)
            line += ids[row][len(key) : lengths[row]]
            places += range(len(key), lengths[row])
            parts += [number] * (lengths[row] - len(key))
        flat[p, : len(line)] = torch.tensor(line)
        position[p, : len(line)] = torch.tensor(places)
        segment[p, : len(line)] = torch.tensor(parts)

    column = torch.arange(width)
    # A token sees the prompt and its own answer, up to itself; padding sees itself, so that no row is empty.
    sees = (segment[:, None, :] == 0) | (segment[:, None, :] == segment[:, :, None])
    sees = (sees & (column[None, :] <= column[:, None])) | torch.eye(width, dtype=torch.bool)
    additive = torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, torch.finfo(dtype).min)
    to = tokens.device
    return Packed(flat.to(to), position.to(to), additive[:, None].to(to), of_row.to(to), start.to(to), prompt)
