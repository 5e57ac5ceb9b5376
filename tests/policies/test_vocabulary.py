"""From hidden states to the vocabulary in chunks, against all of it at once: values, gradients, and memory."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from reference_pass import policy_of
from tiny_models import VOCABULARY
from torch import Tensor

from polopt.experience import Experience
from polopt.policies import vocabulary
from polopt.support import Support


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_chunks_of_the_vocabulary_equal_the_whole(
    dtype: torch.dtype, truncated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probabilities, entropies and all gradients, with a bias, a temperature and kept choices; in bfloat16
    against float64 on the same rounded weights."""
    random = torch.Generator().manual_seed(4)
    n, d, size = 70, 8, 50
    hidden = torch.randn(n, d, generator=random).to(dtype).requires_grad_()
    head = torch.nn.Linear(d, size).to(dtype)
    chosen = torch.randint(size, (n,), generator=random)
    kept = None
    if truncated:
        kept = torch.stack([torch.randperm(size, generator=random)[:5] for _ in range(n)]).int()
        chosen, kept[::3, 4] = kept[:, 0].long(), -1
    candidates = torch.stack([torch.randperm(size, generator=random)[:4] for _ in range(n)]).int()
    candidates[:, 0], candidates[::4, 3] = chosen.int(), -1
    names = ("entropy", *vocabulary.REDUCTIONS)
    weights = {k: torch.randn(n, generator=random, dtype=torch.float64) for k in ("logp", *names)}
    weights["candidate_logp"] = torch.randn(n, 4, generator=random, dtype=torch.float64)

    def slopes(said: dict[str, Tensor], of: list[Tensor]) -> tuple[Tensor, ...]:
        loss = torch.stack([(weights[k] * v).sum() for k, v in said.items()]).sum()
        return torch.autograd.grad(loss, of, retain_graph=True)

    whole, layer = hidden.detach().double().requires_grad_(), copy.deepcopy(head).double()
    expected = spelt_out(layer(whole) / 0.8, chosen, kept, candidates)
    by_hand = slopes(expected, [whole, layer.weight, layer.bias])
    bound = 1e-12 if dtype == torch.float64 else 5e-2
    for most, held in ((2**23, 0), (20 * size, 0), (20 * size, n * size)):
        monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
        monkeypatch.setitem(vocabulary.MOST_KEPT, "cpu", held)
        found = vocabulary.score(hidden, head, chosen, kept, 0.8, names, candidates)
        assert found.keys() == expected.keys()
        for name, theirs in expected.items():
            torch.testing.assert_close(found[name].double(), theirs, atol=bound, rtol=0, msg=name)
        for _ in range(2):  # logits that were kept are there once
            for ours, theirs in zip(slopes(found, [hidden, head.weight, head.bias]), by_hand, strict=True):
                torch.testing.assert_close(ours.double(), theirs, atol=bound * float(theirs.abs().max()), rtol=0)


