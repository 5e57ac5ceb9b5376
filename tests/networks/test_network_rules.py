"""The update rules of networks beside a policy."""

from __future__ import annotations

import copy

import pytest
import torch
from small_actors import batch
from test_network_training import CRITIC, soft, training
from torch import nn

from polopt.algorithm import Algorithm
from polopt.network_training import NetworkTraining
from polopt.networks import LearnedNetwork
from polopt.updates import NaturalGradient, RMSprop


def after(algorithm: Algorithm, steps: int = 3) -> tuple[NetworkTraining, list[nn.Parameter]]:
    """Returns networks after steps on one batch, and a copy of the critic's parameters before."""
    networks = training(algorithm)
    before = copy.deepcopy([*networks.modules["critic"].parameters()])
    for _ in range(steps):
        networks.begin_minibatch()
        networks.step(batch())
        networks.move_targets()
    return networks, before


def test_a_network_takes_steps_by_its_own_rule() -> None:
    """RMSprop in the first step is lr g / (sqrt(1 - decay) |g| + eps); Adam's own, written out by torch."""
    rule = {"networks.0.update": RMSprop(decay=0.75, eps=1e-12)}
    networks, before = after(soft().but(rule), steps=1)
    for old, new in zip(before, networks.modules["critic"].parameters(), strict=True):
        moved = (new - old).abs().detach()
        size = moved[moved > 0]
        torch.testing.assert_close(size, torch.full_like(size, 1e-3 / 0.5), rtol=1e-3, atol=0)
    plain, start = after(soft())
    twin = training(soft())
    optimiser = torch.optim.Adam(twin.modules["critic"].parameters(), 1e-3, fused=True)
    twin.steppers["critic"].step = lambda norm=None: optimiser.step()  # type: ignore[method-assign, assignment]
    for _ in range(3):
        twin.begin_minibatch()
        twin.step(batch())
        twin.move_targets()
    for ours, theirs in zip(*(n.modules["critic"].parameters() for n in (plain, twin)), strict=True):
        assert torch.equal(ours, theirs)
    assert any(not torch.equal(a, b) for a, b in zip(start, plain.modules["critic"].parameters(), strict=True))


def test_another_rule_goes_on_from_a_checkpoint() -> None:
    made = soft().but({"networks.0.update": RMSprop()})
    whole, _ = after(made, 4)
    first, _ = after(made, 2)
    second = training(made, seed=9)
    second.load(first.state())
    second._generator.set_state(first._generator.get_state())
    for _ in range(2):
        second.begin_minibatch()
        second.step(batch())
        second.move_targets()
    for ours, theirs in zip(*(n.modules["critic"].parameters() for n in (second, whole)), strict=True):
        assert torch.equal(ours, theirs)


def test_a_rule_that_reads_the_whole_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"update must be a rule of gradients alone, as updates\.RMSprop, found"):
        LearnedNetwork(name="critic", network=CRITIC, objective=None, update=NaturalGradient())
