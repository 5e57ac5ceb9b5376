"""Models of published shapes with random weights, whose answers always run to the token limit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.floors import Shape
from polopt.policies.chat_format import Dialogue
from polopt.policies.tokenizer import make_tokenizer
from polopt.worlds import build_tasks
from polopt.worlds.protocol import Tasks

# Qwen2.5's vocabulary as its models hold it, and what all their sizes share.
VOCABULARY = 151_936
QWEN2: dict[str, Any] = {
    "model_type": "qwen2",
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    # Small but for its vocabulary.
    "vocabulary": {
        "hidden_size": 128,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
}


def endless_tokenizer(texts: list[tuple[str, str, str]], stop: int) -> Any:
    """polopt's tokenizer for these texts, whose stop token is an id that the model has no row for: `stop`."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    made = make_tokenizer(texts)
    data = json.loads(made.backend_tokenizer.to_str())
    data["model"]["vocab"]["<never>"] = stop
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(data)),
        pad_token="<pad>",
        bos_token="<ask>",
        eos_token="<never>",
        unk_token="<unk>",
        additional_special_tokens=["<answer>"],
        chat_template=made.chat_template,
        clean_up_tokenization_spaces=False,
    )


def make(name: str, tasks: Tasks, folder: Path, *, device: str, dtype: str) -> dict[str, Any]:
    """A model and its tokenizer in a folder; its shape, for the floors."""
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = endless_tokenizer(
        [(t.kind, t.prompt, "0") for t in map(tasks.__getitem__, range(len(tasks)))], VOCABULARY
    )
    settings = {**QWEN2, **SHAPES[name], "bos_token_id": None, "eos_token_id": None}
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.generation_config.eos_token_id = VOCABULARY
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    dialogue = Dialogue(tokenizer)
    prompts = [len(dialogue.opening(tasks[i].prompt)) for i in range(len(tasks))]
    return Shape.of(model, prompt=sum(prompts) / len(prompts)).record()


if __name__ == "__main__":
    order = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(order["threads"])
    the_tasks = build_tasks(order["world"], seed=order["seed"]).train
    shape = make(order["name"], the_tasks, Path(order["folder"]), device=order["device"], dtype=order["dtype"])
    Path(sys.argv[2]).write_text(json.dumps(shape))
