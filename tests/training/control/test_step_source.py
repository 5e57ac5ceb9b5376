"""Fragments of stepped environments, against plain loops over single environments; and their credit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from polopt.credit import GAE
from polopt.experience import Experience
from polopt.policies.network import NetworkPolicy
from polopt.step_source import StepSource
from polopt.values import check_values

COPIES, STEPS, SEED = 3, 40, 11


def source_of(
    env: str = "CartPole-v1", *, seed: int = SEED, critic: float = 1.0, **settings: Any
) -> tuple[StepSource, NetworkPolicy]:
    environments = gymnasium.make_vec(env, num_envs=COPIES, vectorization_mode="sync", **settings)
    observed, decided = environments.single_observation_space, environments.single_action_space
    size: Any = {"actions": decided.n} if hasattr(decided, "n") else {"dimensions": decided.shape[0]}
    policy = NetworkPolicy(observations=observed.shape[0], hidden=(8,), seed=3, **size)
    return StepSource(environments, policy, seed=seed, generator=torch.Generator().manual_seed(4)), policy


def by_hand(batch: Experience, env: str, copy: int, **settings: Any) -> list[dict[str, Any]]:
    """The batch's actions in one environment, column by column; None where the copy is reset."""
    made = gymnasium.make(env, **settings)
    observation, _ = made.reset(seed=SEED + copy)
    found: list[dict[str, Any]] = []
    over, total, length = False, 0.0, 0
    for action in batch.extras["action"][copy]:
        if over:
            observation, _ = made.reset()
            over, total, length = False, 0.0, 0
            found.append({"mask": False, "after": observation})
            continue
        before = observation
        observation, reward, terminated, truncated, _ = made.step(action.numpy())
        total, length, over = total + float(reward), length + 1, terminated or truncated
        found.append({"mask": True, "before": before, "after": observation, "reward": reward})
        found[-1] |= {"terminated": terminated, "truncated": truncated and not terminated}
        found[-1] |= {"episode_return": total * over, "episode_length": length * over}
    return found


