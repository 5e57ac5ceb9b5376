"""Policies that act by a latent vector of what happened before, and critics that read what a simulator tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from polopt.networks import HistoryActor, HistoryEncoder, PrivilegedValue
from polopt.policies.network import NetworkPolicy
from polopt.step_source import StepSource

TRUNK = HistoryEncoder(latent=2, features=4, encoder=(6,), hidden=(5,))


def policy_of(privileged: int = 3, width: int = 12, **settings: Any) -> NetworkPolicy:
    made = {"observations": 2, "dimensions": 1, "inputs": {"history": width}, "privileged": privileged, "trunk": TRUNK}
    return NetworkPolicy(**made | settings)


def test_the_most_likely_latent_vector_is_the_mean() -> None:
    policy = policy_of()
    assert isinstance(policy.actor, HistoryActor)
    seen = torch.randn(4, 14)
    quiet = torch.cat([seen[:, :-2], torch.zeros(4, 2)], 1)
    latent = policy.actor.encoded(seen)
    expected = policy.actor.acting(torch.cat([seen[:, :2], latent.mean], 1))
    torch.testing.assert_close(policy.actor(quiet), expected)
    assert not torch.allclose(policy.actor(seen), expected)
    torch.testing.assert_close(latent.mean, policy.actor.encoded(quiet).mean)


def test_without_a_privileged_state_the_value_reads_the_history() -> None:
    policy = policy_of(privileged=0)
    assert not isinstance(policy.critic, PrivilegedValue)
    assert policy.value(torch.randn(4, 14)).shape == (4,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": {}}, "the policy's inputs are none; set sampling.policy_input to sampling.EpisodeHistory"),
        ({"inputs": {"skill": 12}}, "noise = 2"),
        ({"width": 2}, "noise = 2"),
        ({"normalise": True}, "reads observations as they are"),
    ],
)
def test_policies_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_of(**settings)


def test_trunks_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="need latent >= 1 and features >= 2, found 0 and 1"):
        HistoryEncoder(latent=0, features=1)


def test_a_saved_policy_acts_the_same(tmp_path: Path) -> None:
    policy = policy_of()
    policy.save(tmp_path)
    again, seen = NetworkPolicy.load(tmp_path), torch.randn(3, 14)
    assert torch.equal(policy.actor(seen), again.actor(seen))
    assert torch.equal(policy.value(torch.cat([seen, seen[:, :3]], 1)), again.value(torch.cat([seen, seen[:, :3]], 1)))


class Told(gymnasium.Env[Any, Any]):
    """Counts its steps, three an episode, and tells 10 times the number of the episode and the count."""

    observation_space: Any = Dict({"observation": Box(-9, 9, (1,)), "privileged": Box(-99, 99, (2,))})
    action_space: Any = Box(-1.0, 1.0, (1,), np.float32)
    count, episode = 0, 0

    def shown(self) -> dict[str, Any]:
        told = np.array([10.0 * self.episode, self.count], np.float32)
        return {"observation": np.array([self.count], np.float32), "privileged": told}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.count = self.episode + 1, 0
        return self.shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.shown(), 1.0, self.count == 3, False, {}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_what_is_told_is_that_of_the_decision_and_of_the_state_after_it(mode: AutoresetMode) -> None:
    environments = SyncVectorEnv([Told] * 2, autoreset_mode=mode)
    policy = NetworkPolicy(observations=1, dimensions=1, privileged=2)
    source = StepSource(environments, policy, seed=0, generator=torch.Generator().manual_seed(0))
    batch = source.fragments(10)
    now, after = batch.extras["privileged"], batch.extras["final_privileged"]
    places = batch.mask
    assert places.sum() >= 14
    torch.testing.assert_close(now[..., 1][places], batch.extras["observation"][:, :-1, 0][places])
    torch.testing.assert_close(after[..., 0][places], now[..., 0][places])
    torch.testing.assert_close(after[..., 1][places], now[..., 1][places] + 1)
    assert (now[..., 0][places] % 10 == 0).all()
    assert len(now[..., 0][places].unique()) >= 3


def test_a_critic_reads_what_is_told_and_the_policy_does_not() -> None:
    """Values before and after each decision are the critic's of the columns themselves."""
    environments = SyncVectorEnv([Told] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = NetworkPolicy(observations=1, dimensions=1, privileged=2)
    batch = StepSource(environments, policy, seed=0, generator=torch.Generator().manual_seed(0)).fragments(6)
    found, extras = policy.evaluate(batch, {"value"}), batch.extras
    now = torch.cat([extras["observation"][:, :-1], extras["privileged"]], -1)
    after = torch.cat([extras["observation"][:, 1:], extras["final_privileged"]], -1)
    torch.testing.assert_close(found.value, policy.critic(now)[..., 0])
    torch.testing.assert_close(found.final_value, policy.critic(after)[..., 0].detach())
    assert policy.actor[0].in_features == 1  # type: ignore[index, union-attr]
    torch.testing.assert_close(found.logp, batch.rollout_logp)
