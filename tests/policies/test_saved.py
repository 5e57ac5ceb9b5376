"""What a policy leaves on disk: read back by transformers and PEFT, and held to what vLLM's loaders look for.

vLLM's rules are written out here from its sources (`model_executor/models/{llama,gpt2}.py`,
`lora/{peft_helper,lora_model,utils}.py`, `config/lora.py`), as vLLM itself does not run where tests do; Qwen3's names
follow Llama's.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import STOP
from torch import Tensor

from polopt.config import ConfigError
from polopt.policies.adapter import AdapterSpec, save_adapter
from polopt.policies.factory import new_policy
from polopt.policies.language import LanguagePolicy

TEXTS = [("sum", f"What is {i} + {i}?", str(2 * i)) for i in range(20)]
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}{% endfor %}"
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
SHAPE |= {"intermediate_size": 32, "max_position_embeddings": 64}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": SHAPE | {"tie_word_embeddings": False},
    "qwen3": SHAPE | {"tie_word_embeddings": True},
    "mistral": SHAPE | {"tie_word_embeddings": False, "sliding_window": None},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
}


def made(kind: str, dtype: str = "float32", *, adapter: dict[str, Any] | None = None) -> LanguagePolicy:
    """Weights that say something; with an adapter that does."""
    policy = new_policy({"model_type": kind, "initializer_range": 0.2, **SHAPES[kind]}, TEXTS, seed=0, dtype=dtype)
    if adapter is not None:
        pytest.importorskip("peft")
        policy.adapt(AdapterSpec(**adapter), seed=1, base="some/base")
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in policy.own_parameters().values():
            parameter.add_((0.1 * torch.randn(parameter.shape, generator=random)).to(parameter.dtype))
    return policy


@torch.no_grad()
def logits_of(model: Any) -> Tensor:
    return model.eval()(torch.arange(3, 15)[None], use_cache=False).logits


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", SHAPES)
def test_transformers_reads_the_same_policy(kind: str, dtype: str, tmp_path: Path) -> None:
    """Bit for bit: weights, precision, tied heads, texts to ids and back, chat template, generation settings."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    policy = made(kind, dtype)
    policy.tokenizer.chat_template = TEMPLATE
    policy.model.generation_config.update(temperature=0.6, top_p=0.9, do_sample=True, eos_token_id=[STOP, 1])
    policy.save(tmp_path)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert str(model.dtype) == f"torch.{dtype}"
    assert torch.equal(logits_of(model), logits_of(policy.model))
    head, table = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    assert (head.data_ptr() == table.data_ptr()) == model.config.tie_word_embeddings
    for _, prompt, solution in TEXTS:
        ids = policy.tokenizer(prompt + solution)["input_ids"]
        assert tokenizer(prompt + solution)["input_ids"] == ids
        assert tokenizer.decode(ids) == policy.tokenizer.decode(ids)
    talk = [{"role": "user", "content": "What is 7 + 7?"}]
    assert tokenizer.apply_chat_template(talk, tokenize=False) == "<user> What is 7 + 7?"
    asked = GenerationConfig.from_pretrained(tmp_path)
    assert (asked.temperature, asked.top_p, asked.eos_token_id) == (0.6, 0.9, [STOP, 1])
    assert LanguagePolicy.load(tmp_path).stop == frozenset({STOP, 1})


def test_an_architecture_whose_tokenizer_transformers_replaces_is_refused() -> None:
    """It goes by the name of the model, and would read other ids from the same text."""
    with pytest.raises(ConfigError, match=r"policy.config.model_type = 'qwen2': .*take another architecture"):
        new_policy({"model_type": "qwen2", **SHAPE}, TEXTS, seed=0, dtype="float32")


ADAPTERS = [
    {"rank": 3, "alpha": 5},
    {"rank": 1, "targets": ["c_attn"]},
    {"rank": 2, "targets": ["q_proj", "down_proj"]},
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_an_adapter_is_merged_as_peft_merges_it(kind: str, dtype: str, adapter: dict[str, Any], tmp_path: Path) -> None:
    if (kind == "gpt2") != ("c_attn" in adapter.get("targets", ())) and "targets" in adapter:
        pytest.skip("other names")
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    bare = new_policy({"model_type": kind, "initializer_range": 0.2, **SHAPES[kind]}, TEXTS, seed=0, dtype=dtype)
    bare.save(tmp_path / "base")
    policy = made(kind, dtype, adapter=adapter)
    policy.save(tmp_path / "policy")
    save_adapter(policy.model, tmp_path / "adapter")
    held = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {t.dtype for t in held.values()} == {torch.float64 if dtype == "float64" else torch.float32}
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    bound = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 0.2}[dtype]
    torch.testing.assert_close(logits_of(theirs), logits_of(policy.model), atol=bound, rtol=0)
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert str(ours.dtype) == f"torch.{dtype}"
    exact, merged = copy.deepcopy(theirs).double(), ours.state_dict()
    for name, weight in exact.merge_and_unload().state_dict().items():
        step = torch.finfo(ours.dtype).eps
        torch.testing.assert_close(merged[name].double(), weight.double(), atol=step, rtol=step, msg=name)
    talks = logits_of(theirs.get_base_model() if dtype == "bfloat16" else theirs.merge_and_unload())
    torch.testing.assert_close(logits_of(ours), talks, atol=bound, rtol=0)


