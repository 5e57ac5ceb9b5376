"""The families of models that people train: a small one of each learns for two steps, and who reads it is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from polopt.config import parse
from polopt.policies.tokenizer import make_tokenizer
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import train

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
# Family -> (what transformers calls it, what is special about it, who computes it).
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "Qwen2.5": ("qwen2", {"tie_word_embeddings": True}, "polopt"),
    "Qwen3": ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}, "polopt"),
    "Llama 3": ("llama", {"rope_parameters": LLAMA3}, "polopt"),
    "SmolLM2": ("llama", {"tie_word_embeddings": True, "rope_theta": 100000.0}, "polopt"),
    "SmolLM3": ("smollm3", {"no_rope_layers": [1, 1, 1, 0], "pad_token_id": None}, "transformers"),
    "Mistral": ("mistral", {"head_dim": 8, "sliding_window": None}, "polopt"),
    "Mistral with a window": ("mistral", {"head_dim": 8, "sliding_window": 16}, "transformers"),
    "Phi 3": ("phi3", {"pad_token_id": None}, "transformers"),
    "Gemma 3": (
        "gemma3_text",
        {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16, "final_logit_softcapping": None},
        "transformers",
    ),
}
TASKS = [{"prompt": f"after {i}", "answer": str((i + 1) % 10)} for i in range(10)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_one_learns(family: str, tmp_path: Path) -> None:
    kind, special, forward = FAMILIES[family]
    tokenizer = make_tokenizer([("after", task["prompt"], task["answer"]) for task in TASKS])
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SMALL, **special}, vocab_size=len(tokenizer), **ids)
    folder = tmp_path / "model"
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    rl = {"method": "dr-grpo", "group": 8, "steps": 2, "rows": 32, "optimiser": {"lr": 1e-2}}
    recipe = {
        "threads": 1,
        "policy": {"model": str(folder)},
        "tasks": {"kind": "dataset", "path": str(tmp_path / "tasks.jsonl"), "heldout": 0.2, "verifier": "numeric"},
        "limit": 2,
        "stages": {"warmup": {"method": "sft", "steps": 8, "rows": 8, "optimiser": {"lr": 2e-2}}, "rl": rl},
        "evaluation": {"problems": 2},
    }
    run = train(parse(LanguageRecipe, recipe, "test"), tmp_path / "run")
    assert run.about["forward"] == forward
    steps = [record for record in run.read("metrics") if record["stage"] == "rl"]
    assert len(steps) == 2
    # Sampler and learner say the same of the same tokens, whoever computes them, and something was learned.
    assert all(record["mismatch/max"] < 1e-4 for record in steps)
    assert any(record.get("grad_norm", 0) > 0 for record in steps)
    before, after = (AutoModelForCausalLM.from_pretrained(at).state_dict() for at in (folder, run.folder / "policy"))
    assert any(not torch.equal(value, after[name]) for name, value in before.items())
