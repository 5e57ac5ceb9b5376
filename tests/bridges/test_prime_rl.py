"""prime-rl calls the functions as here, one sequence at a time, and divides by the global batch's tokens.

`Inputs` and `gradient` are written from prime-rl's source at 559b447 (trainer/rl/loss.py, trainer/rl/train.py,
orchestrator/algo/) and share nothing with polopt; prime-rl itself cannot be installed without a GPU's packages.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ragged import HORIZON, SPLITS, deal, experience, whole
from torch import Tensor

import polopt as po
from polopt import catalogue, index
from polopt.bridges import prime_rl
from polopt.bridges.capabilities import BridgeError
from polopt.objectives import SequenceMean, TokenMean


@dataclasses.dataclass
class Inputs:
    trainer_logprobs: Tensor
    inference_logprobs: Tensor
    ref_logprobs: Tensor | None
    advantages: Tensor
    loss_mask: Tensor
    loss_weights: Tensor | None = None


def trace(reward: float, turns: list[int], cut: bool = False) -> SimpleNamespace:
    """A trace of so many sampled tokens by turn; before each turn a node that the environment said."""
    nodes = []
    for length in turns:
        nodes += [SimpleNamespace(mask=[False] * 3), SimpleNamespace(mask=[True] * length)]
    return SimpleNamespace(reward=reward, nodes=nodes, is_truncated=cut)


def credited(method: Any, batch: po.Experience) -> Tensor:
    """Advantages [B, T] as an algorithm of prime-rl assigns them, prompt by prompt."""
    found, credit = torch.zeros(batch.mask.shape, dtype=torch.float64), prime_rl.advantage(method, horizon=HORIZON)
    for number in batch.group.unique():
        rows = (batch.group == number).nonzero().flatten().tolist()
        assigned = credit([trace(float(batch.outcome[i]), [int(batch.lengths[i])]) for i in rows])
        for i, values in zip(rows, assigned, strict=True):
            found[i, : len(values)] = torch.tensor(values)
    return found


def gradient(loss: Any, batch: po.Experience, advantages: Tensor, logp: Tensor, ranks: int, micro: int) -> Tensor:
    """Of one optimiser step: each sequence with a prompt of two tokens before it, packed without padding."""
    leaf, scale = logp.clone().requires_grad_(), int(batch.lengths.sum())
    prompt = torch.zeros(2, dtype=torch.float64)
    for share in deal(len(batch), ranks, micro):
        for rows in share:
            total = leaf.sum() * 0
            for i in rows.tolist():
                n = int(batch.lengths[i])
                inputs = Inputs(
                    trainer_logprobs=torch.cat([prompt, leaf[i, :n]]),
                    inference_logprobs=torch.cat([prompt, batch.rollout_logp[i, :n]]),
                    ref_logprobs=None,
                    advantages=torch.cat([prompt, advantages[i, :n]]),
                    loss_mask=torch.arange(n + 2) >= 2,
                )
                found = loss(inputs)
                assert all(value.ndim == 0 for value in found.metrics.values())
                total = total + found.loss
            (total / scale).backward()  # what data parallelism divides is multiplied back
    assert leaf.grad is not None
    return leaf.grad


RUN = [slug for slug in index.slugs("algorithm") if not prime_rl.HOST.refusals(catalogue.method(slug))]
MEANS = [slug for slug in RUN if isinstance(catalogue.method(slug).objective.aggregate, TokenMean)]


@pytest.mark.parametrize("method", [*MEANS, {"name": "dapo", "refills": 0}])
def test_a_mean_over_tokens_is_the_whole_batchs(method: Any) -> None:
    batch, logp = experience(seed=7)
    algorithm = catalogue.sentence(method)
    if algorithm.sampling.select:
        algorithm = algorithm.but({"sampling.select": []})
    loss, advantages, expected = prime_rl.loss(algorithm), credited(algorithm, batch), whole(algorithm, batch, logp)
    assert expected.abs().max() > 0
    for ranks, micro in SPLITS:
        found = gradient(loss, batch, advantages, logp, ranks, micro)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)  # its rewards are floats of 32 bits


@pytest.mark.parametrize("method", [slug for slug in RUN if slug not in MEANS])
def test_a_mean_over_answers_keeps_its_direction(method: str) -> None:
    """Its size is the method's times typical / (tokens / answers), however it is split."""
    batch, logp = experience(seed=8)
    advantages = credited(method, batch)
    expected = whole(catalogue.method(method), batch, logp) * (4.0 / batch.lengths.double().mean())
    loss = prime_rl.loss(method, typical=4.0, horizon=HORIZON)
    for ranks, micro in SPLITS:
        found = gradient(loss, batch, advantages, logp, ranks, micro)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


