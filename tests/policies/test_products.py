"""Products by oneDNN against float64, and when they are left to PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polopt.policies import products

ROWS, WIDE, OUT = 7, 33, 20


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each product that was left to PyTorch; oneDNN is for weights of any size."""
    if not products._has_onednn(torch.float32):
        pytest.skip("this PyTorch has no oneDNN")
    found, plain = [], torch.nn.functional.linear
    monkeypatch.setattr(products, "LARGE", 0)
    monkeypatch.setattr(products.F, "linear", lambda *a: (found.append(1), plain(*a))[1])
    return found


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def strided(x: Tensor) -> Tensor:
    """The same numbers, column by column."""
    return x.t().contiguous().t()


@pytest.mark.parametrize("layout", [Tensor.contiguous, strided, lambda x: torch.cat([x, x], 1)[:, : x.shape[1]]])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("slopes", ["of each", "one for all"])
def test_value_and_gradients(layout, biased: bool, slopes: str, calls: list[int]) -> None:
    x, weight = layout(numbers(ROWS, WIDE, seed=0)), layout(numbers(OUT, WIDE, seed=1))
    bias = numbers(OUT, seed=2) if biased else None
    leaves = [v.detach().requires_grad_() for v in (x, weight, bias) if v is not None]
    said = products.linear(*leaves, *[None] * (3 - len(leaves)))
    wide = [v.detach().double() for v in leaves]
    expected = wide[0] @ wide[1].T + (wide[2] if biased else 0)
    torch.testing.assert_close(said.double(), expected, rtol=1e-5, atol=1e-5)
    slope = numbers(ROWS, OUT, seed=3) if slopes == "of each" else torch.ones(1, 1).expand(ROWS, OUT)
    found = torch.autograd.grad(said, leaves, slope)
    above = slope.double()
    for gradient, formula in zip(found, [above @ wide[1], above.T @ wide[0], above.sum(0)], strict=False):
        torch.testing.assert_close(gradient.double(), formula, rtol=1e-5, atol=1e-5)
    assert not calls


def test_only_what_is_asked_for(calls: list[int]) -> None:
    x, weight = numbers(ROWS, WIDE, seed=0), numbers(OUT, WIDE, seed=1)
    for leaf in (x, weight):
        leaf.requires_grad_()
        products.linear(x, weight).sum().backward()
        assert leaf.grad is not None
        leaf.requires_grad_(False)
        leaf.grad = None
    assert not products.linear(x, weight).requires_grad


def test_what_onednn_would_compute_otherwise_is_left_to_pytorch(calls: list[int]) -> None:
    x, weight = numbers(ROWS, WIDE, seed=0), numbers(OUT, WIDE, seed=1)
    for dtype in (torch.float64, torch.bfloat16):
        assert products.linear(x.to(dtype), weight.to(dtype)).dtype == dtype
    assert products.linear(x.view(1, *x.shape), weight).shape == (1, ROWS, OUT)
    assert products.linear(x[:0], weight).shape == (0, OUT)
    assert len(calls) == 4


def test_small_weights_are_left_to_pytorch(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LARGE", OUT * WIDE + 1)
    products.linear(numbers(ROWS, WIDE, seed=0), numbers(OUT, WIDE, seed=1))
    assert len(calls) == 1
