"""Steps whose operations are captured and replayed: on a CPU the capture is a function that is called again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_sampler import RAGGED
from tiny_models import STOP, full_logits, tiny
from torch import Tensor

from polopt.policies import attention, graph_steps, sampler, sampler_steps
from polopt.policies.decoder import Decoder
from polopt.policies.graph_steps import GraphSteps
from polopt.policies.sampler import sample
from polopt.policies.sampler_steps import DecoderSteps
from polopt.support import Support

DECODED = ["gpt2", "llama", "qwen2", "qwen3", "mistral-whole"]


class Captures:
    """Replays by calling the function again, into one output tensor as a graph does, and counts."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.captured += 1
        outputs: list[Tensor] = []

        def replay() -> Tensor:
            self.replayed += 1
            if not outputs:
                outputs.append(function())
            else:
                outputs[0].copy_(function())
            return outputs[0]

        return replay


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    found = Captures()
    monkeypatch.setattr(graph_steps, "capture", found)
    monkeypatch.setattr(graph_steps, "COLUMNS", 8)
    monkeypatch.setattr(graph_steps, "WORTH", 2)
    return found


def graph_steps_of(kind: str) -> tuple[torch.nn.Module, GraphSteps]:
    model = tiny(kind)
    decoder = Decoder.of(model)
    assert decoder is not None
    return model, GraphSteps(decoder)


@pytest.mark.parametrize("kind", DECODED)
@torch.no_grad()
def test_logits_are_those_of_full_forward_passes(kind: str, captures: Captures) -> None:
    """Through growth of the cache, rows that leave and rows that are copied; earlier logits are left alone."""
    model, steps = graph_steps_of(kind)
    g = torch.Generator().manual_seed(0)
    rows = [list(c) for c in RAGGED for _ in range(2)]
    logits = steps.begin(RAGGED, [2] * len(RAGGED), 24)
    for step in range(23):
        for row, found in zip(rows, logits, strict=True):
            torch.testing.assert_close(found, full_logits(model, row)[-1], rtol=0, atol=1e-9)
        if step == 9:
            copied = torch.tensor([0, 3, 3])
            steps.fork(copied)
            rows += [list(rows[i]) for i in copied.tolist()]
        if step == 15:
            left = [0, len(rows) - 1, 2, 3, 4]
            steps.keep(torch.tensor(left))
            rows = [rows[i] for i in left]
        token = torch.randint(3, 10, (len(rows),), generator=g)
        before = logits.clone()
        held, logits = logits, steps.step(token)
        assert torch.equal(held, before)
        for row, t in zip(rows, token.tolist(), strict=True):
            row.append(t)
    # One capture at the start, one after each of two changes of rows, one after each of three growths.
    assert captures.captured <= 6
    assert captures.replayed >= 19


@pytest.mark.parametrize("support", [Support(), Support(temperature=1.3, top_k=7, top_p=0.7)], ids=str)
def test_a_rollout_is_that_of_plain_steps(
    support: Support, captures: Captures, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rollout() -> list[tuple[list[int], list[float]]]:
        model = tiny("llama")
        ways = {"group": 3, "support": support, "limit": 20, "stop": frozenset({STOP})}
        found = sample(model, RAGGED, generator=torch.Generator().manual_seed(1), decoder=Decoder.of(model), **ways)
        return [(answer.tokens, answer.logp) for answer in found]

    plain = rollout()
    assert captures.captured == 0
    monkeypatch.setattr(sampler, "steps_of", GraphSteps)
    replayed = rollout()
    assert captures.replayed > 0
    assert [tokens for tokens, _ in replayed] == [tokens for tokens, _ in plain]
    for (_, a), (_, b) in zip(replayed, plain, strict=True):
        assert a == pytest.approx(b, abs=1e-10)


@torch.no_grad()
def test_few_tokens_are_not_captured(captures: Captures) -> None:
    _, steps = graph_steps_of("llama")
    logits = steps.begin(RAGGED, [1] * len(RAGGED), 3)
    for _ in range(2):
        logits = steps.step(logits.argmax(-1))
    assert captures.captured == 0


@pytest.mark.parametrize("make", [GraphSteps, DecoderSteps])
@torch.no_grad()
def test_a_kernel_may_lay_out_its_answer_as_it_likes(make: type[DecoderSteps], monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's memory-efficient attention returns [B, L, H, D] seen as [B, H, L, D]."""
    model = tiny("qwen2", hidden_size=32, num_attention_heads=4, num_key_value_heads=2)
    decoder = Decoder.of(model)
    assert decoder is not None
    usual = attention.F.scaled_dot_product_attention

    def transposed(*args: Any, **kwargs: Any) -> Tensor:
        return usual(*args, **kwargs).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", transposed)
    monkeypatch.setattr(sampler_steps, "by_products", lambda q: False)
    steps, rows = make(decoder), [list(c) for c in RAGGED]
    logits = steps.begin(RAGGED, [1] * len(RAGGED), 8)
    for _ in range(7):
        token = logits.argmax(-1)
        logits = steps.step(token)
        for row, t, found in zip(rows, token.tolist(), logits, strict=True):
            row.append(t)
            torch.testing.assert_close(found, full_logits(model, row)[-1], rtol=0, atol=1e-9)
