"""Bytes by formula against the bytes of real tensors."""

import dataclasses

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from polopt.plan import memory
from polopt.plan.shape import shape_of
from polopt.policies import products
from polopt.policies.decoder import Decoder
from polopt.policies.packing import pack

TINY = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4}
KINDS = {
    "gpt2": {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64, "bos_token_id": None, "eos_token_id": None},
    "llama": {**TINY, "num_key_value_heads": 2},
    "mistral": {**TINY, "num_key_value_heads": 1, "sliding_window": None},
    "qwen2": {**TINY, "num_key_value_heads": 4},
    "qwen3": {**TINY, "num_key_value_heads": 2, "head_dim": 20},
}


def made(kind, **more):
    config = AutoConfig.for_model(kind, **{**KINDS[kind], "vocab_size": 96, **more})
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def kept_bytes(work, but):
    """Bytes of all storages that autograd keeps for the backward pass, whole numbers apart, and those in `but`."""
    found = {}

    def keep(tensor):
        held.append(tensor)  # so that no storage is used twice
        if tensor.is_floating_point():
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    held = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        held.append(work())
    return sum(size for place, size in found.items() if place not in but)


def read(kind, layers, shared, checkpointing=False):
    """(a decoder's reading of five rows, weights by place, how many tokens it reads, its shape)."""
    rows, length = 5, 32
    tokens = torch.randint(3, 90, (rows, length), generator=torch.Generator().manual_seed(1))
    tokens[:, :shared] = tokens[:1, :shared]
    model = made(kind, **{"n_layer" if kind == "gpt2" else "num_hidden_layers": layers})
    decoder = Decoder.of(model)
    decoder.checkpointing = checkpointing
    packed = pack(tokens, torch.full((rows,), shared), torch.full((rows,), length))
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    at = packed.where[:, shared:].flatten()
    return lambda: decoder.read(packed, at)[0], weights, len(packed.tokens), shape_of(model.config.to_dict())


@pytest.mark.parametrize("large", [False, True], ids=["small products", "large products"])
@pytest.mark.parametrize("shared", [0, 12], ids=["own prompts", "one prompt"])
@pytest.mark.parametrize("kind", KINDS)
def test_activations_are_what_the_decoder_keeps(kind, shared, large, monkeypatch):
    """Two layers' are what five keep and three do not: what stands before and behind them is in both."""
    if large:
        monkeypatch.setattr(products, "LARGE", 0)
        monkeypatch.setattr(memory, "LARGE", 0)
    kept = {}
    for layers in (3, 5):
        work, weights, tokens, shape = read(kind, layers, shared)
        kept[layers] = kept_bytes(work, weights)
    plain, behind = (tokens, 0) if not shared else (shared, 5 * 32)
    two = dataclasses.replace(shape, layers=2)
    assert kept[5] - kept[3] == memory.activations(two, tokens, plain, behind, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_keeps_inputs(kind):
    kept = {}
    for layers in (3, 5):
        work, weights, tokens, shape = read(kind, layers, 0, checkpointing=True)
        kept[layers] = kept_bytes(work, weights)
    five, three = (
        memory.activations(dataclasses.replace(shape, layers=n), tokens, tokens, 0, 4, checkpointing=True)
        for n in (5, 3)
    )
    assert kept[5] - kept[3] == five - three


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_is_what_transformers_keeps(kind):
    model = made(kind)
    cache = DynamicCache(config=model.config)
    rows, length = 3, 11
    with torch.no_grad():
        model(input_ids=torch.ones(rows, length, dtype=torch.long), past_key_values=cache, use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert memory.kv_cache(shape_of(model.config.to_dict()), rows * length, 4) == held


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_gradients_and_moments(dtype):
    model = made("qwen2").to(getattr(torch, dtype))
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    model(input_ids=torch.ones(1, 4, dtype=torch.long)).logits.float().sum().backward()
    optimiser.step()
    parameters, size = shape_of(model.config.to_dict()).parameters, memory.SIZES[dtype]
    assert memory.weights(parameters, size) == sum(p.nbytes for p in model.parameters())
    assert memory.weights(parameters, size) == sum(p.grad.nbytes for p in model.parameters())
    moments = sum(v.nbytes for state in optimiser.state.values() for v in state.values() if v.dim())
    assert memory.adam(parameters, size) == moments


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_adapters_by_rank(kind):
    """Against two small matrices beside each of the layers' own."""
    model = made(kind)
    found = sum(
        3 * sum(module.weight.shape)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and "layers" in name
    )
    assert memory.adapter(shape_of(model.config.to_dict()), 3) == found


def test_checkpointing_of_one_layer_saves_nothing():
    shape = shape_of({"model_type": "llama", "vocab_size": 9, **TINY, "num_hidden_layers": 1})
    with_it = memory.activations(shape, 10, 10, 0, 4, checkpointing=True)
    assert with_it == memory.activations(shape, 10, 10, 0, 4) + 4 * 10 * shape.width
