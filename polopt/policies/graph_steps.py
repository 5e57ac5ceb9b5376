"""Next-token logits on a GPU, by a graph of operations that is captured once and replayed for every token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from polopt.policies.decoder import Decoder
from polopt.policies.sampler_steps import DecoderSteps, attend

# Columns by which the cache grows. Attention reads every column of it, and masks need a multiple of 8.
COLUMNS = 128
# Fewer tokens than this are computed one operation at a time: a capture takes as long as some of them.
WORTH = 64


class GraphSteps(DecoderSteps):
    """Steps by a decoder, for a device on which launching the operations takes longer than computing them.

    The operations of a token are captured as a CUDA graph, again wherever the number of rows or the cache's capacity
    changes. A graph has fixed shapes, so attention reads the whole cache: columns that hold no token yet are masked.
    """

    def begin(self, contexts: Sequence[Sequence[int]], copies: Sequence[int], limit: int) -> Tensor:
        logits = super().begin(contexts, copies, limit)
        self.replay: Callable[[], Tensor] | None = None
        self.begun = False
        rows, device = len(logits), logits.device
        self.column = torch.tensor([self.width], device=device)
        visible = self._blank(rows, self.cache[0].shape[3])
        visible[..., : self.width] = 0.0 if self.bias is None else self.bias[..., : self.width]
        self.bias = visible
        return logits

    def step(self, token: Tensor) -> Tensor:
        if self.grow(self.width):
            self._forget()
            assert self.bias is not None
            wider = self._blank(len(token), self.cache[0].shape[3])
            wider[..., : self.bias.shape[-1]] = self.bias
            self.bias = wider
        self.width += 1
        # Libraries that an operation loads when it is called first cannot be loaded during a capture.
        if self.replay is None and (not self.begun or self.most - self.width < WORTH):
            self.begun = True
            return self._append(token)
        if self.replay is None:
            self.token = token.clone()
            self.replay = capture(lambda: self._append(self.token))
        self.token.copy_(token)
        # The next replay overwrites the graph's own output.
        return self.replay().clone()

    def keep(self, rows: Tensor) -> None:
        self._forget()
        super().keep(rows)

    def fork(self, rows: Tensor) -> None:
        self._forget()
        super().fork(rows)

    def capacity(self, used: int, more: int) -> int:
        return (used // COLUMNS + 1) * COLUMNS

    def reserved(self, like: Tensor, *shape: int) -> Tensor:
        # A masked column contributes 0 times its values, which therefore have to be finite.
        return like.new_zeros(shape)

    def _forget(self) -> None:
        """Drops the graph, whose memory is free before more is reserved."""
        self.replay = None

    def _blank(self, rows: int, columns: int) -> Tensor:
        cache = self.cache[0]
        return cache.new_full((rows, 1, 1, columns), -torch.inf)

    def _append(self, token: Tensor) -> Tensor:
        """Appends one token to each row and returns the next logits, in operations on tensors of fixed shapes."""
        assert self.bias is not None
        x = self.decoder.embed(token, self.position)
        rotation = None if self.rotations is None else self.rotations[:, self.position]
        self.bias.index_fill_(3, self.column, 0.0)
        for layer, cache in zip(self.layers, self.cache, strict=True):
            q, kv = layer.project(x, rotation)
            cache.index_copy_(3, self.column, kv.transpose(0, 1)[:, :, :, None])
            keys, values = cache.unbind(0)
            attended = attend(q.view(len(q), layer.kv_heads, -1, layer.width), keys, values, self.bias)
            x = layer.finish(x, attended.reshape(q.shape))
        self.position.add_(1)
        self.column.add_(1)
        return self._logits(x)


def capture(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Returns a function that does on the GPU what `function` does, which is called once to record its operations, and
    returns the same output tensor each time."""
    graph = torch.cuda.CUDAGraph()
    # Other threads, as one that writes a checkpoint, may use the device meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        output = function()

    def replay() -> Tensor:
        graph.replay()
        return output

    return replay


def steps_of(decoder: Decoder) -> DecoderSteps:
    """Returns the steps that suit the decoder's device."""
    return (GraphSteps if decoder.model.device.type == "cuda" else DecoderSteps)(decoder)