STACKED = [("qkv_proj", ("q_proj", "k_proj", "v_proj")), ("gate_up_proj", ("gate_proj", "up_proj"))]
# What vLLM's model of the architecture registers under `architectures` must find, "*" for a layer's number.
ROOT = {"model.embed_tokens.weight", "model.norm.weight"}
LAYER = {f"model.layers.*.{n}.weight" for n in ("input_layernorm", "post_attention_layernorm")}
LAYER |= {f"model.layers.*.{n}.weight" for n in ("self_attn.qkv_proj", "self_attn.o_proj")}
LAYER |= {f"model.layers.*.mlp.{n}.weight" for n in ("gate_up_proj", "down_proj")}
BLOCK = {f"transformer.h.*.{n}.{leaf}" for n in ("ln_1", "ln_2") for leaf in ("weight", "bias")}
BLOCK |= {f"transformer.h.*.attn.{n}.{leaf}" for n in ("c_attn", "c_proj") for leaf in ("weight", "bias")}
BLOCK |= {f"transformer.h.*.mlp.{n}.{leaf}" for n in ("c_fc", "c_proj") for leaf in ("weight", "bias")}
EXPECTED: dict[str, tuple[str, set[str]]] = {
    "llama": ("LlamaForCausalLM", ROOT | LAYER | {"lm_head.weight"}),
    "mistral": ("MistralForCausalLM", ROOT | LAYER | {"lm_head.weight"}),
    "qwen3": ("Qwen3ForCausalLM", ROOT | LAYER | {f"model.layers.*.self_attn.{n}_norm.weight" for n in "qk"}),
    "gpt2": (
        "GPT2LMHeadModel",
        BLOCK | {f"transformer.{n}.weight" for n in ("wte", "wpe", "ln_f")} | {"transformer.ln_f.bias"},
    ),
}


def as_vllm_maps(names: set[str]) -> set[str]:
    """Names after the loaders' stacking; a piece whose siblings are missing would leave a weight half filled."""
    found = set()
    for name in names:
        for whole, pieces in STACKED:
            for piece in pieces:
                if f".{piece}." in name:
                    assert all(name.replace(piece, other) in names for other in pieces), name
                    name = name.replace(piece, whole)
        found.add(re.sub(r"\.\d+\.", ".*.", name))
    return found


@pytest.mark.parametrize("adapter", [None, {"rank": 2}], ids=["whole", "adapter"])
@pytest.mark.parametrize("kind", SHAPES)
def test_vllm_finds_the_weights_and_settings_of_the_architecture(
    kind: str, adapter: dict[str, Any] | None, tmp_path: Path
) -> None:
    policy = made(kind, "bfloat16", adapter=adapter)
    policy.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    architecture, names = EXPECTED[kind]
    assert config["architectures"] == [architecture]
    weights = load_file(tmp_path / "model.safetensors")
    assert as_vllm_maps(set(weights)) == names
    assert {w.dtype for w in weights.values()} == {torch.bfloat16}
    assert config["dtype"] == "bfloat16"
    if kind != "gpt2":
        read = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers")
        assert [config[name] for name in read] == [16, 32, 2, 1, 2]
        assert config["hidden_act"] == "silu"
        assert config["rope_parameters"]["rope_theta"] > 0
        assert weights["model.layers.1.mlp.down_proj.weight"].shape == (16, 32)
    else:  # the loader turns these round
        assert weights["transformer.h.1.mlp.c_fc.weight"].shape == (16, 64)
        assert config["scale_attn_by_inverse_layer_idx"] is config["reorder_and_upcast_attn"] is False
    table = "transformer.wte.weight" if kind == "gpt2" else "model.embed_tokens.weight"
    assert config["vocab_size"] == len(policy.tokenizer) == len(weights[table])


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]], ids=str)
def test_vllm_takes_the_adapter(targets: Any, tmp_path: Path) -> None:
    """The fields of its PEFT helper, nothing that it refuses, and names that lead to maps of the model."""
    policy = made("qwen3", "bfloat16", adapter={"rank": 8, "alpha": 4, "targets": targets})
    save_adapter(policy.model, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["task_type"]) == ("LORA", "CAUSAL_LM")
    assert (config["r"], config["lora_alpha"], config["bias"]) == (8, 4, "none")
    assert not config["modules_to_save"]
    assert not config["use_dora"]
    assert config["base_model_name_or_path"] == "some/base"
    every = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(config["target_modules"]) == (every if targets == "all-linear" else set(targets))
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in load_file(tmp_path / "adapter_model.safetensors").items():
        place = re.fullmatch(r"base_model\.model\.(.*)\.(lora_[AB])\.weight", name)
        assert place is not None, name
        found.setdefault(place[1], {})[place[2]] = tensor
    assert {place.rpartition(".")[2] for place in found} == set(config["target_modules"])
    assert len(found) == 2 * len(config["target_modules"])
    for place, sides in found.items():
        weight = policy.model.get_submodule(place).weight
        assert sides["lora_A"].shape == (8, weight.shape[1])
        assert sides["lora_B"].shape == (weight.shape[0], 8)
