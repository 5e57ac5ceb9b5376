"""SkyRL calls the functions as here: keyword for keyword, with its division of advantages, ranks and micro-batches.

`Trainer` is written from SkyRL's source at a956457 (trainer.py, worker.py, ppo_utils.py) and shares nothing with
polopt; SkyRL itself needs packages that cannot be had here.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ragged import HORIZON, SPLITS, deal, experience, whole
from torch import Tensor

import polopt as po
from polopt import catalogue, index
from polopt.bridges import skyrl
from polopt.bridges.capabilities import BridgeError

DEFAULTS: dict[str, Any] = {
    "loss_reduction": "token_mean",
    "use_kl_loss": True,
    "kl_loss_coef": 0.001,
    "kl_estimator_type": "k3",
    "use_kl_in_reward": False,
    "use_entropy_loss": False,
    "advantage_batch_normalize": False,
    "max_seq_len": None,
    "dynamic_sampling": SimpleNamespace(type=None, max_sample_batches=30),
    "off_policy_correction": SimpleNamespace(
        tis_ratio_type=None,
        sequence_mask_metric=None,
        outlier_token_is_threshold_low=None,
        token_mask_is_threshold_low=None,
    ),
}


def config(overrides: dict[str, Any]) -> SimpleNamespace:
    """`trainer.algorithm` with these settings."""
    found = SimpleNamespace(**DEFAULTS)
    found.off_policy_correction = SimpleNamespace(**vars(DEFAULTS["off_policy_correction"]))
    for key, value in overrides.items():
        if key.startswith("trainer.algorithm."):
            place, *path = found, *key.removeprefix("trainer.algorithm.").split(".")
            for step in path[:-1]:
                place = getattr(place, step)
            setattr(place, path[-1], value)
    return found


@dataclasses.dataclass
class Trainer:
    """One optimiser step of SkyRL on one mini-batch."""

    cfg: SimpleNamespace
    estimator: Any
    policy_loss: Any

    def divided(self, advantages: Tensor, mask: Tensor) -> Tensor:
        kind, rows = self.cfg.loss_reduction, len(advantages)
        if kind == "token_mean":
            return advantages / mask.sum().clamp(min=1)
        if kind == "sequence_mean":
            return advantages / (rows * mask.sum(dim=-1, keepdim=True).clamp(min=1))
        assert kind == "seq_mean_token_sum_norm"
        return advantages / (rows * self.cfg.max_seq_len)

    def kl(self, log_probs: Tensor, base: Tensor, mask: Tensor) -> Tensor:
        away = base - log_probs
        per_token = {"k1": -away, "k2": 0.5 * away**2, "k3": away.exp() - away - 1}[self.cfg.kl_estimator_type]
        return ((per_token * mask).sum(-1) / mask.sum(-1)).mean()

    def gradient(self, batch: po.Experience, logp: Tensor, ranks: int, micro: int) -> Tensor:
        mask = batch.mask.long()
        rewards = torch.zeros_like(logp)
        rewards[torch.arange(len(batch)), batch.lengths - 1] = batch.outcome
        advantages, returns = self.estimator(
            token_level_rewards=rewards,
            response_mask=mask,
            index=[f"prompt-{number}" for number in batch.group.tolist()],
            values=None,
            grpo_norm_by_std=True,
            gamma=1.0,
            lambd=1.0,
            config=self.cfg,
        )
        assert advantages.shape == returns.shape == logp.shape
        advantages = self.divided(advantages, mask.to(logp))
        leaf = logp.clone().requires_grad_()
        for share in deal(len(batch), ranks, micro):
            count = sum(len(rows) for rows in share)
            for rows in share:
                loss, metrics = self.policy_loss(
                    leaf[rows],
                    batch.rollout_logp[rows],
                    advantages[rows],
                    config=self.cfg,
                    loss_mask=mask[rows].to(logp),
                    rollout_logprobs=None,
                )
                assert all(isinstance(value, float) for value in metrics.values())
                total = loss * ranks
                if self.cfg.use_kl_loss:
                    kl = self.kl(leaf[rows], batch.ref_logp[rows], mask[rows].to(logp))
                    total = total + self.cfg.kl_loss_coef * kl * len(rows) / count
                (total / ranks).backward()  # data parallelism takes the mean over ranks
        assert leaf.grad is not None
        return leaf.grad


RUN = [slug for slug in index.slugs("algorithm") if not skyrl.HOST.refusals(catalogue.method(slug))]


@pytest.mark.parametrize("slug", RUN)
def test_the_gradient_is_the_whole_batchs(slug: str) -> None:
    batch, logp = experience(seed=7)
    functions = (skyrl.advantage(slug, horizon=HORIZON), skyrl.loss(slug, horizon=HORIZON))
    trainer = Trainer(config(skyrl.overrides(slug, horizon=HORIZON)), *functions)
    expected = whole(catalogue.method(slug), batch, logp)
    assert expected.abs().max() > 0
    for ranks, micro in SPLITS:
        torch.testing.assert_close(trainer.gradient(batch, logp, ranks, micro), expected, rtol=1e-9, atol=1e-12)


def test_these_run() -> None:
    assert {"grpo", "dapo", "gspo", "dr-grpo", "cispo", "bnpo"} <= set(RUN)
    assert not {"ppo", "hapo", "clip-cov-kl-cov", "chord", "sft", "reinforce-baseline"} & set(RUN)


def theirs_grpo(rewards: Tensor, mask: Tensor, index: list[str]) -> Tensor:
    scores = rewards.sum(-1)
    found = torch.zeros_like(scores)
    for name in set(index):
        mine = torch.tensor([label == name for label in index])
        found[mine] = (scores[mine] - scores[mine].mean()) / (scores[mine].std() + 1e-6)
    return found[:, None] * mask


def test_advantages_are_those_of_their_grpo() -> None:
    batch, _ = experience(seed=1)
    rewards = torch.zeros_like(batch.rollout_logp)
    rewards[:, 0] = batch.outcome
    index = np.array([f"uid{number}" for number in batch.group.tolist()])
    found, _ = skyrl.advantage("grpo")(
        token_level_rewards=rewards, response_mask=batch.mask.long(), index=index, config=config({})
    )
    expected = theirs_grpo(rewards, batch.mask.double(), index.tolist())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)  # their 1e-6 beside the deviation


@pytest.mark.parametrize("sampler", ["trainer", "engine"])
def test_the_loss_is_their_gspo(sampler: skyrl.Sampler) -> None:
    """With bounds that act on some rows; in the engine's case the ratio is to its log-probabilities."""
    batch, logp = experience(seed=3)
    advantages = torch.randn(len(batch), 1, dtype=torch.float64).expand_as(logp) / 100
    method = {"name": "gspo", "low": 0.1, "high": 0.12}
    cfg, mask = config(skyrl.overrides(method)), batch.mask.double()
    leaf, engine = logp.clone().requires_grad_(), batch.ref_logp
    found, metrics = skyrl.loss(method, sampler=sampler)(
        leaf, batch.rollout_logp, advantages, config=cfg, loss_mask=mask, rollout_logprobs=engine
    )
    ours = torch.autograd.grad(found, leaf)[0]
    old = batch.rollout_logp if sampler == "trainer" else engine
    mean = (((leaf - old) * mask).sum(-1) / mask.sum(-1))[:, None]
    ratio = (leaf - leaf.detach() + mean.detach()).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(0.9, 1.12) * advantages)
    theirs = torch.autograd.grad((loss * mask).sum(), leaf)[0]
    assert 0 < metrics["clip_ratio"] < 1
    torch.testing.assert_close(found, (loss * mask).sum(), rtol=1e-9, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-15)


