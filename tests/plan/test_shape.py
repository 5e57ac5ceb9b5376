"""Parameters and arithmetic by formula against real models."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from polopt.config import ConfigError
from polopt.plan import flops, models
from polopt.plan.shape import shape_of

LLAMA = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 131,
}
KINDS = [
    ("gpt2", {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 40, "vocab_size": 131}),
    ("gpt2", {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_inner": 100, "tie_word_embeddings": False}),
    ("llama", LLAMA),
    ("llama", {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 20}),
    ("mistral", {**LLAMA, "head_dim": 20}),
    ("qwen2", {**LLAMA, "tie_word_embeddings": True}),
    ("qwen3", {**LLAMA, "head_dim": None}),
    ("qwen3", {**LLAMA, "head_dim": 20, "attention_bias": True}),
    ("qwen3_moe", {**LLAMA, "moe_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2, "head_dim": 20}),
]
NAMES = [f"{kind} {i}" for i, (kind, _) in enumerate(KINDS)]


def on_paper(kind, settings):
    """A real model without memory."""
    config = AutoConfig.for_model(kind, **{k: v for k, v in settings.items() if v is not None})
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


@pytest.mark.parametrize(("kind", "settings"), KINDS, ids=NAMES)
def test_parameters_are_the_models(kind, settings):
    model = on_paper(kind, settings)
    assert shape_of(model.config.to_dict()).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", models.table())
def test_the_tables_models(name):
    """The published number, and that of the real model."""
    fields = dict(models.table()[name])
    published = fields.pop("parameters")
    assert models.find(name).parameters == published
    assert sum(p.numel() for p in on_paper(fields.pop("model_type"), fields).parameters()) == published


@pytest.mark.parametrize(("kind", "settings"), KINDS[:-1], ids=NAMES[:-1])
def test_flops_are_counted(kind, settings):
    """The counter lets every token see every other: it does not know of masks."""
    config = AutoConfig.for_model(kind, **{k: v for k, v in settings.items() if v is not None})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    shape, rows, length = shape_of(model.config.to_dict()), 3, 16
    counted = (shape, rows * length, rows * length**2, rows * length)
    ids = torch.randint(3, 90, (rows, length))
    with FlopCounterMode(display=False) as counter:
        loss = model(input_ids=ids).logits.sum()
    forward = counter.get_total_flops() - rotations(shape, length, kind)
    assert flops.forward(*counted) == forward
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert flops.backward(*counted) == counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        model.get_submodule("transformer" if kind == "gpt2" else "model")(input_ids=ids)
    again = counter.get_total_flops() - rotations(shape, length, kind)
    assert flops.recomputed(shape, rows * length, rows * length**2) == again


def rotations(shape, length, kind):
    """transformers makes the angles of rotary positions by a product, which no gradient passes."""
    return 0 if kind == "gpt2" else shape.head_width // 2 * length * 2


def test_experts_cost_what_a_token_meets():
    """Against the same layers with one MLP as wide as the experts that a token meets, and the router's product."""
    sparse = shape_of({"model_type": "qwen3_moe", **KINDS[-1][1]})
    dense = shape_of({"model_type": "qwen3", **LLAMA, "head_dim": 20, "intermediate_size": 2 * 24})
    assert sparse.matrix == dense.matrix + 3 * 48 * 6
    assert sparse.read_by(1) == pytest.approx(sparse.matrix + sparse.head)
    everything = sparse.layers * (sparse.attention_matrix + sparse.router + 6 * sparse.expert) + sparse.head
    assert sparse.read_by(1e4) == pytest.approx(everything)


def test_pairs_are_what_a_loop_counts():
    seen = sum(1 for q in range(7) for k in range(7) if k <= q)
    assert flops.causal(7) == seen
    whole = sum(1 for q in range(12) for k in range(12) if k <= q)
    assert flops.causal(5) + flops.behind(5, 7) == whole


def test_a_folder_and_a_name(tmp_path):
    fields = {k: v for k, v in models.table()["Qwen2.5-0.5B"].items() if k != "parameters"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert models.find(str(tmp_path)).parameters == models.find("Qwen/Qwen2.5-0.5B-Instruct").parameters
    assert models.find("qwen2.5-0.5b").parameters == 494_032_768


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("Qwen2.5-8B", "did you mean 'Qwen2.5-"), ("nothing", "nor in the table; it has: Llama-3.1-70B")],
)
def test_unknown_models_give_the_nearest(name, sentence):
    with pytest.raises(ConfigError, match=sentence):
        models.find(name)


def test_unknown_architectures_are_refused():
    with pytest.raises(ConfigError, match=r"model_type = 'qwen2_vl' is none .* did you mean 'qwen2'"):
        shape_of({"model_type": "qwen2_vl"})
    with pytest.raises(ConfigError, match="hidden_size is missing"):
        shape_of({"model_type": "llama"}, "mine")
