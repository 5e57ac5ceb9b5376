"""Update rules in runs: resuming, micro-batches, the loss of A2C, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_control_runs import left_by, opened, recipe
from tiny_runs import Stop, StopAt

from polopt.config import ConfigError
from polopt.training.control.domain import ControlDomain
from polopt.training.launch import resume, train

RULES: dict[str, dict[str, Any]] = {
    "trpo": {"name": "trpo", "steps": 16},
    "a2c": {"name": "a2c", "steps": 16},
    "npg-igt": {"name": "npg-igt", "steps": 16},
    "harpg": {"name": "npg-igt", "steps": 16, "estimator": "harpg"},
}


def with_rule(name: str, **changes: Any) -> Any:
    return recipe(**{"stages.rl.method": RULES[name], "stages.rl.but": {}} | changes)


@pytest.mark.parametrize("name", RULES)
def test_a_resumed_run_is_the_undisturbed_one(tmp_path: Path, name: str) -> None:
    train(with_rule(name), tmp_path / "whole")
    with pytest.raises(Stop):
        train(with_rule(name), tmp_path / "cut", watchers=(StopAt(2),))
    resume(tmp_path / "cut")
    assert left_by(tmp_path / "cut") == left_by(tmp_path / "whole")


def test_a_natural_step_does_not_depend_on_micro_batches() -> None:
    """Of the policy, whose bound holds; and the critic's epochs and minibatches change the critic alone."""
    found = []
    for rows, epochs in ((None, 1), (3, 1), (1, 2)):
        changes = {"stages.rl.micro_rows": rows, "stages.rl.epochs": epochs, "stages.rl.minibatches": 1}
        domain, learner, batch = opened(with_rule("trpo", **changes))
        before = {k: v.clone() for k, v in domain.policy.named_parameters()}
        record = learner.update(batch, 0)
        assert 0 < record["update/kl"] <= 0.01
        assert record["update/improvement"] > 0
        found.append({k: v - before[k] for k, v in domain.policy.named_parameters()})
        domain.close()
    for name, step in found[0].items():
        assert step.abs().max() > 0
        torch.testing.assert_close(found[1][name], step, rtol=1e-6, atol=1e-10)
        same = torch.allclose(found[2][name], step, rtol=1e-6, atol=1e-10)
        assert same == name.startswith("actor")


def test_a2c_by_hand() -> None:
    """The loss of stable-baselines3's A2C, with n-step returns written out, and its gradient."""
    method = {"name": "a2c", "steps": 16, "gamma": 0.9, "value": 0.5, "entropy": 0.01}
    domain, _, batch = opened(recipe(**{"stages.rl.method": method, "stages.rl.but": {}}))
    policy, algorithm = domain.policy, domain.algorithms["rl"]
    mask, returns = batch.mask, torch.zeros_like(batch.value)
    for i in range(len(batch)):
        ahead = 0.0
        for t in reversed(range(mask.shape[1])):
            if not mask[i, t]:
                continue
            if batch.terminated[i, t]:
                ahead = 0.0
            elif batch.truncated[i, t] or t == mask.shape[1] - 1:
                ahead = float(batch.final_value[i, t])
            ahead = returns[i, t] = float(batch.reward[i, t]) + 0.9 * ahead
    state, action = batch.extras["observation"][:, :-1][mask], batch.extras["action"][mask]
    law, value = torch.distributions.Categorical(logits=policy.actor(state)), policy.critic(state)[:, 0]
    target = returns[mask].detach()
    advantage = target - batch.value[mask]
    loss = -(advantage * law.log_prob(action)).mean()
    loss = loss + 0.5 * torch.nn.functional.mse_loss(target, value) - 0.01 * law.entropy().mean()
    ours = algorithm.objective(batch, policy.evaluate(batch, algorithm.objective.required_outputs)).loss
    torch.testing.assert_close(ours, loss, rtol=1e-6, atol=1e-7)
    slopes = (torch.autograd.grad(x, list(policy.parameters())) for x in (ours, loss))
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    domain.close()


PENDULUM = {"environment.id": "Pendulum-v1", "policy.head": "deterministic"}
CLIMBS = {"method": {"name": "td3", "batch": 8, "start": 4}, "but": {"update": {"part": "updates.NaturalGradient"}}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"stages.rl.method": {"name": "trpo"}, "stages.rl.but": {}, **PENDULUM}, "'deterministic' has none"),
    ({"stages.rl.method": CLIMBS["method"], "stages.rl.but": CLIMBS["but"], **PENDULUM}, "samples actions"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=lambda value: str(value)[:20])
def test_refused_at_the_door(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ControlDomain(recipe(**changes))
