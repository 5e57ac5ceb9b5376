"""Layers that are computed again in the backward pass: equal gradients, less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference_pass import NoTokenizer, padded, rows_of
from tiny_models import tiny
from torch import Tensor

from polopt.experience import Experience
from polopt.policies import decoder
from polopt.policies.language import LanguagePolicy


def _learnt(policy: LanguagePolicy, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, dict[str, Tensor], int, int]:
    """Log-probabilities, gradients, how often the layers' own parts ran, and bytes kept for the backward pass."""
    tokens, mask = padded(*rows_of(), "right")
    calls, kept = 0, 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    layers = policy.model.base_model.get_submodule("h" if hasattr(policy.model.base_model, "h") else "layers")
    finish = decoder.DecoderLayer.finish
    monkeypatch.setattr(decoder.DecoderLayer, "finish", lambda *a: (count(), finish(*a))[1])
    # A hook would keep the decoder from reading the model.
    hooks = [] if policy.decoder is not None else [layer.mlp.register_forward_pre_hook(count) for layer in layers]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logp = policy.evaluate(Experience(mask=mask, extras={"tokens": tokens})).logp
    logp.sum().backward()
    for hook in hooks:
        hook.remove()
    monkeypatch.undo()
    grads = {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}
    return logp.detach(), grads, calls // len(layers), kept


DROPOUT = {
    "gpt2": {"resid_pdrop": 0.5, "attn_pdrop": 0.5},
    "bloom": {"hidden_dropout": 0.5, "attention_dropout": 0.5},
    "qwen2": {"attention_dropout": 0.5},
    "gemma2": {},
}


@pytest.mark.parametrize("kind", DROPOUT)
def test_checkpointing_computes_layers_twice_and_keeps_less(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to the last bit, dropout stays off, and the sampler, which needs no gradient, pays nothing."""
    model = tiny(kind, **DROPOUT[kind])
    plain = _learnt(LanguagePolicy(model, NoTokenizer()), monkeypatch)
    model.zero_grad()
    thrifty = LanguagePolicy(model, NoTokenizer(), checkpointing=True)
    again = _learnt(thrifty, monkeypatch)
    assert torch.equal(plain[0], again[0])
    assert plain[1].keys() == again[1].keys()
    assert all(torch.equal(plain[1][name], again[1][name]) for name in plain[1])
    assert (plain[2], again[2]) == (1, 2)
    assert again[3] < plain[3] / 2
    with torch.no_grad():
        tokens, mask = padded(*rows_of(), "right")
        assert torch.equal(thrifty.frozen().evaluate(Experience(mask=mask, extras={"tokens": tokens})).logp, plain[0])


def test_a_checkpointed_copy_is_a_copy() -> None:
    """Its layers compute with its own weights, not with those of the policy that it was copied from."""
    policy = LanguagePolicy(tiny("llama"), NoTokenizer(), checkpointing=True)
    tokens, mask = padded(*rows_of(), "right")
    batch = Experience(mask=mask, extras={"tokens": tokens})
    reference = policy.frozen()
    before = policy.evaluate(batch).logp.detach()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    assert torch.equal(reference.evaluate(batch).logp, before)
    assert not torch.allclose(policy.evaluate(batch).logp, before)


def test_checkpointing_refuses_a_model_without_layers() -> None:
    from polopt.policies.checkpointing import checkpoint_layers

    with pytest.raises(ValueError, match=r"policy\.checkpointing: Linear has no layers"):
        checkpoint_layers(torch.nn.Linear(2, 2))