def test_these_run() -> None:
    assert {"gspo", "dr-grpo", "cispo", "rec"} <= set(RUN)
    assert not {"grpo", "ppo", "bnpo", "dapo", "hapo", "chord"} & set(RUN)


def test_the_documented_loss_is_ours() -> None:
    """The PPO clip of prime-rl's page on custom losses, on rows of any advantage."""
    batch, logp = experience(seed=5)
    batch = batch.replace(advantage=torch.randn_like(logp))
    algorithm = po.Algorithm(credit=po.credit.RelativeAdvantage(), objective=po.objectives.Surrogate())
    loss = prime_rl.loss(algorithm)
    for i in range(len(batch)):
        mask, leaf = batch.mask[i], logp[i].clone().requires_grad_()
        inputs = Inputs(leaf, batch.rollout_logp[i], None, batch.advantage[i], mask)
        ours = torch.autograd.grad(loss(inputs).loss, leaf)[0]
        ratio = torch.exp(leaf - inputs.inference_logprobs)
        theirs = -torch.min(ratio * inputs.advantages, ratio.clamp(0.8, 1.2) * inputs.advantages)[mask].sum()
        torch.testing.assert_close(ours, torch.autograd.grad(theirs, leaf)[0], rtol=1e-9, atol=0)


def test_the_advantage_is_that_of_the_group() -> None:
    """Without a deviation it is prime-rl's own: the reward less the group's mean, on every sampled token."""
    rewards, turns = [1.0, 0.0, 0.25], [[2, 3], [1], [4]]
    found = prime_rl.advantage("dr-grpo", horizon=9)([trace(r, t) for r, t in zip(rewards, turns, strict=True)])
    mean = sum(rewards) / 3
    assert [len(row) for row in found] == [5, 1, 4]
    for row, reward in zip(found, rewards, strict=True):
        torch.testing.assert_close(torch.tensor(row), torch.full((len(row),), reward - mean))


def test_turns_and_their_ends_are_seen() -> None:
    """A reward for few turns, and one for ending in time."""

    class Ends(po.rewards.Reward):
        reads = frozenset({"turn", "truncated"})

        def forward(self, experience: po.Experience) -> Tensor:
            turns = torch.tensor([len(t[m].unique()) for t, m in zip(experience.turn, experience.mask, strict=True)])
            return turns + 10.0 * experience.truncated

    algorithm = po.Algorithm(reward=Ends(), credit=po.credit.RelativeAdvantage(baseline=None, scale=None))
    found = prime_rl.advantage(algorithm)([trace(0, [2, 3]), trace(0, [4], cut=True)])
    assert [row[0] for row in found] == [2.0, 11.0]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("grpo", "needs ref_logp"),
        ("bnpo", "compares prompts"),
        ("tricks-lite-ppo", "compares prompts"),
        ("grpo-lambda-len", "compares prompts"),
        ("hapo", "whole optimiser batch"),
        ("chord", "several losses"),
        ("dapo", "decides what is sampled"),
    ],
)
def test_what_it_does_not_hand_over_is_refused_at_once(method: str, reason: str) -> None:
    for build in (prime_rl.advantage, prime_rl.loss, prime_rl.settings):
        with pytest.raises(BridgeError, match=reason):
            build(method)


def test_a_mean_over_answers_is_refused_without_their_length() -> None:
    with pytest.raises(BridgeError, match="give typical"):
        prime_rl.loss("gspo")
    changed = po.method("gspo").but({"objective.aggregate": TokenMean()})
    assert prime_rl.loss(changed) is not None
    with pytest.raises(BridgeError, match="horizon"):
        prime_rl.loss("dr-grpo", typical=100.0)


def test_weights_of_tokens_are_refused() -> None:
    ones = torch.ones(3)
    inputs = Inputs(-ones, -ones, None, ones, ones.bool(), torch.tensor([1.0, 0.5, 1.0]))
    with pytest.raises(BridgeError, match="weights"):
        prime_rl.loss("cispo")(inputs)
    assert isinstance(po.method("gspo").objective.aggregate, SequenceMean)
    inputs.loss_weights = ones
    assert prime_rl.loss("cispo")(inputs).loss.ndim == 0


def test_its_filter_of_tokens_is_switched_off() -> None:
    assert prime_rl.settings("cispo")["orchestrator.train.filter_zero_advantages"] is False
