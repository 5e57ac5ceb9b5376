"""The adapter that DPO trained, in other hands: PEFT, TRL's DPOTrainer, and the rules of vLLM's loader."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_runs import policy, recipe
from torch import Tensor

from polopt.training.launch import train
from polopt.training.run import Run

peft = pytest.importorskip("peft")

LLAMA = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA |= {"intermediate_size": 32, "max_position_embeddings": 64, "initializer_range": 0.2}
ANSWERS = ("0", "22", "even", "it is 4", "6!")
ROWS = [
    {"prompt": f"even {i} ", "chosen": ANSWERS[i % 5], "rejected": ANSWERS[(i + 1 + i // 5) % 5]}
    for i in range(20)
    if (1 + i // 5) % 5
]
RANK, ALPHA = 4, 6


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A base, and a run of DPO that trained an adapter of it."""
    folder = tmp_path_factory.mktemp("dpo")
    policy("float32", config=LLAMA).save(folder / "base")
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    settings = recipe(
        policy={"model": str(folder / "base"), "adapter": {"rank": RANK, "alpha": ALPHA}},
        tasks={"kind": "pairs", "path": str(folder / "pairs.jsonl"), "heldout": 0.2},
        stages={"dpo": {"method": "dpo", "steps": 6, "rows": 16, "optimiser": {"lr": 0.03}}},
    )
    train(settings, folder / "run")
    return folder / "base", folder / "run"


