"""Model folders that cannot be a policy are refused in one sentence, and those that can are not."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import BASE, OWN, tiny

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.policies.engine import NativeSpec
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import check_policy, check_turns, load_policy, warn_of_precision
from polopt.policies.tokenizer import make_tokenizer

CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer([("sum", "1 + 1 =", "2")])


@pytest.fixture
def folder(tmp_path: Path, tokenizer: Any) -> Path:
    """A tiny GPT-2 with its tokenizer."""
    tiny("gpt2", torch.float32, vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id).save_pretrained(
        tmp_path
    )
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def templated(template: str) -> Callable[[Path], None]:
    return lambda folder: _write(folder / "chat_template.jinja", template)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def small_embedding(folder: Path) -> None:
    tiny("gpt2", torch.float32, vocab_size=20).save_pretrained(folder)


def no_tokenizer(folder: Path) -> None:
    for path in [*folder.glob("*token*"), *folder.glob("*.jinja")]:
        path.unlink()


def no_stop(folder: Path) -> None:
    for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json", "generation_config.json"):
        path = folder / name
        if path.exists():
            path.write_text(path.read_text().replace('"eos_token', '"not_eos_token'))


def not_a_number(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.transformer.wte.weight.data[3] = torch.nan
    model.save_pretrained(folder)


def half_a_file(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


def bidirectional(folder: Path, **settings: Any) -> None:
    config = transformers.BertConfig(**{**BASE, "num_key_value_heads": 2, "vocab_size": 120, **settings})
    transformers.BertLMHeadModel(config).save_pretrained(folder)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (small_embedding, r"its tokenizer has \d+ tokens, and its embedding 20 rows"),
        (no_tokenizer, "its tokenizer reads no text"),
        (templated("{{ raise_exception('only system messages') }}"), "chat template raised .*only system messages"),
        (templated("hello"), "its chat template leaves the prompt out"),
        (no_stop, "its tokenizer has no eos_token, so no answer can ever end"),
        (not_a_number, "its logits are not finite"),
        (half_a_file, "cannot be loaded"),
        (bidirectional, "BertLMHeadModel is no causal language model"),
        (lambda folder: shutil.rmtree(folder), "no folder here"),
    ],
    ids=["embedding", "tokenizer", "template", "no prompt", "eos", "nan", "broken", "bert", "nothing"],
)
def test_a_folder_that_cannot_be_a_policy(
    folder: Path, spoil: Callable[[Path], None], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_policy(str(folder), dtype="float32")  # as it is, it can
    spoil(folder)
    with pytest.raises(ConfigError, match=sentence) as caught:
        load_policy(str(folder), dtype="float32")
    assert str(caught.value).startswith(f"policy.model = {str(folder)!r}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in OWN if kind != "mamba"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_every_decoder_passes(kind: str, dtype: torch.dtype, tokenizer: Any) -> None:
    model = tiny(kind, dtype, vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    policy = LanguagePolicy(model, tokenizer)
    check_policy(policy, "model")
    check_turns(policy, "model")
    NativeSpec().build(policy)


def test_bert_as_a_decoder_passes(folder: Path, tokenizer: Any) -> None:
    """The test is of what the model computes, not of its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoloptWarning)
        bidirectional(folder, is_decoder=True)
        assert load_policy(str(folder), dtype="float32").model.config.model_type == "bert"


def test_recurrent_layers_are_refused_before_sampling(tokenizer: Any) -> None:
    policy = LanguagePolicy(tiny("mamba", torch.float32, vocab_size=len(tokenizer)), tokenizer)
    with pytest.raises(ConfigError, match="MambaForCausalLM has recurrent layers"):
        NativeSpec().build(policy)


def test_a_template_that_cannot_go_on(folder: Path) -> None:
    once = "{% if messages|length > 1 %}{{ raise_exception('one message only') }}{% endif %}" + CHAT
    templated(once)(folder)
    policy = load_policy(str(folder), dtype="float32")
    with pytest.raises(ConfigError, match="one message only"):
        check_turns(policy, "model")
    policy.tokenizer.chat_template = "{{ messages[0].content }}"
    with pytest.raises(ConfigError, match="leaves out an answer, or what follows it"):
        check_turns(policy, "model")
    policy.tokenizer.chat_template = CHAT
    check_turns(policy, "model")


def test_demonstrations_that_do_not_end_get_a_word(folder: Path) -> None:
    config = transformers.GenerationConfig.from_pretrained(folder)
    config.eos_token_id = 7
    config.save_pretrained(folder)
    with pytest.warns(PoloptWarning, match="demonstrations end with the tokenizer's eos_token '<\|end\|>'"):
        load_policy(str(folder), dtype="float32")


@pytest.mark.parametrize(("stored", "dtype", "said"), [("bfloat16", "float32", 1), ("float32", "float32", 0)])
def test_another_precision_than_the_checkpoint_gets_a_word(folder: Path, stored: str, dtype: str, said: int) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, stored))
    model.save_pretrained(folder)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_precision(str(folder), dtype)
    sentences = [str(w.message) for w in found if w.category is PoloptWarning]
    assert len(sentences) == said
    assert all("is stored in bfloat16; it is loaded, trained and saved in float32" in s for s in sentences)


def test_a_name_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question, not one retry after the other."""
    import huggingface_hub

    asked: list[str] = []

    def unreachable(name: str, **_: Any) -> None:
        asked.append(name)
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "model_info", unreachable)
    with pytest.raises(ConfigError, match=r"'nobody/no-such-model' is no folder here.*hub cannot be reached"):
        load_policy("nobody/no-such-model", dtype="float32")
    assert asked == ["nobody/no-such-model"]


def test_a_downloaded_copy_is_used_without_a_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(name: str, **_: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "model_info", unreachable)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, local_files_only: str(folder))
    assert load_policy("somebody/model", dtype="float32").context_length == 64


@pytest.mark.parametrize(
    ("kind", "settings", "length"),
    [
        ("gpt2", {}, 64),
        ("bloom", {}, None),
        ("qwen2", {"max_position_embeddings": 16}, 16),
        (
            "llama",
            {
                "max_position_embeddings": 32,
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "original_max_position_embeddings": 32,
                },
            },
            128,
        ),
    ],
    ids=["learned", "alibi", "rotary", "scaled"],
)
def test_context_length(kind: str, settings: dict[str, Any], length: int | None, tokenizer: Any) -> None:
    model = tiny(kind, torch.float32, vocab_size=len(tokenizer), **settings)
    assert LanguagePolicy(model, tokenizer).context_length == length