def test_rows_that_fill_up_are_not_seen() -> None:
    """bnpo fits a density to all prompts: a prompt too many would change every advantage."""
    batch, _ = experience(seed=2)
    rewards = torch.zeros_like(batch.rollout_logp)
    rewards[:, 0] = batch.outcome
    index = [str(number) for number in batch.group.tolist()]
    estimate = skyrl.advantage("bnpo", horizon=HORIZON)
    alone, _ = estimate(rewards, batch.mask.long(), index, config=config({}))
    again = [0, 0, 0]
    padded, _ = estimate(
        torch.cat([rewards, rewards[again]]),
        torch.cat([batch.mask, batch.mask[again]]).long(),
        [*index, "pad0", "pad1", "pad2"],
        config=config({}),
    )
    torch.testing.assert_close(padded[: len(batch)], alone)
    assert not padded[len(batch) :].any()


@pytest.mark.parametrize(
    ("key", "value"),
    [("loss_reduction", "token_mean"), ("kl_loss_coef", 0.001), ("use_entropy_loss", True)],
)
def test_settings_that_make_another_method_are_refused(key: str, value: Any) -> None:
    cfg = config({**skyrl.overrides("grpo"), f"trainer.algorithm.{key}": value})
    batch, logp = experience(seed=0)
    with pytest.raises(BridgeError, match=key):
        skyrl.loss("grpo")(logp, batch.rollout_logp, logp, config=cfg, loss_mask=batch.mask.double())