@pytest.mark.parametrize("held", [0, 200 * 300])
def test_logits_that_are_kept_save_a_product(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    monkeypatch.setitem(vocabulary.MOST_KEPT, "cpu", held)
    hidden, head = torch.randn(200, 4, requires_grad=True), torch.nn.Linear(4, 300, bias=False)
    calls, plain = [], vocabulary._logits
    monkeypatch.setattr(vocabulary, "_logits", lambda *a: (calls.append(1), plain(*a))[1])
    vocabulary.score(hidden, head, torch.arange(200), None, 1.0)["logp"].sum().backward()
    assert len(calls) == 10 * (1 if held else 2)


def test_a_head_of_more_precision_than_its_product_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunks' products are in bfloat16, their sum is in the weights' float32, however many rows are added at once.
    A slope of 1 by chosen logits alone makes the gradient the sum of the hidden states of those who chose."""
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    hidden = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    head, chosen = torch.nn.Linear(4, 300, bias=False), torch.arange(200) % 2
    with torch.no_grad():
        head.weight.zero_()
    found = []
    for summed in (2**20, 4 * 7):
        monkeypatch.setitem(vocabulary.MOST_SUMMED, "cpu", summed)
        (slope,) = torch.autograd.grad(vocabulary.score(hidden, head, chosen, None, 1.0)["logp"].sum(), head.weight)
        found.append(slope)
    exact = torch.nn.functional.one_hot(chosen, 300).double().T @ hidden.double() - hidden.double().sum(0) / 300
    for slope in found:
        assert slope.dtype == torch.float32
        assert not torch.equal(slope, slope.bfloat16().float())
        torch.testing.assert_close(slope.double(), exact, atol=0.05, rtol=0.01)


def test_logits_are_kept_for_gradients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    hidden, head, given = torch.randn(200, 4), torch.nn.Linear(4, 300, bias=False), []
    plain = vocabulary._Chunked.apply
    monkeypatch.setattr(vocabulary._Chunked, "apply", lambda *a: (given.append(a[-1]), plain(*a))[1])
    with torch.no_grad():
        vocabulary.score(hidden, head, torch.arange(200), None, 1.0)
    vocabulary.score(hidden, head, torch.arange(200), None, 1.0)
    assert given == [False, True]


def spelt_out(logits: Tensor, chosen: Tensor, kept: Tensor | None, candidates: Tensor) -> dict[str, Tensor]:
    """One decision at a time over the choices that it has. A reduction joins by one line."""
    found: dict[str, list[Tensor]] = {}
    for i, z in enumerate(logits):
        choices = list(range(len(z))) if kept is None else [int(k) for k in kept[i] if k >= 0]
        law = dict(zip(choices, torch.log_softmax(z[choices], 0), strict=True))
        every = torch.stack(list(law.values()))
        nothing, entropy = z.new_tensor(-1e4), -(every.exp() * every).sum()
        for name, value in {
            "logp": law[int(chosen[i])],
            "entropy": entropy,
            "entropy_slope": (every.exp() ** 2 * (every + entropy)).sum(),
            "mean_logp": every.sum() / len(every),
            "candidate_logp": torch.stack([law.get(int(c), nothing) for c in candidates[i]]),
        }.items():
            found.setdefault(name, []).append(value)
    return {name: torch.stack(values) for name, values in found.items()}


@pytest.mark.parametrize("most", [2**23, 1])
def test_the_likeliest_ids(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, never more than there are, and of those kept alone."""
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", most)
    hidden, head = torch.randn(40, 8, generator=torch.Generator().manual_seed(1)), torch.nn.Linear(8, 11)
    kept = torch.tensor([[1, 4, 7, -1]]).expand(40, -1)
    ranked = head(hidden).argsort(-1, descending=True).tolist()
    assert vocabulary.likeliest(hidden, head, None, 3).tolist() == [row[:3] for row in ranked]
    assert vocabulary.likeliest(hidden, head, None, 100).tolist() == ranked
    left = [[i for i in row if i in (1, 4, 7)] + [-1] * 2 for row in ranked]
    assert vocabulary.likeliest(hidden, head, kept, 5).tolist() == left


@pytest.mark.parametrize("truncated", [False, True])
def test_reductions_of_the_vocabulary_by_hand(truncated: bool) -> None:
    """sum_a pi_a^2 (log pi_a + H), choice by choice."""
    policy = policy_of("llama")
    tokens, mask = torch.tensor([[3, 4, 5]]), torch.tensor([[False, False, True]])
    ids = [1, 5, 9] if truncated else list(range(VOCABULARY))
    extras = {"tokens": tokens} | ({"kept": torch.tensor([[[-1] * 3, [-1] * 3, ids]])} if truncated else {})
    batch = Experience(mask=mask, support=Support(temperature=2.0, top_k=3 if truncated else 0), extras=extras)
    law = torch.softmax(policy.model(tokens[:, :2], use_cache=False).logits[0, -1][ids] / 2, 0).tolist()
    entropy = -math.fsum(p * math.log(p) for p in law)
    expected = math.fsum(p * p * (math.log(p) + entropy) for p in law)
    for decoder_of in (policy.decoder, None):
        policy._decoder = decoder_of
        for extra in (set(), {"logits"}):
            found = policy.evaluate(batch, {"extras.entropy_slope", *extra})
            assert found.entropy is None
            assert found.extras["entropy_slope"].flatten().tolist() == pytest.approx([0, 0, expected], abs=1e-12)
    assert policy.evaluate(batch).extras == {}


def test_the_whole_vocabulary_never_meets_all_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of as many numbers as decisions x vocabulary is made, forward or backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        most = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for value in out if isinstance(out, tuple | list) else [out]:
                self.most = max(self.most, value.numel() if isinstance(value, Tensor) else 0)
            return out

    hidden = torch.randn(200, 4, requires_grad=True)
    head = torch.nn.Linear(4, 300, bias=False)
    chosen = torch.arange(200)

    def largest() -> int:
        with Largest() as seen:
            said = vocabulary.score(
                hidden, head, chosen, None, 1.0, ("entropy", *vocabulary.REDUCTIONS), chosen[:, None]
            )
            torch.stack([value.sum() for value in said.values()]).sum().backward()
            assert vocabulary.likeliest(hidden, head, None, 3).shape == (200, 3)
        return seen.most

    assert largest() >= 200 * 300
    monkeypatch.setitem(vocabulary.MOST_LOGITS, "cpu", 300 * 20)
    assert largest() <= 300 * 20
