"""Products that compute again what they read: values, gradients and what is kept, against formulas in float64."""

from __future__ import annotations

import pytest
import torch
from reference_pass import padded, policy_of, rows_of
from torch import Tensor
from torch.nn import functional as F

from polopt.experience import Experience
from polopt.policies import decoder_layer, products, recompute
from polopt.policies.recompute import Rowwise

ROWS, WIDE, INNER, OUT = 5, 6, 7, 4


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LARGE", 0)


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, weight.shape, weight, bias, 1e-5)


def written_out(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return apart / (apart.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


@pytest.mark.parametrize("still", ["nothing", "x", "weights", "the normalisation"])
def test_gradients_of_two_maps_of_a_normalisation(still: str) -> None:
    """Whatever does not learn gets no gradient, and what does the same one."""
    x, scale, shift = numbers(ROWS, WIDE, seed=0), numbers(WIDE, seed=1), numbers(WIDE, seed=2)
    weights, bias = [numbers(INNER, WIDE, seed=3), numbers(OUT, WIDE, seed=4)], numbers(OUT, seed=5)
    for leaf in {"nothing": [], "x": [x], "weights": weights, "the normalisation": [scale, shift]}[still]:
        leaf.requires_grad_(False)
    said = recompute.linear(Rowwise(normed, (scale, shift)), (x,), weights, (None, bias))
    y = written_out(x, scale, shift)
    expected = (y @ weights[0].T, y @ weights[1].T + bias)
    leaves = [leaf for leaf in (x, scale, shift, *weights, bias) if leaf.requires_grad]
    slopes = [numbers(*e.shape, seed=6 + i).detach() for i, e in enumerate(expected)]
    torch.testing.assert_close(said, expected, rtol=0, atol=1e-12)
    found, formula = torch.autograd.grad(said, leaves, slopes), torch.autograd.grad(expected, leaves, slopes)
    torch.testing.assert_close(found, formula, rtol=0, atol=1e-12)


def test_gradients_of_a_map_of_two_inputs() -> None:
    gate, up, weight = (numbers(n, m, seed=i) for i, (n, m) in enumerate([(ROWS, INNER), (ROWS, INNER), (OUT, INNER)]))
    (said,) = recompute.linear(Rowwise(lambda g, u: F.silu(g) * u), (gate, up), (weight,), (None,))
    expected = (gate / (1 + (-gate).exp()) * up) @ weight.T
    slope = numbers(ROWS, OUT, seed=4).detach()
    torch.testing.assert_close(said, expected, rtol=0, atol=1e-12)
    found, formula = (torch.autograd.grad(y, [gate, up, weight], slope) for y in (said, expected))
    torch.testing.assert_close(found, formula, rtol=0, atol=1e-12)


def test_what_is_kept_is_what_was_given() -> None:
    x, weight, kept = numbers(ROWS, WIDE, seed=0), numbers(OUT, WIDE, seed=1), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t.data_ptr()), t)[1], lambda t: t):
        recompute.linear(Rowwise(lambda v: v.exp().sin()), (x,), (weight,), (None,))
    assert sorted(kept) == sorted([x.data_ptr(), weight.data_ptr()])


def test_other_precisions_of_weights() -> None:
    """Products are in the precision of x, gradients in that of the weights."""
    x, weight = numbers(ROWS, WIDE, seed=0, dtype=torch.bfloat16), numbers(OUT, WIDE, seed=1, dtype=torch.float32)
    (said,) = recompute.linear(recompute.AS_IT_IS, (x,), (weight,), (None,))
    assert said.dtype == torch.bfloat16
    to_x, to_weight = torch.autograd.grad(said, [x, weight], torch.ones_like(said))
    assert (to_x.dtype, to_weight.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(to_weight, x.detach().float().sum(0).expand(OUT, -1), rtol=0.01, atol=0.01)


def test_without_gradient_nothing_is_kept() -> None:
    x, weight = numbers(ROWS, WIDE, seed=0), numbers(OUT, WIDE, seed=1)
    with torch.no_grad():
        (said,) = recompute.linear(recompute.AS_IT_IS, (x,), (weight,), (None,))
    assert said.grad_fn is None


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3"])
def test_a_policy_says_and_learns_the_same(kind: str, checkpointing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, mask = padded(*rows_of(), "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    found = []
    for large in (0, 2**60):
        monkeypatch.setattr(products, "LARGE", large)
        policy = policy_of(kind)
        assert policy.decoder is not None
        policy.decoder.checkpointing = checkpointing
        said = policy.evaluate(batch, {"entropy"})
        (said.logp * said.entropy.detach()).sum().backward()
        gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
        found.append((said.logp.detach(), gradients))
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_rotations_in_place() -> None:
    """Against the formula (x, y) -> (x cos - y sin, y cos + x sin), first and second derivatives, other heads apart."""
    heads, width = 3, 4
    angle = numbers(ROWS, 1, width // 2, seed=1).detach()
    rotation = torch.stack([angle.cos().repeat(1, 1, 2), angle.sin().repeat(1, 1, 2)])
    qkv = numbers(ROWS, heads * width, seed=0)

    def written(x: Tensor) -> Tensor:
        a, b = x.view(ROWS, heads, width)[:, :2].chunk(2, -1)
        c, s = angle.cos(), angle.sin()
        return torch.cat([torch.cat([a * c - b * s, b * c + a * s], -1), x.view(ROWS, heads, width)[:, 2:]], 1).flatten(
            1
        )

    def rotated(x: Tensor) -> Tensor:
        return decoder_layer._rotated(x.clone(), rotation, 2)

    torch.testing.assert_close(rotated(qkv), written(qkv), rtol=0, atol=1e-14)
    with torch.no_grad():
        torch.testing.assert_close(rotated(qkv), written(qkv), rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(rotated, [qkv])
    assert torch.autograd.gradgradcheck(rotated, [qkv])


def test_an_older_copy_of_weights_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step between forward and backward pass is refused by autograd, as everywhere, in place of a wrong gradient."""
    x, weight = numbers(ROWS, WIDE, seed=0), numbers(OUT, WIDE, seed=1)
    (said,) = recompute.linear(recompute.AS_IT_IS, (x,), (weight,), (None,))
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        said.sum().backward()
