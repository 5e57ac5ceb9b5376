"""Whole runs on a device that is not the CPU: nothing mixes tensors of two devices, and the result is the CPU's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from far_device import MixedDevices, far_device, plain_adam, waits
from tiny_runs import DIGITS, GUESS, MODEL, Stop, StopAt, lines

from polopt.config import ConfigError, parse
from polopt.training.estimate import estimate
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import resume, train

GPT2 = {**MODEL, "tie_word_embeddings": False}  # what moves there is a new parameter, so none can be tied
QWEN3 = {
    "model_type": "qwen3",
    "attention_bias": True,
    "head_dim": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
}
RUNS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "kl, turns": (QWEN3, GUESS, {"method": {"name": "grpo", "kl": 0.1}, "group": 4, "epochs": 2}),
    "critic": (GPT2, GUESS, {"method": "ppo", "group": 4}),
    "greedy baseline": (GPT2, DIGITS, {"method": "remax"}),
    "memory": (GPT2, DIGITS, {"method": {"name": "remix", "group": 2, "kl": 0.0}, "epochs": 2}),
    "cuts": (GPT2, GUESS, {"method": {"name": "spo", "rollouts": 2}, "group": 4}),
    "branches": (GPT2, GUESS, {"method": {"name": "spo-tree", "factors": (2, 2), "window": 2}}),
    "windows": (GPT2, GUESS, {"method": {"name": "t-ppo", "window": 2}}),
    "two anchors": (GPT2, DIGITS, {"method": {"name": "remix", "group": 2, "restart": 2}}),
    "filters": (GPT2, DIGITS, {"method": "dapo", "group": 4}),
    "temperatures": (QWEN3, GUESS, {"method": "hapo", "group": 4, "epochs": 2, "micro_rows": 3}),
    "drawn tokens": (GPT2, DIGITS, {"method": {"name": "clip-cov-kl-cov", "share": 0.1, "least": 0.0}, "group": 4}),
    "vocabulary": (
        GPT2,
        DIGITS,
        {"method": {"name": "steer", "score": "exact", "weight": 0.2}, "group": 4, "micro_rows": 3},
    ),
    "truncated support": (
        GPT2,
        DIGITS,
        {"method": "rloo", "group": 4, "but": {"sampling.support": {"top_k": 3, "top_p": 0.9}}},
    ),
    "rows and decisions": (GPT2, DIGITS, {"method": {"name": "d3s", "tokens": [0.5, 1.0], "steps": 2}, "group": 4}),
    "best and another": (GPT2, DIGITS, {"method": {"name": "pf-ppo", "worst": 0, "others": 1}, "group": 4}),
    "resampled": (
        GPT2,
        DIGITS,
        {"method": "dr-grpo", "group": 4, "but": {"select": [{"part": "sampling.ResampledRows"}]}},
    ),
    "turns": (GPT2, GUESS, {"method": "empg", "group": 4}),
    "answers": (GPT2, DIGITS, {"method": {"name": "seed-grpo", "alpha": 0.5}, "group": 4}),
    "prompts": (GPT2, DIGITS, {"method": "progrpo", "group": 4}),
    "taught": (
        QWEN3,
        DIGITS,
        {
            "method": {"name": "srpo-routing", "top": 5},
            "group": 4,
            "but": {
                "sampling.support": {"top_k": 6},
                "teacher.hint.right.threshold": 0.02,
                "teacher.chosen_by": "policy",
                "objective.routes.0.rows.below": 0.02,
                "objective.routes.1.rows.below": 0.02,
            },
        },
    ),
    "layers": (QWEN3, DIGITS, {"method": {"name": "bupo", "batches": 9}, "group": 4}),
    "values": (GPT2, DIGITS, {"method": "rover", "group": 4, "epochs": 2}),
    "chosen tasks": (
        GPT2,
        DIGITS,
        {"method": "vade", "group": 4, "but": {"sampling.budget": {"part": "methods.knapsack_rl.KnapsackAllocator"}}},
    ),
    "beginnings": (
        GPT2,
        DIGITS,
        {"method": {"name": "pope", "most": 1.0, "checkpoints": 2, "tries": 2, "moving": True}, "group": 4},
    ),
    "hidden rules": (GPT2, DIGITS, {"method": {"name": "policyrollout", "rules": " even 2"}, "group": 4}),
    "second tries": (
        GPT2,
        GUESS,
        {"method": {"name": "rex-rag", "texts": ["2", "4 "], "chance": 1.0, "keep": 1.0, "kl": 0.0}, "group": 4},
    ),
    "second tries, rows": (
        QWEN3,
        DIGITS,
        {
            "method": {"name": "rex-rag", "texts": ["2"], "chance": 0.5, "kept": 0.5, "correct": "row", "kl": 0.0},
            "group": 4,
        },
    ),
    "solutions": (
        GPT2,
        DIGITS,
        {"method": {"name": "tempsamp-r1", "way": "anchored", "kl": 0.0}, "group": 4, "micro_rows": 3},
    ),
    "measured tasks": (GPT2, GUESS, {"method": {"name": "vas", "rollouts": 2, "every": 2, "kl": 0.0}, "group": 4}),
    "predicted tasks": (GPT2, DIGITS, {"method": {"name": "v0", "least": 2}, "group": 4}),
    "predicted baselines": (GPT2, DIGITS, {"method": {"name": "v0.5", "most": 5, "cost": 0.0}, "group": 2}),
    "measured budgets": (GPT2, DIGITS, {"method": {"name": "gvm", "first": 2, "block": "wte"}, "group": 4}),
}


WARMUP = 2
# Their rewards or losses hold a KL term, or a regression on the policy itself, that is 0 but for rounding, and what is
# learnt from it is rounding as well.
SENSITIVE = {
    "kl, turns",
    "critic",
    "greedy baseline",
    "two anchors",
    "best and another",
    "values",
    "truncated support",
}


def the_recipe(name: str, device: str) -> LanguageRecipe:
    model, tasks, stage = RUNS[name]
    data = {
        "threads": 1,
        "device": device,
        "policy": {"config": model, "checkpointing": True, "dtype": "float64"},
        "tasks": tasks,
        "limit": 4,
        "stages": {
            "warmup": {"method": "sft", "steps": WARMUP, "rows": 8},
            "rl": {"steps": 3, "rows": 8, "minibatches": 2, "micro_rows": 3, **stage},
        },
        "evaluation": {"problems": 4, "quick": 2, "every": 2, "samples": 2, "k": (2,)},
        "checkpoint": 1,
    }
    return parse(LanguageRecipe, data, "test")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_elsewhere_is_the_run_here(name: str, tmp_path: Path) -> None:
    """Warm-up, evaluations, checkpoints, a resumed optimiser; moved nowhere by accident."""
    with plain_adam(), far_device():
        with pytest.raises(Stop):
            train(the_recipe(name, "meta"), tmp_path / "far", watchers=(StopAt(3),))
        resume(tmp_path / "far")
        assert waits["item"] > 0
    same_as_here(name, tmp_path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that CUDA knows")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_a_gpu_is_the_run_here(name: str, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(the_recipe(name, "cuda"), tmp_path / "far", watchers=(StopAt(3),))
    resume(tmp_path / "far")
    same_as_here(name, tmp_path)


def same_as_here(name: str, tmp_path: Path) -> None:
    """The log of the run in the folder "far" is that of the same run on the CPU."""
    with plain_adam():
        train(the_recipe(name, "cpu"), tmp_path / "near")
    far, near = (lines(tmp_path / where, "metrics") for where in ("far", "near"))
    assert len(far) == len(near) == 5
    for a, b in list(zip(far, near, strict=True))[: WARMUP if name in SENSITIVE else None]:
        for key, value in b.items():
            assert a[key] == (pytest.approx(value, rel=1e-5, abs=1e-7) if isinstance(value, float) else value), key


def test_an_estimate_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline's own memory goes along."""
    monkeypatch.setitem(RUNS, "baseline", (GPT2, DIGITS, {"method": "reinforce-baseline"}))
    with plain_adam(), far_device():
        assert estimate(the_recipe("baseline", "meta"), seconds=0.1).steps["rl"].low > 0


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there(device: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"device = '{device}' cannot be used here: .*; take cpu"):
        train(the_recipe("filters", device), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_far_device_refuses_to_mix() -> None:
    with far_device():
        far, near = torch.arange(3.0, device="meta"), torch.arange(3.0)
        assert (far * 2 + torch.tensor(1.0)).tolist() == [1, 3, 5]
        assert far[torch.tensor([2])].tolist() == [2]
        assert (far + near.to("meta")).cpu().tolist() == [0, 2, 4]
        with pytest.raises(MixedDevices, match=r"far \[3\], near \[3\]"):
            _ = far + near
        with pytest.raises(MixedDevices):
            near[:2] *= far[:2]
