"""Advantages by the very method of verl's trainer that asks for them, with its queue's place taken by a dictionary."""

from __future__ import annotations

import types

import pytest
import torch
import yaml

import polopt as po

trainer_base = pytest.importorskip(
    "verl.trainer.ppo.v1.trainer_base", exc_type=ImportError, reason="verl's trainers need more than verl"
)

from omegaconf import OmegaConf  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from transfer_queue import KVBatchMeta as batch_of  # noqa: E402

from polopt.bridges import verl  # noqa: E402

WORDS = ["", "yes", "no", "perhaps", "so", "then", "<tool>"]
UID = list("aaabbbab")
LENGTH = [3, 1, 4, 2, 4, 3, 2, 4]
B, T = len(UID), max(LENGTH)


class Queue:
    """verl's TransferQueue, as far as it is asked: rows of their own lengths; fields that nobody put are left out."""

    def __init__(self, fields):
        self.fields, self.asked = fields, []

    def kv_batch_get(self, keys, partition_id, select_fields):
        assert (keys, partition_id) == ([f"{u}_{i}_0" for i, u in enumerate(UID)], "train")
        self.asked.append(select_fields)
        return TensorDict({k: self.fields[k] for k in select_fields if k in self.fields}, batch_size=B)

    def kv_batch_put(self, keys, partition_id, fields):
        self.fields |= dict(fields.items())


def nested(rows):
    return torch.nested.as_nested_tensor([row[:n] for row, n in zip(rows, LENGTH, strict=True)], layout=torch.jagged)


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    mask = torch.arange(T) < torch.tensor(LENGTH)[:, None]
    mask[2, 1] = mask[4, 2] = False
    normal = lambda: torch.randn(B, T, generator=draw)  # noqa: E731
    scores = torch.zeros(B, T)
    scores[torch.arange(B), torch.tensor(LENGTH) - 1] = torch.tensor([1.0, 0, 1, 1, 0, 0, 0, 1])
    responses = torch.randint(1, 6, (B, T), generator=draw).masked_fill(~mask, 6)
    return {
        "response_mask": mask,
        "rm_scores": scores,
        "responses": responses,
        **{name: normal() - 5 for name in ("old_log_probs", "rollout_log_probs", "ref_log_prob")},
        "values": normal(),
        "entropy": normal().abs(),
    }


def by_verl(method: str | po.Algorithm, batch, monkeypatch) -> tuple[torch.Tensor, torch.Tensor, Queue]:
    """(advantages, returns) [B, T] that the trainer leaves in its queue."""
    queue = Queue({name: nested(rows.long() if rows.dtype == torch.bool else rows) for name, rows in batch.items()})
    told = TensorDict({}, batch_size=B)
    told["uid"] = UID
    told["data_source"] = ["sums", "words"] * 4
    told["extra_fields"] = [{"reward_extra_info": {"flawed": float(i % 2), "needed": 1.0}} for i in range(B)]
    queue.fields |= {name: told.get(name) for name in ("uid", "data_source", "extra_fields")}
    monkeypatch.setattr(trainer_base, "tq", queue)
    written = verl.config(method, name=None if isinstance(method, str) else "gtalign")["algorithm"]
    written["polopt"]["horizon"] = 9
    algorithm = {"gamma": 1.0, "lam": 0.95, "rollout_correction": None, **written}
    decode = lambda ids, skip_special_tokens: " ".join(WORDS[i] for i in ids)  # noqa: E731
    trainer = types.SimpleNamespace(
        config=OmegaConf.create(yaml.safe_dump({"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 4}}})),
        tokenizer=types.SimpleNamespace(decode=decode),
    )
    keys = [f"{u}_{i}_0" for i, u in enumerate(UID)]
    trainer_base.PPOTrainer._compute_advantage(trainer, batch_of(keys=keys, tags=[{}] * B, partition_id="train"), {})
    found = (queue.fields[name].to_padded_tensor(0) for name in ("advantages", "returns"))
    return (*found, queue)


def without_verl(method: str | po.Algorithm, batch) -> po.Experience:
    mask = batch["response_mask"]
    answers = [" ".join(WORDS[i] for i in row[own].tolist()) for row, own in zip(batch["responses"], mask, strict=True)]
    turn = torch.zeros(B, T, dtype=torch.long)
    turn[2, 2:] = turn[4, 3:] = 1
    experience = po.Experience(
        mask=mask,
        rollout_logp=batch["old_log_probs"],
        ref_logp=batch["ref_log_prob"],
        value=batch["values"],
        entropy=batch["entropy"],
        outcome=batch["rm_scores"].sum(1),
        group=torch.tensor([ord(u) for u in UID]),
        terminated=torch.ones(B, dtype=torch.bool),
        turn=turn,
        horizon=9,
        extras={
            "answer": answers,
            "kind": ["sums", "words"] * 4,
            "signal_flawed": torch.tensor([0.0, 1.0] * 4),
            "signal_needed": torch.ones(B),
        },
    )
    return (po.method(method) if isinstance(method, str) else method).with_advantages(experience)


@pytest.mark.parametrize(
    "method",
    [
        "grpo",
        "dapo",
        "ppo",
        "rloo",
        "canon",
        "empg",
        "seed-grpo",
        "g2rpo",
        "fapo",
        "adacot",
        pytest.param(po.method("gtalign", blocks=False), id="gtalign"),  # these answers have no blocks
        "stratified-grpo",
    ],
)
def test_what_the_trainer_gets_is_the_methods_credit(method, batch, monkeypatch):
    """Values, reference, entropy, answers, kinds and signals come from the call or from the queue."""
    advantages, _, _ = by_verl(method, batch, monkeypatch)
    expected = without_verl(method, batch).advantage
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(advantages, expected, rtol=1e-5, atol=1e-5)


def test_the_critic_learns_by_the_sentences_returns(batch, monkeypatch):
    _, returns, _ = by_verl("ppo", batch, monkeypatch)
    credited = without_verl("ppo", batch)
    target = po.credit.GAE(gamma=1.0, lam=0.95)(credited)
    expected = torch.where(batch["response_mask"], target + batch["values"], 0)
    torch.testing.assert_close(returns, expected, rtol=1e-5, atol=1e-5)


def test_nothing_is_fetched_that_nobody_reads(batch, monkeypatch):
    _, _, queue = by_verl("gspo", batch, monkeypatch)
    assert len(queue.asked) == 1