def test_corrections_of_theirs_that_would_be_ignored_are_refused() -> None:
    cfg = config({**skyrl.overrides("gspo"), "trainer.algorithm.off_policy_correction.tis_ratio_type": "token"})
    batch, logp = experience(seed=0)
    with pytest.raises(BridgeError, match="tis_ratio_type"):
        skyrl.loss("gspo")(logp, batch.rollout_logp, logp, config=cfg, loss_mask=batch.mask.double())


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("ppo", "needs value"),
        ("reinforce-baseline", "keeps state between batches"),
        ("clip-cov-kl-cov", "whole optimiser batch"),
        ("chord", "decides what is sampled"),
        ("conciser", "needs entropy"),
        ("raft", "filters groups of one reward"),
    ],
)
def test_what_it_does_not_hand_over_is_refused_at_once(method: str, reason: str) -> None:
    for build in (skyrl.advantage, skyrl.loss, skyrl.overrides):
        with pytest.raises(BridgeError, match=reason):
            build(method)


class Squared(po.objectives.SurrogateTerm):
    """(log r - A)^2: not in proportion to the advantage."""

    def forward(self, log_ratio: Tensor, experience: Any, evaluation: Any) -> tuple[Tensor, Tensor]:
        return (log_ratio - experience.advantage).square(), torch.zeros_like(log_ratio)


class Centred(po.objectives.SurrogateTerm):
    """-(A - mean of the batch) r: not the sum of its rows."""

    def forward(self, log_ratio: Tensor, experience: Any, evaluation: Any) -> tuple[Tensor, Tensor]:
        mean = experience.full_batch.advantage[experience.full_batch.mask].mean()
        return -(experience.advantage - mean) * log_ratio.exp(), torch.zeros_like(log_ratio)


@pytest.mark.parametrize(("trust", "reason"), [(Squared(), "not in proportion"), (Centred(), "depends on rows")])
def test_what_no_part_declares_is_measured(trust: po.objectives.SurrogateTerm, reason: str) -> None:
    with pytest.raises(BridgeError, match=reason):
        skyrl.loss(po.method("gspo").but(**{"objective.trust": trust}))


def test_a_sum_needs_its_constant() -> None:
    with pytest.raises(BridgeError, match="horizon"):
        skyrl.overrides("dr-grpo")
    assert skyrl.overrides("dr-grpo", horizon=9)["trainer.algorithm.max_seq_len"] == 9


def test_the_filter_of_dapo_is_theirs() -> None:
    found = skyrl.overrides("dapo", horizon=HORIZON)
    assert found["trainer.algorithm.dynamic_sampling.type"] == "filter"
    assert found["trainer.algorithm.dynamic_sampling.max_sample_batches"] == 10


def test_functions_travel_to_workers() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    batch, logp = experience(seed=0)
    cfg, advantages = config(skyrl.overrides("dapo")), torch.randn_like(logp)
    loss = skyrl.loss("dapo")
    there = cloudpickle.loads(cloudpickle.dumps(loss))
    arguments = (logp, batch.rollout_logp, advantages)
    assert (
        there(*arguments, config=cfg, loss_mask=batch.mask)[0] == loss(*arguments, config=cfg, loss_mask=batch.mask)[0]
    )
