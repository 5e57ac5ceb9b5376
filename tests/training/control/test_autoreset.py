"""Every autoreset mode, on episodes worked by hand; vectorised, illegal-choice and torch-native environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from polopt.config import ConfigError
from polopt.credit import GAE
from polopt.errors import RunError
from polopt.experience import Experience
from polopt.policies.network import NetworkPolicy
from polopt.step_source import ACTION_MASK, StepSource
from polopt.training.control.domain import ControlDomain

MODES = list(AutoresetMode)
# Decisions of the first episodes of a copy: (observation before, after, reward, terminated, truncated).
WORKED = [
    ((0, 0), (0, 1), 1.0, False, False),
    ((0, 1), (0, 2), 2.0, False, True),  # the first episode is truncated after 2 decisions
    ((1, 0), (1, 1), 11.0, False, False),
    ((1, 1), (1, 2), 12.0, False, False),
    ((1, 2), (1, 3), 13.0, True, False),  # the second terminates after 3; it is truncated there, too
    ((2, 0), (2, 1), 21.0, False, False),
    ((2, 1), (2, 2), 22.0, False, True),
]


class Counting(gymnasium.Env[Any, Any]):
    """Episodes 0, 2, ... are truncated after 2 steps, the others terminate after 3. Observation: episode and step."""

    observation_space: Any = Box(0.0, 99.0, (2,), np.float32)
    action_space: Any = Discrete(2)
    episode, step_number = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.episode, self.step_number = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        odd, reward = self.episode % 2 == 1, 10.0 * self.episode + self.step_number
        terminated = odd and self.step_number == 3
        return self._seen(), reward, terminated, terminated or (not odd and self.step_number == 2), {}

    def _seen(self) -> Any:
        return np.array([self.episode, self.step_number], np.float32)


class Choosing(Counting):
    """The same with one legal choice of three: the step's number."""

    observation_space: Any = Dict({"observation": Counting.observation_space, ACTION_MASK: Box(0, 1, (3,), np.int8)})
    action_space: Any = Discrete(3)

    def _seen(self) -> Any:
        return {"observation": super()._seen(), ACTION_MASK: np.eye(3, dtype=np.int8)[self.step_number % 3]}


class Native(VectorEnv[Any, Any, Any]):
    """The same, as tensors, in one of two modes."""

    single_observation_space = Counting.observation_space
    single_action_space = Counting.action_space
    num_envs = 2

    def __init__(self, mode: AutoresetMode) -> None:
        self.metadata = {"autoreset_mode": mode}
        self.actions: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        which = torch.ones(2, dtype=torch.bool) if options is None else options["reset_mask"]
        if options is None:
            self.state = torch.tensor([[-1.0, 0.0]] * 2)
        self.state = torch.where(which[:, None], torch.stack([self.state[:, 0] + 1, torch.zeros(2)], 1), self.state)
        return self.state, {}

    def step(self, actions: Any) -> Any:
        self.actions.append(actions)
        self.state = self.state + torch.tensor([0.0, 1.0])
        odd, reward = self.state[:, 0] % 2 == 1, self.state @ torch.tensor([10.0, 1.0])
        terminated = odd & (self.state[:, 1] == 3)
        truncated = terminated | (~odd & (self.state[:, 1] == 2))
        info = {}
        if self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP:
            info = {"final_obs": self.state}
            self.reset(options={"reset_mask": terminated | truncated})
        return self.state, reward, terminated, truncated, info


