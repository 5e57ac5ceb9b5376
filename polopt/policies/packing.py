"""Rows of tokens without padding: one flat list of tokens, with the attention pattern within it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.policies.attention import attention

# Segments share a bucket if the shortest has at least this share of the longest one's length: fewer buckets cost
# more padding inside attention, more buckets more calls.
ALIKE = 0.5
# A prompt is read once for its group if that saves at least this share of all tokens: attending to a shared
# prompt costs a copy of its keys and a mask.
WORTH = 0.1


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Segments of similar length, whose attention is computed together; n tokens of the flat list.

    query: [b, L] flat token of each query, padding repeats a segment's last token.
    read: [b, P + L] flat token of each key: those of the segment's prefix, if it has one, then those of the segment.
    bias: [b or 1, 1, L, P + L] added to the scores where segments have a prefix; None for plain causal attention.
    inside: [n] indices of the bucket's tokens in the flattened [b, L].
    """

    query: Tensor
    read: Tensor
    bias: Tensor | None
    inside: Tensor

    def attend(self, q: Tensor, kv: Tensor) -> Tensor:
        """Returns attention [n, H, D] from queries [N, H, D] and keys and values [N, 2, K, D] of all flat tokens; H is
        a multiple of K."""
        dtype, cpu = q.dtype, q.device.type == "cpu"
        if cpu:  # the CPU kernel takes twice the time for 16 bits, mostly backward
            q, kv = ops.wide(q), ops.wide(kv)
        queries = ops.take(q, self.query).transpose(1, 2)
        keys, values = ops.take(kv, self.read).permute(2, 0, 3, 1, 4).unbind(0)
        if self.bias is None:
            out = attention(queries, keys, values, causal=True, shared=True)
        else:
            # No fused GPU kernel supports a mask and shared key heads at once.
            repeats = 1 if cpu else q.shape[1] // keys.shape[1]
            keys, values = (x.repeat_interleave(repeats, 1) if repeats > 1 else x for x in (keys, values))
            out = attention(queries, keys, values, bias=self.bias.to(q.dtype), shared=cpu)
        return ops.take(out.transpose(1, 2).flatten(0, 1), self.inside).to(dtype)


@dataclasses.dataclass(frozen=True)
class Packed:
    """A packed batch.

    tokens, position: [N], the flat list, bucket after bucket.
    where: [B, T] flat index of each token, -1 for tokens that are not read.
    """

    tokens: Tensor
    position: Tensor
    buckets: tuple[Bucket, ...]
    where: Tensor

    def attend(self, q: Tensor, kv: Tensor) -> Tensor:
        """Returns causal attention [N, H, D] of every token to its own row; q and kv as in `Bucket.attend`."""
        return torch.cat([q[:0], *(bucket.attend(q, kv) for bucket in self.buckets)])


@dataclasses.dataclass
class _Segment:
    """Tokens begin..end of `row`, after the flat tokens of `prefix`; `rows` are the rows that they belong to."""

    row: int
    begin: int
    end: int
    rows: Sequence[int]
    prefix: _Segment | None = None
    first: int = -1

    def __len__(self) -> int:
        return self.end - self.begin


def pack(tokens: Tensor, prompt: Tensor, end: Tensor, dtype: torch.dtype = torch.float32) -> Packed:
    """Packs the first `end` [B] tokens of each row of [B, T], every row starting at column 0.

    prompt: [B] the number of tokens at a row's start that may be read once for all rows that share them.
    dtype: of the attention bias.
    """
    segments = _segments(tokens, prompt.tolist(), end.tolist())
    # Prompts come first, and the longest segment is the first of its bucket, so a bucket is as wide as its first.
    segments.sort(key=lambda s: (s.prefix is not None, -len(s)))
    buckets: list[list[_Segment]] = []
    first = 0
    for segment in segments:
        leader = buckets[-1][0] if buckets else None
        fits = leader is not None and (leader.prefix is None) == (segment.prefix is None)
        if fits and leader is not None and len(segment) >= ALIKE * len(leader):
            buckets[-1].append(segment)
        else:
            buckets.append([segment])
        segment.first = first
        first += len(segment)

    device = tokens.device
    row = torch.tensor([s.row for s in segments]).repeat_interleave(torch.tensor([len(s) for s in segments]))
    position = torch.cat([torch.arange(s.begin, s.end) for s in segments]) if segments else torch.zeros(0).long()
    where = torch.full(tokens.shape, -1)
    for s in segments:
        where[list(s.rows), s.begin : s.end] = torch.arange(s.first, s.first + len(s))
    position = position.to(device)
    return Packed(
        tokens=tokens[row.to(device), position],
        position=position,
        buckets=tuple(_bucket(group, dtype, device) for group in buckets),
        where=where.to(device),
    )


def _segments(tokens: Tensor, prompt: list[int], end: list[int]) -> list[_Segment]:
    """Splits each row into a shared prompt and its own rest if that saves enough over the whole batch; else one segment
    each."""
    read = [r for r, n in enumerate(end) if n]
    lines = tokens.tolist()
    # A row's prompt is cut at the end of the tokens that are read.
    key = {r: tuple(lines[r][: min(prompt[r], end[r])]) for r in read}
    groups = {
        k: list(rows) for k, rows in itertools.groupby(sorted(read, key=lambda r: (key[r], r)), key=key.__getitem__)
    }
    saved = sum(len(k) * (len(rows) - 1) for k, rows in groups.items())
    if saved < WORTH * sum(end):
        return [_Segment(r, 0, end[r], [r]) for r in read]
    segments = []
    for k, rows in groups.items():
        if not k or len(rows) == 1:
            segments += [_Segment(r, 0, end[r], [r]) for r in rows]
            continue
        shared = _Segment(rows[0], 0, len(k), rows)
        rests = [_Segment(r, len(k), end[r], [r], shared) for r in rows if end[r] > len(k)]
        segments += [shared, *rests]
    return segments


def _bucket(segments: list[_Segment], dtype: torch.dtype, device: torch.device) -> Bucket:
    first = torch.tensor([s.first for s in segments])
    length = torch.tensor([len(s) for s in segments])
    column = torch.arange(int(length.max()))
    query = first[:, None] + torch.minimum(column, length[:, None] - 1)
    real = column < length[:, None]
    inside = real.flatten().nonzero().flatten()
    read, bias = query, None
    prefixes = [s.prefix for s in segments if s.prefix is not None]
    if prefixes:
        start = torch.tensor([p.first for p in prefixes])
        size = torch.tensor([len(p) for p in prefixes])
        slot = torch.arange(int(size.max()))
        read = torch.cat([start[:, None] + torch.minimum(slot, size[:, None] - 1), query], 1)
        visible = (slot < size[:, None])[:, None, :].expand(-1, len(column), -1)
        visible = visible[:1] if bool((size == size[0]).all()) else visible
        causal = (column[None, :] <= column[:, None]).expand(len(visible), -1, -1)
        visible = torch.cat([visible, causal], -1)
        bias = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, -torch.inf)[:, None].to(device)
    return Bucket(query.to(device), read.to(device), bias, inside.to(device))