@pytest.mark.parametrize(
    ("env", "settings"),
    [("CartPole-v1", {}), ("CartPole-v1", {"max_episode_steps": 9}), ("Pendulum-v1", {"max_episode_steps": 7})],
)
def test_every_copy_is_a_plain_environment(env: str, settings: dict[str, Any]) -> None:
    source, _ = source_of(env, **settings)
    first, second = source.fragments(STEPS // 2), source.fragments(STEPS - STEPS // 2)  # episodes go on in the next
    assert torch.equal(first.extras["observation"][:, -1], second.extras["observation"][:, 0])
    for name in ("observation",):
        joined = torch.cat([first.extras[name][:, :-1], second.extras[name]], 1)
    extras = {k: torch.cat([first.extras[k], second.extras[k]], 1) for k in first.extras if k != "observation"}
    fields = ("mask", "reward", "terminated", "truncated", "rollout_logp")
    batch = Experience(**{n: torch.cat([getattr(first, n), getattr(second, n)], 1) for n in fields}, extras=extras)
    ends = masked = 0
    for copy in range(COPIES):
        for t, expected in enumerate(by_hand(batch, env, copy, **settings)):
            assert bool(batch.mask[copy, t]) == expected["mask"]
            torch.testing.assert_close(joined[copy, t + 1], torch.as_tensor(expected["after"]))
            if not expected["mask"]:
                masked += 1
                assert not batch.terminated[copy, t]
                assert not batch.truncated[copy, t]
                assert batch.reward[copy, t] == 0
                continue
            ends += expected["terminated"] or expected["truncated"]
            torch.testing.assert_close(joined[copy, t], torch.as_tensor(expected["before"]))
            for name in ("reward", "terminated", "truncated"):
                assert getattr(batch, name)[copy, t].item() == pytest.approx(expected[name], rel=1e-6)
            for name in ("episode_return", "episode_length"):
                assert extras[name][copy, t].item() == pytest.approx(expected[name], rel=1e-5)
    assert ends >= COPIES
    assert masked >= COPIES
    assert source.usage()["sampled"] == batch.mask.sum()


def test_log_probabilities_are_the_policys() -> None:
    source, policy = source_of()
    batch = source.fragments(STEPS)
    said = policy.evaluate(batch)
    torch.testing.assert_close(said.logp[batch.mask], batch.rollout_logp[batch.mask])


def test_environments_must_declare_when_they_reset() -> None:
    made = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    made.metadata = {}
    policy = NetworkPolicy(observations=4, actions=2)
    with pytest.raises(ValueError, match=r"need metadata\['autoreset_mode'\], .* found None"):
        StepSource(made, policy, seed=0, generator=torch.Generator())


def test_reading_the_position_begins_every_copy_anew() -> None:
    one, two = source_of()[0], source_of()[0]
    one.fragments(5)
    two.load({"fragments": 1})
    assert one.state() == {"fragments": 1}
    one.generator.manual_seed(9)
    two.generator.manual_seed(9)
    assert torch.equal(one.fragments(5).extras["observation"], two.fragments(5).extras["observation"])


@pytest.mark.parametrize("cut", ["bootstrap", "zero"])
def test_gae_episode_by_episode(cut: str) -> None:
    """Each episode alone, in a loop: V follows a truncation and the fragment's end, 0 a termination."""
    gamma, lam = 0.9, 0.7
    source, policy = source_of(max_episode_steps=13)
    batch = source.fragments(45)
    said = policy.evaluate(batch, {"value"})
    batch = batch.replace(value=said.value.detach(), final_value=said.final_value)
    credit = GAE(gamma=gamma, lam=lam, cut=cut)
    found = credit.credited(batch)
    kinds = set()
    for i in range(COPIES):
        columns = batch.mask[i].nonzero().flatten().tolist()
        carry, ahead = 0.0, 0.0
        for t in reversed(columns):
            if batch.terminated[i, t]:
                kinds.add("terminated")
                carry, ahead = 0.0, 0.0
            elif batch.truncated[i, t] or t == columns[-1]:
                kinds.add("truncated" if batch.truncated[i, t] else "open")
                after = policy.critic(batch.extras["observation"][i, t + 1])[0].item()
                carry, ahead = 0.0, after if cut == "bootstrap" else 0.0
            value = policy.critic(batch.extras["observation"][i, t])[0].item()
            carry = batch.reward[i, t].item() + gamma * ahead - value + gamma * lam * carry
            ahead = value
            assert found.advantage[i, t].item() == pytest.approx(carry, abs=2e-5)
            assert found.value_target[i, t].item() == pytest.approx(carry + value, abs=2e-5)
    assert kinds == {"terminated", "truncated", "open"}


def test_a_normaliser_counts_the_observations_of_training() -> None:
    environments = gymnasium.make_vec("CartPole-v1", num_envs=COPIES, vectorization_mode="sync")
    policy = NetworkPolicy(observations=4, actions=2, hidden=(8,), normalise=True)
    normaliser = policy.normaliser
    assert normaliser is not None
    source = StepSource(environments, policy, seed=1, generator=torch.Generator().manual_seed(4), training=True)
    seen = []
    for _ in range(3):
        counted = np.concatenate(seen) if seen else None
        batch = source.fragments(STEPS)
        shift = np.zeros(4) if counted is None else counted.mean(0)
        np.testing.assert_allclose(normaliser.shift, shift, rtol=1e-12)  # that of the fragments before
        torch.testing.assert_close(policy.evaluate(batch).logp[batch.mask], batch.rollout_logp[batch.mask])
        seen.append(batch.extras["observation"][:, :-1][batch.mask].double().numpy())
    everything = np.concatenate(seen)
    assert normaliser.count == len(everything)
    np.testing.assert_allclose(normaliser.mean, everything.mean(0), rtol=1e-12)
    np.testing.assert_allclose(normaliser.squares / normaliser.count, everything.var(0), rtol=1e-10)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    StepSource(environments, policy, seed=1, generator=torch.Generator()).fragments(STEPS)  # an evaluation
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_log_densities_above_0_are_learned_from() -> None:
    source, policy = source_of("Pendulum-v1")
    assert policy.log_std is not None
    with torch.no_grad():
        policy.log_std.fill_(-4.0)
    batch = source.fragments(STEPS)
    assert batch.rollout_logp.max() > 0
    check_values(batch, by="a test", evaluation=policy.evaluate(batch))


def test_rewards_of_whole_numbers_are_real_numbers() -> None:
    """Environments may return integers; later steps' fractions are kept."""

    class Whole(gymnasium.vector.VectorEnv[Any, Any, Any]):
        metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
        num_envs = 2
        single_observation_space = gymnasium.spaces.Box(-1, 1, (3,))
        single_action_space = gymnasium.spaces.Discrete(2)

        def reset(self, **_: Any) -> Any:
            self.count = 0
            return np.zeros((2, 3)), {}

        def step(self, actions: Any) -> Any:
            self.count += 1
            reward = np.array([self.count, 0]) if self.count < 3 else np.array([0.5, 0.25])
            return np.zeros((2, 3)), reward, np.zeros(2, bool), np.zeros(2, bool), {}

    policy = NetworkPolicy(observations=3, actions=2)
    found = StepSource(Whole(), policy, seed=0, generator=torch.Generator()).fragments(3)
    assert found.reward.tolist() == [[1.0, 2.0, 0.5], [0.0, 0.0, 0.25]]
