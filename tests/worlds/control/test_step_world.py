"""The protocol of worlds that step all copies at once: autoreset, truncation, last observations, registration."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from torch import Tensor

import polopt.worlds.control as control
from polopt.policies.network import NetworkPolicy
from polopt.step_source import StepSource
from polopt.worlds.control import ControlRule, StepWorld, TunedRule, episode_returns


class Counter(StepWorld):
    """Copy i begins at 10 i, counts by its action, gets the count as reward, and terminates at 10 i + 3."""

    def __init__(self, num_envs: int = 2, *, horizon: int = 3, device: str = "cpu") -> None:
        self.single_observation_space = Box(-np.inf, np.inf, (1,), np.float32)
        self.single_action_space = Discrete(3)
        super().__init__(num_envs, horizon, {}, device)
        self.count = torch.zeros(num_envs)

    def begin(self, rows: Tensor) -> None:
        self.count[rows] = 10.0 * rows

    def observe(self) -> Tensor:
        return self.count[:, None].clone()

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor]:
        self.count += action
        return self.count.clone(), self.count >= 10 * torch.arange(self.num_envs) + 3


def test_a_hand_worked_episode() -> None:
    """Copy 0 counts 1, 2, 3 and terminates in the step in which time is over too; copy 1 stands still and is cut off;
    the next step is the first of new episodes."""
    world = Counter()
    first, _ = world.reset(seed=0)
    assert first.tolist() == [[0], [10]]
    for count in (1, 2):
        seen, reward, terminated, truncated, info = world.step(torch.tensor([1, 0]))
        assert (seen.tolist(), reward.tolist(), info) == ([[count], [10]], [count, 10], {})
        assert not (terminated | truncated).any()
    seen, reward, terminated, truncated, info = world.step(torch.tensor([1, 0]))
    assert reward.tolist() == [3, 10]
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
    assert info["final_obs"].tolist() == [[3], [10]]
    assert seen.tolist() == [[0], [10]]
    seen, _, terminated, truncated, _ = world.step(torch.tensor([2, 1]))
    assert seen.tolist() == [[2], [11]]
    assert not (terminated | truncated).any()


def test_a_source_plays_it() -> None:
    """Fragments have the last observations of episodes, and the returns of hand-counted ones."""
    world = Counter(horizon=2)
    policy = NetworkPolicy(observations=1, actions=3)
    with torch.no_grad():
        policy.actor[-1].bias.copy_(torch.tensor([-1e9, 1e9, -1e9]))  # always by 1
    batch = StepSource(world, policy, seed=0, generator=torch.Generator().manual_seed(0)).fragments(4)
    assert batch.reward.tolist() == [[1, 2, 1, 2], [11, 12, 11, 12]]
    assert batch.truncated.tolist() == [[False, True] * 2] * 2
    assert batch.extras["final_observation"][:, :, 0].tolist() == [[1, 2, 1, 2], [11, 12, 11, 12]]
    assert batch.extras["observation"][:, :, 0].tolist() == [[0, 1, 0, 1, 0], [10, 11, 10, 11, 10]]
    assert batch.extras["episode_return"].tolist() == [[0, 3, 0, 3], [0, 23, 0, 23]]


class By(ControlRule):
    """Counts by the same number each time."""

    by: float = 0.0

    world = Counter

    def forward(self, observation: Tensor, generator: torch.Generator) -> Tensor:
        return torch.full((len(observation),), int(self.by))


def test_a_tuned_rule_is_the_best_of_its_grid() -> None:
    """By 1: 1 + 2 + 3 in copy 0; by 2: 2 + 4, then it is over; by 0: nothing."""
    assert [float(episode_returns(Counter(1), By(by=by))) for by in (0.0, 1.0, 2.0)] == [0, 6, 6]
    tuned = TunedRule(rule=By(), low={"by": 0.0}, high={"by": 1.0}, points=2, episodes=1).prepare(Counter(1))
    assert isinstance(tuned, By)
    assert tuned.by == 1
    with pytest.raises(ValueError, match="low and high of the same settings"):
        TunedRule(rule=By(), low={"by": 0.0}, high={"to": 1.0})


# What a world cannot be made without.
DRAW = np.random.default_rng(0)
SETTINGS = {
    "polopt/LoggedModel-v0": {
        "log": {
            **{name: DRAW.normal(size=(40, 2)) for name in ("observation", "next_observation", "action")},
            "reward": DRAW.normal(size=40),
            "terminated": np.arange(40) % 10 == 9,
        }
    }
}


def entries(seen: Any) -> list[Tensor]:
    """Returns copies of what a world shows, one tensor for each entry."""
    return [value.clone() for value in (seen.values() if isinstance(seen, dict) else [seen])]


@pytest.mark.parametrize("id", sorted(control.WORLDS))
def test_registered_worlds(id: str) -> None:
    """Each is found by its name, repeats itself by its seed, and keeps to its spaces and to the protocol."""
    cls = control.WORLDS[id]
    runs = []
    for _ in range(2):
        world = gymnasium.make_vec(id, num_envs=16, **SETTINGS.get(id, {}))
        plain = world.unwrapped
        assert type(plain) is cls
        seen, _ = world.reset(seed=3)
        generator, log = torch.Generator().manual_seed(0), [*entries(seen)]
        space, shown = plain.single_action_space, plain.single_observation_space
        for _ in range(30):
            if isinstance(space, Discrete):
                action = torch.randint(int(space.n), (16,), generator=generator)
            else:
                low, high = (torch.as_tensor(bound).clamp(-9, 9) for bound in (space.low, space.high))
                action = low + (high - low) * torch.rand(16, *space.shape, generator=generator)
            seen, reward, terminated, truncated, info = world.step(action)
            for part, box in zip(entries(seen), shown.values() if isinstance(shown, Dict) else [shown], strict=True):
                assert part.shape == (16, *box.shape)
                assert part.dtype == torch.float32
                assert part.isfinite().all()
                assert box.contains(part[0].numpy())
            assert reward.shape == terminated.shape == truncated.shape == (16,)
            assert not (terminated & truncated).any()
            assert ("final_obs" in info) == bool((terminated | truncated).any())
            log += [*entries(seen), reward.clone()]
        runs.append(log)
        again = plain.again(16)
        assert (type(again), again.settings) == (cls, plain.settings)
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
