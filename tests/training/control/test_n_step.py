"""Transitions of several decisions, against episodes worked out by hand and plain sums over played episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

from polopt.policies.network import NetworkPolicy
from polopt.sampling import TransitionReplay, spanning, successors
from polopt.training.control.replay_source import EpsilonGreedyPolicy, ReplaySource
from polopt.training.control.transition_store import stored

GAMMA = 0.5


def log() -> dict[str, torch.Tensor]:
    """Three episodes: states 0, 1, 2, 3, which terminates; 10, 11, which is truncated; 20, 21, which the log leaves."""
    state = torch.tensor([0.0, 1, 2, 10, 20, 21])
    columns = {
        "observation": state[:, None],
        "next_observation": torch.tensor([1.0, 2, 3, 11, 21, 22])[:, None],
        "reward": torch.tensor([1.0, 2, 4, 8, 16, 32]),
        "terminated": torch.tensor([False, False, True, False, False, False]),
        "truncated": torch.tensor([False, False, False, True, False, False]),
    }
    return columns | {"following": successors(columns)}


def test_hand_worked_episodes() -> None:
    columns, every = log(), torch.arange(6)
    assert columns["following"].tolist() == [1, 1, 0, 0, 1, 0]
    two, three = (spanning(columns, every, n, GAMMA) for n in (2, 3))
    assert two["reward"].tolist() == [2.0, 4.0, 4.0, 8.0, 32.0, 32.0]
    assert two["discount"].tolist() == [0.25, 0.25, 0.5, 0.5, 0.25, 0.5]
    assert two["next_observation"][:, 0].tolist() == [2.0, 3.0, 3.0, 11.0, 22.0, 22.0]
    assert two["terminated"].tolist() == [False, True, True, False, False, False]
    assert two["truncated"].tolist() == [False, False, False, True, False, False]
    assert three["reward"].tolist() == [3.0, 4.0, 4.0, 8.0, 32.0, 32.0]
    assert three["discount"].tolist() == [0.125, 0.25, 0.5, 0.5, 0.25, 0.5]
    assert three["terminated"].tolist() == [True, True, True, False, False, False]
    assert torch.equal(three["observation"], columns["observation"])
    one = spanning(columns, every, 1, GAMMA)
    assert torch.equal(one["reward"], columns["reward"])
    assert set(one["discount"].tolist()) == {GAMMA}
    assert "discount" not in spanning(columns, every, 1, None)


def source(folder: Path, **settings: Any) -> ReplaySource:
    environments = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync", **settings)
    policy = NetworkPolicy(observations=4, actions=2, head="action_values", hidden=(4,), seed=1)
    draws = torch.Generator().manual_seed(2)
    return ReplaySource(environments, policy, seed=5, generator=draws, folder=folder, checkpoint_every=1)


@pytest.mark.parametrize("steps", [1, 4])
def test_played_transitions_span_fragments_and_end_with_episodes(steps: int, tmp_path: Path) -> None:
    """CartPole's reward is 1, and an episode's states follow each other: k is how far the state after is."""
    made = source(tmp_path, max_episode_steps=22)
    for _ in range(120 // steps):
        made.transitions(1, steps=steps, start=0, capacity=1000, noise=0.0, epsilon=0.5)
    kept = stored(tmp_path)
    row = torch.arange(len(kept["reward"]))
    found = spanning(kept, row, 3, GAMMA)
    for i in row.tolist():
        at, rewards = i, [float(kept["reward"][i])]
        while len(rewards) < 3 and not (kept["terminated"][at] or kept["truncated"][at]):
            after = (kept["observation"] == kept["next_observation"][at]).all(1).nonzero().flatten()
            if not len(after):  # not played yet
                break
            at = int(after[0])
            rewards.append(float(kept["reward"][at]))
        assert float(found["reward"][i]) == sum(GAMMA**k * r for k, r in enumerate(rewards))
        assert float(found["discount"][i]) == GAMMA ** len(rewards)
        for name in ("next_observation", "terminated", "truncated"):
            assert torch.equal(found[name][i], kept[name][at])
    assert kept["truncated"].any()
    assert kept["terminated"].any()
    assert (found["discount"] == GAMMA**3).float().mean() > 0.5


def test_a_checkpoint_cuts_the_episodes_that_it_resets(tmp_path: Path) -> None:
    made = source(tmp_path)
    made.transitions(1, steps=2, start=0, capacity=100, noise=0.0)
    made.state()
    made.transitions(1, steps=2, start=0, capacity=100, noise=0.0)
    made.transitions(1, steps=2, start=0, capacity=100, noise=0.0)
    kept = stored(tmp_path)
    assert kept["following"].tolist() == [1, 0] * 3 + [1, 5] * 3 + [1, 0] * 3


def test_the_share_of_random_choices(tmp_path: Path) -> None:
    made = source(tmp_path)
    observation = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0))
    best = made.policy.act(observation, torch.Generator(), greedy=True).action
    acted = EpsilonGreedyPolicy(made.policy, 0.4).act(observation, torch.Generator().manual_seed(1)).action
    assert float((acted != best).float().mean()) == pytest.approx(0.2, abs=0.02)
    legal = torch.zeros(4000, 2, dtype=torch.bool)
    legal[:, 1] = True
    acted = EpsilonGreedyPolicy(made.policy, 0.4).act(observation, torch.Generator().manual_seed(1), legal=legal)
    assert acted.action.min() == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_steps": 2}, "n_steps = 2 needs gamma"),
        ({"n_steps": 0}, "n_steps must be >= 1"),
        ({"epsilon": 1.5}, r"epsilon and gamma must be in \[0, 1\]"),
        ({"gamma": -0.1}, r"epsilon and gamma must be in \[0, 1\]"),
        ({"epsilon": 0.1, "noise": 0.1}, "noise is for vectors and epsilon for choices"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TransitionReplay(**settings)
