"""The gradient of verl's own actor with our losses, against one loss over the whole batch outside of verl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import polopt as po
from polopt.bridges.verl_config import config

METHODS = ("grpo", "dapo", "dr-grpo", "conciser")
ROWS, PROMPT, ANSWER = 8, 3, 6


def batch() -> dict[str, torch.Tensor]:
    """As verl's trainer holds one: prompts padded on the left, answers on the right, some with another's words inside.
    The answer and the reference are told; rewards stand on an answer's last token."""
    draw = torch.Generator().manual_seed(3)
    prompts, responses = (torch.randint(1, 32, (ROWS, n), generator=draw) for n in (PROMPT, ANSWER))
    length = torch.tensor([6, 2, 4, 1, 5, 6, 3, 2])
    attention = torch.cat([torch.ones(ROWS, PROMPT), (torch.arange(ANSWER) < length[:, None]).float()], 1).long()
    attention[::3, 0] = 0
    mask = attention[:, PROMPT:].clone()
    mask[0, 2:4] = 0
    mask[5, 1] = 0
    mask[3] = 0  # as of a row that verl rejected
    reward = torch.zeros(ROWS, ANSWER)
    reward[torch.arange(ROWS), length - 1] = torch.tensor([1.0, 0, 0, 1, 1, 1, 0, 1])
    old, ref = (-3.4 + 0.1 * torch.randn(ROWS, ANSWER, generator=draw) for _ in range(2))
    return {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses], 1),
        "attention_mask": attention,
        "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
        "response_mask": mask,
        "token_level_scores": reward,
        "token_level_rewards": reward,
        "old_log_probs": old,
        "ref_log_prob": ref,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    # Here, as it takes seconds that most processes of the tests need not spend.
    trainers = "verl.trainer.ppo.ray_trainer"
    pytest.importorskip(trainers, exc_type=ImportError, reason="verl's trainers need more than verl")
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("verl")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    Qwen2ForCausalLM(
        Qwen2Config(vocab_size=32, num_key_value_heads=2, tie_word_embeddings=False, **sizes)
    ).save_pretrained(folder / "model")
    uid = np.array(list("aaaabbbb"), dtype=object)
    torch.save({"tensors": batch(), "uid": uid}, folder / "batch.pt")
    for method in METHODS:
        (folder / f"{method}.yaml").write_text(yaml.safe_dump(config(method)))
    return folder


def verl(folder: Path, world: int, micro: int) -> dict:
    here = Path(__file__).parent
    path = [here, here.parent, Path(po.__file__).parents[1], os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(here / "verl_worker.py"), str(folder), str(world), str(micro)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return torch.load(folder / f"{world}-{micro}.pt", weights_only=False)


@pytest.fixture(scope="module")
def told(folder) -> dict:
    """(gradient, log-probabilities) of each method over the whole batch, outside of verl."""
    from transformers import Qwen2ForCausalLM

    model, held = Qwen2ForCausalLM.from_pretrained(folder / "model", attn_implementation="eager"), batch()
    mask, found = held["response_mask"].bool(), {}
    for method in METHODS:
        model.zero_grad()
        logits = model(held["input_ids"], held["attention_mask"], held["position_ids"]).logits.log_softmax(-1)
        logp = logits[:, PROMPT - 1 : -1].gather(2, held["responses"][..., None])[..., 0]
        entropy = -(logits.exp() * logits).sum(-1)[:, PROMPT - 1 : -1]
        outcome = held["token_level_rewards"].sum(1)
        experience = po.Experience(
            mask=mask,
            rollout_logp=held["old_log_probs"],
            ref_logp=held["ref_log_prob"],
            group=torch.arange(ROWS) // 4,
            outcome=outcome,
            horizon=ANSWER,
        )
        algorithm = po.method(method)
        experience = algorithm.with_advantages(experience)
        algorithm.objective(experience, po.Evaluation(logp=logp, entropy=entropy)).loss.backward()
        found[method] = {n: p.grad.clone() for n, p in model.named_parameters()}, logp.detach()
    return found


def test_gradient_of_verls_actor(folder, told):
    """Two processes, each with as many rows at a time as are 20 tokens; some rows hold others' words."""
    ran = verl(folder, world=2, micro=0)
    half, mask = ROWS // 2, batch()["response_mask"].bool()
    for method, (gradient, logp) in told.items():
        torch.testing.assert_close(ran[method]["logp"][mask[:half]], logp[:half][mask[:half]], rtol=1e-5, atol=1e-6)
        assert max(g.abs().max() for g in gradient.values()) > 1e-3
        for name, expected in gradient.items():
            torch.testing.assert_close(ran[method]["gradient"][name], expected, rtol=1e-4, atol=1e-6, msg=name)
        assert "actor/polopt/clip_fraction" in ran[method]["metrics"]