def played(environments: Any, steps: int = 10, **size: int) -> tuple[Experience, NetworkPolicy]:
    policy = NetworkPolicy(observations=2, **({"actions": 2} | size), hidden=(8,), seed=3)
    source = StepSource(environments, policy, seed=0, generator=torch.Generator().manual_seed(4))
    halves = [source.fragments(steps // 2) for _ in range(2)]
    batches = [b.replace(**_values(policy, b)) for b in halves]
    batches[1] = batches[1].replace(group=batches[1].group + 9)
    return Experience.cat(batches), policy


def _values(policy: NetworkPolicy, batch: Experience) -> dict[str, Any]:
    said = policy.evaluate(batch, {"value"})
    return {"value": said.value.detach(), "final_value": said.final_value}


def decisions(batch: Experience, copy: int, copies: int = 2) -> list[Any]:
    """One copy's decisions, in the form of WORKED; and their final values and the length and return of its episode."""
    found = []
    for row in (copy, copy + copies):
        after = batch.extras.get("final_observation", batch.extras["observation"][:, 1:])
        for t in batch.mask[row].nonzero().flatten().tolist():
            seen = [tuple(x[row, t].int().tolist()) for x in (batch.extras["observation"], after)]
            flags = [bool(x[row, t]) for x in (batch.terminated, batch.truncated)]
            ends = [float(batch.extras[f"episode_{n}"][row, t]) for n in ("length", "return")]
            found.append(((*seen, float(batch.reward[row, t]), *flags), float(batch.final_value[row, t]), ends))
    return found


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_episodes_by_hand(mode: AutoresetMode, native: bool) -> None:
    if native and mode == AutoresetMode.NEXT_STEP:
        pytest.skip("the tensors' environment has the two other modes")
    environments = Native(mode) if native else SyncVectorEnv([Counting, Counting], autoreset_mode=mode)
    batch, policy = played(environments)
    for copy in range(2):
        found = decisions(batch, copy)
        assert [d for d, _, _ in found][: len(WORKED)] == WORKED
        lengths = [end[0] for _, _, end in found if end[0]]
        assert lengths[:3] == [2, 3, 2]
        assert [end[1] for _, _, end in found if end[0]][:3] == [3, 36, 43]
        for (_, after, *_), value, _ in found:
            assert value == pytest.approx(policy.critic(torch.tensor(after).float())[0].item(), abs=1e-6)
    if mode == AutoresetMode.NEXT_STEP:
        assert (~batch.mask).sum() == 2 * 3  # the reset of episodes 1, 2 and 3
        assert "final_observation" not in batch.extras
    else:
        assert batch.mask.all()


def test_credit_does_not_depend_on_the_mode() -> None:
    """Generalised advantages of the decisions of whole episodes, and of the loop by hand."""
    gamma, lam, credited = 0.9, 0.7, []
    for mode in MODES:
        batch, policy = played(SyncVectorEnv([Counting, Counting], autoreset_mode=mode), steps=24)
        advantage = GAE(gamma=gamma, lam=lam, cut="bootstrap").credited(batch).advantage
        credited.append(advantage[0][batch.mask[0]][:5])
    value = lambda seen: policy.critic(torch.tensor(seen).float())[0].item()  # noqa: E731
    expected, carry = [], 0.0
    for before, after, reward, terminated, truncated in reversed(WORKED[:5]):
        carry = 0.0 if terminated or truncated else carry
        delta = reward + gamma * (0.0 if terminated else value(after)) - value(before)
        carry = delta + gamma * lam * carry
        expected.insert(0, carry)
    for found in credited:
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_only_legal_choices_are_taken(mode: AutoresetMode) -> None:
    batch, policy = played(SyncVectorEnv([Choosing, Choosing], autoreset_mode=mode), actions=3)
    for copy in range(2):
        assert [d for d, _, _ in decisions(batch, copy)][: len(WORKED)] == WORKED
    step = batch.extras["observation"][:, :-1, 1].long() % 3
    assert torch.equal(batch.extras["action"][batch.mask], step[batch.mask])
    assert (batch.rollout_logp == 0).all()  # there is one choice
    assert (policy.evaluate(batch).logp[batch.mask] == 0).all()


def test_tensors_stay_tensors() -> None:
    environments = Native(AutoresetMode.DISABLED)
    played(environments)
    assert all(isinstance(action, torch.Tensor) for action in environments.actions)


def test_same_step_without_final_observations() -> None:
    environments = Native(AutoresetMode.SAME_STEP)
    step = environments.step
    environments.step = lambda actions: (*step(actions)[:4], {})  # type: ignore[method-assign]
    with pytest.raises(RunError, match=r"same-step autoreset need info\['final_obs'\], found none"):
        played(environments)


def test_numpy_cartpole_is_cartpole() -> None:
    """From the same states, with the same feedback control, both end their episodes with the same returns."""
    copies, g = 24, np.random.default_rng(0)
    starts = g.uniform(-0.05, 0.05, (4, copies))
    gains = g.uniform(-0.2, 1.0, copies)
    fast: Any = gymnasium.make_vec("CartPole-v1", num_envs=copies, vectorization_mode="vector_entry_point")
    fast.reset(seed=0)
    fast.state = starts.copy()
    seen, returns, live = starts.T.astype(np.float32), np.zeros(copies), np.ones(copies, bool)
    while live.any():
        seen, reward, terminated, truncated, _ = fast.step((seen[:, 2] + gains * seen[:, 3] > 0).astype(int))
        returns += reward * live
        live &= ~(terminated | truncated)
    expected = []
    for i in range(copies):
        slow: Any = gymnasium.make("CartPole-v1")
        slow.reset(seed=0)
        slow.unwrapped.state = starts[:, i].copy()
        one, total, over = starts[:, i].astype(np.float32), 0.0, False
        while not over:
            one, reward, terminated, truncated, _ = slow.step(int(one[2] + gains[i] * one[3] > 0))
            total, over = total + float(reward), terminated or truncated
        expected.append(total)
    assert returns.tolist() == expected
    assert 500 in expected
    assert min(expected) < 100


def test_an_unknown_way_to_step() -> None:
    from test_control_runs import recipe

    with pytest.raises(ConfigError, match=r"environment.vectorization.*sync"):
        recipe(environment={"id": "CartPole-v1", "vectorization": "synch"})


@pytest.mark.parametrize(
    ("id", "mode", "expected"),
    [
        ("CartPole-v1", "auto", "CartPoleVectorEnv"),
        ("CartPole-v1", "sync", "SyncVectorEnv"),
        ("CartPole-v1", "async", "AsyncVectorEnv"),
        ("Pendulum-v1", "auto", "SyncVectorEnv"),
    ],
)
def test_how_copies_are_stepped(id: str, mode: str, expected: str) -> None:
    from test_control_runs import recipe

    domain = ControlDomain(recipe(environment={"id": id, "vectorization": mode}))
    try:
        assert type(domain.evaluated.unwrapped).__name__ == expected
        assert domain.source("rl").fragments(3).mask.shape == (4, 3)
    finally:
        domain.close()
