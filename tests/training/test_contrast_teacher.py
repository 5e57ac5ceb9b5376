"""A stage whose teacher is made of two named policies: its numbers are those of the saved models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_named_policies import batches_of
from test_stage_starts import RL, SFT, staged
from tiny_runs import outcome
from torch import Tensor
from transformers import AutoModelForCausalLM

from polopt.config import ConfigError
from polopt.training.launch import resume, train

METHOD = {"name": "aligndistil", "top": 8}


def law(folder: Path, tokens: Tensor) -> Tensor:
    """[B, T, V] log-probabilities at each token under the model in a folder, by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    logits = model(input_ids=tokens.clamp(min=0), attention_mask=(tokens >= 0).long()).logits.detach()
    return torch.nn.functional.pad(logits[:, :-1], (0, 0, 1, 0)).double().log_softmax(-1)


def test_the_teacher_is_that_of_the_saved_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = [train(staged(seed, sft=SFT), tmp_path / f"teacher{seed}").folder / "policy" for seed in (3, 4)]
    policies = {"dpo": {"model": str(two[0])}, "reverse": {"model": str(two[1])}}
    made = staged(sft=SFT, rl=RL | {"method": METHOD, "policies": policies})
    batch = batches_of(made, tmp_path / "run", monkeypatch)[-1]
    mask, ids = batch.mask, batch.extras["candidates"]
    assert mask.any()
    assert not {"dpo_logp", "reverse_logp"} & batch.extras.keys()  # no pass of their own
    p, q = (law(folder, batch.extras["tokens"])[mask] for folder in two)
    assert torch.equal(ids[mask].long(), p.topk(8, -1).indices)
    p, q = (x.gather(-1, ids[mask].long()) for x in (p, q))
    p, q = (torch.cat([x, torch.log1p(-x.exp().sum(-1, keepdim=True))], -1) for x in (p, q))
    weight = 15 * (p.exp() - q.exp()).abs().sum(-1) + 1e-3
    torch.testing.assert_close(batch.extras["extrapolation"][mask].double(), weight, atol=1e-4, rtol=1e-4)
    expected = (p + weight[:, None] * (p - q)).log_softmax(-1)[:, :-1].exp()
    torch.testing.assert_close(
        batch.extras["teacher_candidate_logp"][mask].double().exp(), expected, atol=1e-3, rtol=1e-2
    )
    assert outcome(tmp_path / "run") == outcome(resume(tmp_path / "run").folder)


def test_a_teacher_without_its_policies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"teachers\.ContrastTeacher reads extras\.dpo_logp, and the stage names no"):
        train(staged(sft=SFT, rl=RL | {"method": METHOD}), tmp_path / "run")
