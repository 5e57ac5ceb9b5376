"""Rows without padding: what is read once, and whom each token attends to."""

from __future__ import annotations

import pytest
import torch
from reference_pass import padded, rows_of

from polopt.policies import packing


def test_prompts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, decided = rows_of(each=6)
    tokens, mask = padded(ids, decided, "right")
    end = torch.tensor([max(t for t, mark in enumerate(row) if mark) for row in decided])
    prompt = mask.int().argmax(1)
    once = packing.pack(tokens, prompt, end)
    assert len(once.tokens) == sum(end) - 5 * sum(prompt[::6])
    monkeypatch.setattr(packing, "WORTH", 1.0)
    assert len(packing.pack(tokens, prompt, end).tokens) == sum(end)


@pytest.mark.parametrize("worth", [0.0, 1.0])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_packed_attention_is_each_rows_own(
    worth: float, heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against softmax(q k / sqrt(D)) v of each row by itself, on rows of very different lengths."""
    monkeypatch.setattr(packing, "WORTH", worth)
    random = torch.Generator().manual_seed(2)
    lengths = [3, 40, 9, 1, 25, 2, 17, 30]
    tokens = torch.full((8, 42), -1)
    for row, n in enumerate(lengths):
        tokens[row, :n] = torch.arange(n) + 100 * (row // 2)
    # Rows 2i and 2i + 1 begin alike; one of them may end inside the prompt.
    packed = packing.pack(tokens, torch.tensor([2, 2, 5, 5, 4, 4, 7, 7]), torch.tensor(lengths), torch.float64)
    sizes = [(len(packed.tokens), h, 6) for h in (heads[0], heads[1], heads[1])]
    q, k, v = (torch.randn(s, generator=random, dtype=torch.float64) for s in sizes)
    found = packed.attend(q, torch.stack([k, v], 1))
    for row, n in enumerate(lengths):
        flat = packed.where[row, :n]
        assert torch.equal(packed.tokens[flat], tokens[row, :n])
        assert torch.equal(packed.position[flat], torch.arange(n))
        for head in range(heads[0]):
            mine = head // (heads[0] // heads[1])
            scores = q[flat, head] @ k[flat, mine].T / 6**0.5
            scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
            torch.testing.assert_close(found[flat, head], scores.softmax(-1) @ v[flat, mine], atol=1e-12, rtol=0)
