"""HNPG's rows, its limits and its refusals, and the lock it is measured on."""

from __future__ import annotations

import pytest
import torch

from polopt.claims.problems.lock_runs import BatchSteps, LoggedWorldSource, log_of
from polopt.experience import Experience
from polopt.methods.hnpg import hnpg
from polopt.methods.trpo import trpo
from polopt.network_training import NetworkTraining
from polopt.policies.network import NetworkPolicy
from polopt.training.learner import Learner
from polopt.training.specs import StageSpec
from polopt.updates import BatchLoss, PlainSettings
from polopt.worlds.control import CombinationLock, LockRule, RandomRule, episode_returns


def batch_of(policy: NetworkPolicy, logged: float, seed: int = 0) -> Experience:
    """Returns a batch of 8 episodes of a short lock, and of its log."""
    world = CombinationLock(8, actions=4, horizon=5)
    log = log_of(0, 0.5, 40, actions=4, horizon=5)
    source = LoggedWorldSource(world, policy, seed, log)
    return hnpg(logged_per_played=logged, steps=5, gamma=1.0).sampling(source)


def test_rows_are_of_both_kinds() -> None:
    policy = NetworkPolicy(observations=15, actions=4, hidden=(8,))
    rows = batch_of(policy, 0.5)
    assert rows.mask.shape == (60, 1)
    assert int(rows.extras["logged"].sum()) == 20
    assert bool(rows.terminated[:40].all())
    by_step = rows.reward[:40, 0].view(8, 5)
    assert bool((by_step[:, 0] >= by_step[:, -1] - 1e-6).all() | (by_step[:, 0] > 0.9).any())
    assert not batch_of(policy, 0.0).extras["logged"].any()


def test_without_a_log_the_step_is_that_of_trpo_with_the_critic_as_baseline() -> None:
    algorithm = hnpg(logged_per_played=0.0, steps=5, gamma=1.0, hidden=(8,), damping=1e-2)
    policies = [NetworkPolicy(observations=15, actions=4, hidden=(8,), seed=3) for _ in range(2)]
    networks = NetworkTraining(policies[0], algorithm, 1e-3, torch.Generator().manual_seed(0))
    rows = batch_of(policies[0], 0.0)
    with torch.no_grad():
        logp = policies[0].evaluate(rows).logp
        chance = policies[0].choice_logp(rows.extras["observation"][:, :1]).exp()
        table = torch.stack(
            [networks.modules["critic"](rows.extras["observation"][:, :1], torch.full((40, 1), a)) for a in range(4)], 2
        )[..., 0]
    rows = rows.replace(old_logp=logp, rollout_logp=logp)
    returns = rows.reward  # gamma 1, and every episode ends
    other = rows.replace(advantage=returns - (chance * table).sum(-1))
    own = networks.relabelled(rows.replace(advantage=torch.zeros_like(logp)))
    plain = trpo(damping=1e-2).but({"objective.regularise": []})
    pairs = ((policies[0], algorithm, own), (policies[1], plain, other))
    for policy, each, batch in pairs:
        evaluate = networks.evaluate if policy is policies[0] else lambda b, _: policies[1].evaluate(b)
        loss = BatchLoss(policy, each.objective, lambda b, o=each.objective, e=evaluate: e(b, o), [batch])  # type: ignore[misc]
        each.update.begin(list(policy.parameters()), PlainSettings(lr=0.1)).step_on_batch(loss)
    for first, second in zip(policies[0].parameters(), policies[1].parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)
    start = NetworkPolicy(observations=15, actions=4, hidden=(8,), seed=3)
    moved = [(a - b).abs().max() for a, b in zip(policies[0].actor.parameters(), start.actor.parameters(), strict=True)]
    assert max(moved) > 1e-3


def test_the_policy_steps_after_its_critic() -> None:
    algorithm = hnpg(steps=5, gamma=1.0, hidden=(8,), critic_lr=1e-2)
    policy = NetworkPolicy(observations=15, actions=4, hidden=(8,))
    before = [p.detach().clone() for p in policy.parameters()]
    stage = StageSpec(steps=1, rows=8, epochs=2, minibatches=2)
    learner = Learner(policy, algorithm, stage, torch.Generator().manual_seed(0))
    first = [p.clone() for p in learner.networks.modules["critic"].parameters()]
    rows = learner.assess(batch_of(policy, 1.0), algorithm.active_fields("reads"), {})
    seen: list[bool] = []
    right = learner.networks.relabelled

    def relabelled(batch: Experience) -> Experience:
        now = learner.networks.modules["critic"].parameters()
        seen.append(any(bool((a != b).any()) for a, b in zip(first, now, strict=True)) and len(batch) == 80)
        return right(batch)

    learner.networks.relabelled = relabelled  # type: ignore[method-assign]
    metrics = learner.update(algorithm.compute_advantages(rows), 0)
    assert seen == [False] * 4 + [True]
    assert 0 < metrics["update/kl"] <= 0.01
    assert any(bool((a != b).any()) for a, b in zip(before, policy.parameters(), strict=True))
    assert metrics["critic/loss"] > 0


def test_the_problems_steps_are_the_learners() -> None:
    """With one minibatch, whose order does not matter."""
    algorithm = hnpg(steps=5, gamma=1.0, hidden=(8,), critic_lr=1e-2)
    policies = [NetworkPolicy(observations=15, actions=4, hidden=(8,)) for _ in range(2)]
    stage = StageSpec(steps=1, rows=8, epochs=3, minibatches=1)
    learner = Learner(policies[0], algorithm, stage, torch.Generator().manual_seed(0))
    steps = BatchSteps(algorithm, policies[1], stage.optimiser.lr, 0)
    batch = batch_of(policies[0], 1.0)
    rows = learner.assess(batch, algorithm.active_fields("reads"), {})
    first = learner.update(algorithm.compute_advantages(rows), 0)
    second = steps.update(batch, epochs=3, minibatches=1)
    assert first["update/kl"] == pytest.approx(second["update/kl"], rel=1e-3)
    pairs = zip(policies[0].parameters(), policies[1].parameters(), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in pairs)
    critics = [made.modules["critic"].parameters() for made in (learner.networks, steps.networks)]
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*critics, strict=True))


def test_a_lock_opens_to_its_code_alone() -> None:
    world = CombinationLock(256, actions=4, horizon=6, shaping=0.12)
    assert episode_returns(world, LockRule().prepare(world)).tolist() == [1.0] * 256
    lost = episode_returns(world.again(256), RandomRule(actions=4), 1)
    assert float(lost.mean()) < 0.2
    assert float(lost.max()) <= 0.12 + 1e-6 or float(lost.max()) == 1.0
    with pytest.raises(ValueError, match="actions >= 2"):
        CombinationLock(1, actions=1)
    with pytest.raises(ValueError, match="prepare it"):
        LockRule()(torch.zeros(1, 18), torch.Generator())
    with pytest.raises(ValueError, match="epsilon must be in"):
        LockRule(epsilon=2.0)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="steps >= 1, logged_per_played >= 0 and gamma"):
        hnpg(logged_per_played=-1.0)
    with pytest.raises(ValueError, match="should be 'return' or 'critic'"):
        hnpg(advantage="none")  # type: ignore[arg-type]