def ids_of(tokenizer: Any, row: dict[str, str], side: str) -> tuple[list[int], list[int]]:
    """Prompt and answer with its stop token, by the tokenizer and its chat template alone."""
    ask = [{"role": "user", "content": row["prompt"]}]
    text = tokenizer.apply_chat_template(ask, add_generation_prompt=True, tokenize=False)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    return prompt, [*tokenizer(row[side], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


@torch.no_grad()
def summed(model: Any, tokenizer: Any, rows: list[dict[str, str]], side: str) -> Tensor:
    """The log-probability of each row's answer, one forward pass each."""
    found = []
    for row in rows:
        prompt, answer = ids_of(tokenizer, row, side)
        logits = model(input_ids=torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        found.append(logits[len(prompt) - 1 : -1].gather(1, torch.tensor(answer)[:, None]).sum())
    return torch.stack(found)


def loaded(trained: tuple[Path, Path], **how: Any) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, run = trained
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return peft.PeftModel.from_pretrained(plain, run / "adapter", **how), AutoTokenizer.from_pretrained(base)


def test_peft_has_the_policys_log_probabilities(trained: tuple[Path, Path]) -> None:
    """Those of the saved policy, whose adapter is merged, and of none but it."""
    from transformers import AutoModelForCausalLM

    model, tokenizer = loaded(trained)
    merged = AutoModelForCausalLM.from_pretrained(trained[1] / "policy", dtype=torch.float32)
    for side in ("chosen", "rejected"):
        own = summed(model, tokenizer, ROWS, side)
        torch.testing.assert_close(own, summed(merged, tokenizer, ROWS, side), atol=1e-5, rtol=0)
        with model.disable_adapter():
            assert (summed(model, tokenizer, ROWS, side) - own).abs().max() > 0.1
    assert [e["when"] for e in Run(trained[1]).read("evaluations")][-1] == "after"


def test_trls_trainer_goes_on_from_the_adapter(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """Its first step has our log-probabilities and a margin of 0, as its reference is the adapter as it was; then the
    adapter alone moves, and what it saves is read again."""
    trl = pytest.importorskip("trl", minversion="1.16")
    from datasets import Dataset

    model, tokenizer = loaded(trained, is_trainable=True)
    rows = ROWS[:4]
    talk = [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            **{side: [{"role": "assistant", "content": row[side]}] for side in ("chosen", "rejected")},
        }
        for row in rows
    ]
    settings = trl.DPOConfig(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=4,
        max_steps=2,
        learning_rate=0.01,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
    )
    own = {side: summed(model, tokenizer, rows, side).mean() for side in ("chosen", "rejected")}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = trl.DPOTrainer(
        model=model, args=settings, train_dataset=Dataset.from_list(talk), processing_class=tokenizer
    )
    trainer.train()
    first = trainer.state.log_history[0]
    for side, expected in own.items():
        assert first[f"logps/{side}"] == pytest.approx(float(expected), abs=1e-5)
    assert first["rewards/margins"] == pytest.approx(0, abs=1e-6)
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-4)
    moved = {name for name, p in model.named_parameters() if name in before and not torch.equal(p, before[name])}
    assert moved
    assert all("lora_" in name and ".ref." not in name for name in moved)
    trainer.save_model(str(tmp_path / "saved"))
    place = next(path.parent for path in (tmp_path / "saved").rglob("adapter_config.json"))
    back = peft.PeftModel.from_pretrained(model.unload(), place)
    assert set(back.peft_config["default"].target_modules) == MAPS
    after = summed(back, tokenizer, rows, "chosen") - summed(back, tokenizer, rows, "rejected")
    assert float(after.mean()) > float(own["chosen"] - own["rejected"])


# --max-lora-rank of vLLM.
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# The linear maps of a Llama that vLLM stacks into wider ones, or takes as they are.
MAPS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def refused_by_vllm(folder: Path, max_rank: int = 8) -> list[str]:
    """What vLLM's loader of adapters would refuse or lose, after its sources: the helper of PEFT's configuration, the
    names of weights, and the shapes that its layers have room for."""
    config = json.loads((folder / "adapter_config.json").read_text())
    found = [f"no {name}" for name in ("r", "lora_alpha", "target_modules") if config.get(name) is None]
    if config.get("modules_to_save"):
        found.append("modules_to_save")
    if config.get("use_dora"):
        found.append("DoRA")
    if config.get("bias", "none") != "none":
        found.append("bias")
    if config.get("trainable_token_indices"):
        found.append("trainable tokens")
    ranks = [config.get("r") or 0, *(config.get("rank_pattern") or {}).values()]
    if max_rank not in RANKS or max(ranks) > max_rank:
        found.append("rank")
    if not (folder / "adapter_model.safetensors").is_file():
        return [*found, "no tensors"]
    sides: dict[str, dict[str, Tensor]] = {}
    for name, tensor in load_file(folder / "adapter_model.safetensors").items():
        place = re.fullmatch(r"base_model\.model\.(.+)\.(lora_A|lora_B)\.weight", name)
        if place is None or place[1].rpartition(".")[2] not in MAPS:
            found.append(f"name {name}")
        else:
            sides.setdefault(place[1], {})[place[2]] = tensor
    for place, pair in sides.items():
        if set(pair) != {"lora_A", "lora_B"}:
            found.append(f"half of {place}")
        elif not pair["lora_A"].shape[0] == pair["lora_B"].shape[1] == config.get("r"):
            found.append(f"rank of {place}")
    return found


def test_vllms_loader_has_nothing_to_refuse(trained: tuple[Path, Path]) -> None:
    """The loader itself is not run; with its scale and the base's weights the sum is the policy."""
    base, run = trained
    assert refused_by_vllm(run / "adapter") == []
    config = json.loads((run / "adapter" / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("use_rslora") else config["r"])
    weights = load_file(run / "adapter" / "adapter_model.safetensors")
    given, kept = load_file(base / "model.safetensors"), load_file(run / "policy" / "model.safetensors")
    names = {name.split(".lora_")[0] for name in weights}
    assert len(names) == 2 * len(MAPS)
    for name in names:
        a, b = (weights[f"{name}.lora_{side}.weight"].float() for side in "AB")
        weight = f"{name.removeprefix('base_model.model.')}.weight"
        torch.testing.assert_close(given[weight] + scale * b @ a, kept[weight], atol=1e-6, rtol=0)
    others = {name for name in kept if name not in {f"{n.removeprefix('base_model.model.')}.weight" for n in names}}
    assert all(torch.equal(given[name], kept[name]) for name in others if name in given)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"r": None}, "no r"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"use_dora": True}, "DoRA"),
        ({"bias": "all"}, "bias"),
        ({"rank_pattern": {"q_proj": 16}}, "rank"),
        ("base_model.model.lm_head.lora_A.weight", "name base_model.model.lm_head.lora_A.weight"),
        ("base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight", "half of model.layers.9.self_attn.q_proj"),
    ],
)
def test_the_rules_can_refuse(
    change: dict[str, Any] | str, fault: str, trained: tuple[Path, Path], tmp_path: Path
) -> None:
    config = json.loads((trained[1] / "adapter" / "adapter_config.json").read_text())
    weights = load_file(trained[1] / "adapter" / "adapter_model.safetensors")
    if isinstance(change, str):
        weights[change] = torch.zeros(RANK, 16)
    else:
        config |= change
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    save_file(weights, tmp_path / "adapter_model.safetensors")
    assert fault in refused_by_vllm(tmp_path)
