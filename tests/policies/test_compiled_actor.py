"""Decisions by one graph: those of the policy, with its draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from polopt import compiled_steps
from polopt.policies.compiled import CompiledActor
from polopt.policies.network import NetworkPolicy
from polopt.step_source import StepSource

BOX: dict[str, Any] = {"dimensions": 2, "low": [-1.0, -2.0], "high": [1.0, 3.0]}
POLICIES: dict[str, dict[str, Any]] = {
    "categorical": {"actions": 3},
    "gaussian": {"dimensions": 2},
    "normalised": {"dimensions": 2, "normalise": True},
    "squashed": {**BOX, "head": "squashed_gaussian"},
}


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were traced, which are run as they are."""
    graphs: list[Any] = []
    monkeypatch.setattr(compiled_steps, "compiled", lambda graph, inputs: graphs.append(graph) or graph)
    return graphs


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_are_the_policys(name: str, traced: list[Any]) -> None:
    """Over changes of its weights in place, with one graph for each kind of call."""
    policy = NetworkPolicy(observations=4, hidden=(8,), seed=1, **POLICIES[name])
    actor = CompiledActor(policy)
    one, other = (torch.Generator().manual_seed(3) for _ in range(2))
    for step in range(3):
        if policy.normaliser is not None:
            policy.normaliser.observe(torch.randn(20, 4) + step)
            policy.normaliser.advance()
        actor.begin()
        seen = torch.randn(5, 4, generator=torch.Generator().manual_seed(step))
        for greedy in (False, True):
            found = actor.act(seen, one, greedy=greedy)
            for ours, expected in zip(found, policy.act(seen, other, greedy=greedy), strict=True):
                torch.testing.assert_close(ours, expected)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.add_(0.3)
    assert torch.equal(one.get_state(), other.get_state())
    assert len(traced) == 2


def test_illegal_choices_are_not_taken(traced: list[Any]) -> None:
    policy = NetworkPolicy(observations=4, actions=3, hidden=(8,))
    actor, draw = CompiledActor(policy), torch.Generator().manual_seed(0)
    actor.begin()
    for only in range(3):
        legal = torch.arange(3).expand(50, 3) == only
        assert (actor.act(torch.zeros(50, 4), draw, legal=legal).action == only).all()
    assert len(traced) == 1


class World:
    """Two copies of a pendulum, and a policy with a head."""

    def __init__(self, head: str) -> None:
        import gymnasium

        self.environments = SyncVectorEnv(
            [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=4)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP
        )
        self.policy = NetworkPolicy(observations=3, dimensions=1, low=[-2.0], high=[2.0], head=head)  # type: ignore[arg-type]

    def played(self, compiled: bool) -> Tensor:
        self.policy.compiled = compiled
        draw = torch.Generator().manual_seed(2)
        source = StepSource(self.environments, self.policy, seed=0, generator=draw, training=True)
        return torch.cat([source.fragments(5).extras["action"] for _ in range(2)])


@pytest.mark.parametrize(("head", "graphs"), [("squashed_gaussian", 1), ("beta", 0)])
def test_a_source_plays_by_the_graph_where_noise_is_drawn_apart(head: str, graphs: int, traced: list[Any]) -> None:
    """A beta distribution's sample has no noise that could be drawn before its law is known."""
    world = World(head)
    torch.testing.assert_close(world.played(compiled=True), world.played(compiled=False))
    assert len(traced) == graphs
