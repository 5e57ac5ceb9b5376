"""A stage that is held to a soup of two others: its log-probabilities are those of the mean of the saved weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_named_policies import batches_of
from test_stage_starts import RL, SFT, staged
from transformers import AutoModelForCausalLM

from polopt.config import ConfigError
from polopt.training.launch import train

SALSA = RL | {"method": {"name": "salsa"}, "start": {"stage": "a"}}


def test_the_soup_is_the_mean_of_the_saved_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {}
    for last in ("a", "b"):
        stages = {"a": SFT} if last == "a" else {"a": SFT, "b": SFT | {"start": "initial"}}
        ends[last] = train(staged(**stages), tmp_path / last).folder / "policy"
    soup = {"average": [{"stage": "a"}, {"stage": "b"}], "weights": [0.25, 0.75]}
    made = staged(a=SFT, b=SFT | {"start": "initial"}, rl=SALSA | {"policies": {"soup": soup}})
    batch = batches_of(made, tmp_path / "run", monkeypatch)[-1]
    one, other = (load_file(folder / "model.safetensors") for folder in ends.values())
    assert any(not torch.equal(one[name], other[name]) for name in one)  # each stage has an order of its own
    model = AutoModelForCausalLM.from_pretrained(ends["a"])
    model.load_state_dict({name: 0.25 * one[name] + 0.75 * other[name] for name in one}, strict=False)
    tokens = batch.extras["tokens"]
    logits = model(input_ids=tokens.clamp(min=0), attention_mask=(tokens >= 0).long()).logits.log_softmax(-1)
    said = logits[:, :-1].gather(2, tokens[:, 1:].clamp(min=0)[..., None])[..., 0]
    expected = torch.nn.functional.pad(said, (1, 0)).detach()
    torch.testing.assert_close(batch.extras["soup_logp"][batch.mask], expected[batch.mask], atol=1e-5, rtol=1e-5)


def test_a_stage_without_a_soup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reads extras\.soup_logp, and the stage names no policy soup"):
        train(staged(a=SFT, rl=SALSA), tmp_path / "run")
