"""Where a model may lie: folders, GGUF files, installed packages; and what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from polopt.config import ConfigError
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.policies.places import ModelPlace, place_of
from polopt.policies.preflight import load_policy

gguf = pytest.importorskip("gguf")
pytest.importorskip("accelerate")

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=261,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
    )
    return LlamaForCausalLM(config).eval()


def swapped(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows as llama.cpp has them: the two numbers that are rotated together stand side by side."""
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def write_gguf(path: Path, model: Any, architecture: str = "llama") -> None:
    config, state = model.config, model.state_dict()
    file = gguf.GGUFWriter(path, architecture)
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(config.num_hidden_layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_freq_base(10000.0)
    file.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    file.add_vocab_size(config.vocab_size)
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "ab", "bc"]
    kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * 258
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("smollm")
    file.add_token_list(tokens)
    file.add_token_types(kinds)
    file.add_token_merges(["a b", "b c"])
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_chat_template(TEMPLATE)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    file.add_tensor("token_embd.weight", state["model.embed_tokens.weight"].numpy())
    file.add_tensor("output_norm.weight", state["model.norm.weight"].numpy())
    for layer in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            weight = state[f"model.layers.{layer}.{ours}.weight"]
            weight = swapped(weight, heads[theirs]) if theirs in heads else weight
            file.add_tensor(f"blk.{layer}.{theirs}.weight", weight.contiguous().numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_gguf(path, tiny())
    return path


def test_a_gguf_file_is_the_model_that_was_written(file: Path) -> None:
    policy = load_policy(str(file), dtype="float64")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(policy.model(ids).logits, tiny().double()(ids).logits, rtol=1e-5, atol=1e-6)
    assert policy.decoder is not None
    assert policy.stop == {2}
    assert (policy.tokenizer.bos_token, policy.tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert policy.context_length == 64
    opening = Dialogue(policy.tokenizer).opening("Hi")
    assert opening[0] == 1
    assert policy.tokenizer.decode(opening) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_folder_with_one_is_that_one_and_with_two_none(file: Path) -> None:
    assert place_of(file.parent) == ModelPlace(str(file.parent), "tiny.gguf")
    other = file.with_name("other.gguf")
    other.write_bytes(file.read_bytes())
    try:
        with pytest.raises(ConfigError, match=r"policy.model is a folder with 2 GGUF files, other.gguf, tiny.gguf; na"):
            place_of(file.parent, "policy.model")
    finally:
        other.unlink()


def test_a_saved_policy_is_a_folder_like_any_other(file: Path, tmp_path: Path) -> None:
    policy = load_policy(str(file), dtype="float32")
    policy.save(tmp_path / "saved")
    again = LanguagePolicy.load(tmp_path / "saved")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(again.model(ids).logits, policy.model(ids).logits)
    assert again.stop == policy.stop
    assert again.tokenizer.chat_template == TEMPLATE
    text = "What is 12 + 345?\n  Hm…"
    assert again.tokenizer(text)["input_ids"] == policy.tokenizer(text)["input_ids"]
    assert again.tokenizer.decode(again.tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_a_file_of_a_package_is_found_without_importing_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "tiny.gguf").write_bytes(file.read_bytes())
    monkeypatch.syspath_prepend(tmp_path)
    assert place_of("package:some_weights/tiny.gguf") == ModelPlace(str(package), "tiny.gguf")
    for name, sentence in {
        "package:some_weights/large.gguf": r"the installed package some_weights has no file large.gguf",
        "package:llm_smollm3/x.gguf": r"the package llm_smollm3 is not installed; install it, or",
        "package:some_weights": r"write package:NAME/FILE",
        "package:some_weights/../x.gguf": r"write package:NAME/FILE",
    }.items():
        with pytest.raises(ConfigError, match=sentence):
            place_of(name, "policy.model")


def test_what_holds_no_model_is_one_sentence(file: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange.gguf"
    write_gguf(strange, tiny(), architecture="llamb")
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(file.read_bytes()[:2000])
    text = tmp_path / "text.gguf"
    text.write_text("a model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "config").mkdir()
    tiny().config.save_pretrained(tmp_path / "config")
    for path, sentence in {
        strange: "cannot be loaded: .*architecture llamb",
        torn: "cannot be loaded: ",
        text: "text.gguf is no GGUF file",
        tmp_path / "missing.gguf": "there is no file .*missing.gguf",
        tmp_path / "empty": "neither a config.json nor a GGUF file",
        tmp_path / "config": "cannot be loaded: .*(model.safetensors|weights|tokenizer)",
    }.items():
        with pytest.raises(ConfigError, match=sentence) as found:
            load_policy(str(path), dtype="float32")
        assert "\n" not in str(found.value)
