"""Policies with a memory, against recurrences written out in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Generator, Tensor

from polopt.experience import Experience
from polopt.methods.ppo import control_ppo
from polopt.networks import MemoryNetwork, Recurrent
from polopt.policies.network import NetworkPolicy
from polopt.sampling import Memory
from polopt.step_source import StepSource

UNITS = 3


class Short(gymnasium.Env[Any, Any]):
    """Episodes of 2 to 5 steps, of which the longer ones are cut; what is seen is random. Two actions or a vector."""

    def __init__(self, choices: bool) -> None:
        self.observation_space: Any = Dict(
            {"observation": Box(-9, 9, (2,), np.float32), "privileged": Box(-9, 9, (1,), np.float32)}
        )
        self.action_space: Any = Discrete(3) if choices else Box(-1.0, 1.0, (2,), np.float32)

    def shown(self) -> dict[str, Any]:
        seen = self.np_random.normal(size=3).astype(np.float32)
        return {"observation": seen[:2], "privileged": seen[2:]}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 6))
        self.cut = self.left > 3
        return self.shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        over = self.left == 0
        return self.shown(), float(np.mean(action)), over and not self.cut, over and self.cut, {}


def policy_of(choices: bool, **settings: Any) -> NetworkPolicy:
    made: dict[str, Any] = {"actions": 3} if choices else {"dimensions": 2}
    made |= {"observations": 2, "privileged": 1, "inputs": {"memory": 2 * UNITS}, "trunk": Recurrent(hidden=(5,))}
    policy = NetworkPolicy(**made | settings)
    draw = Generator().manual_seed(7)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.7, generator=draw)
    return policy


def played(choices: bool, mode: AutoresetMode, steps: int = 9, fragments: int = 2) -> tuple[NetworkPolicy, Experience]:
    """The last of some fragments of a policy with random weights, in which episodes begin and end."""
    policy = policy_of(choices)
    environments = SyncVectorEnv([lambda: Short(choices)] * 4, autoreset_mode=mode)
    source = StepSource(
        environments, policy, seed=0, generator=Generator().manual_seed(0), policy_input=Memory(units=UNITS)
    )
    batches = [source.fragments(steps) for _ in range(fragments)]
    assert (batches[-1].terminated.sum() > 1) & (batches[-1].truncated.sum() > 1)
    return policy, batches[-1]


def gru(weights: dict[str, Tensor], x: Tensor, h: Tensor) -> Tensor:
    """One step of the cell, as Cho et al. define it, with torch's order of the gates and its place of the bias."""
    i = weights["weight_ih_l0"] @ x + weights["bias_ih_l0"]
    g = weights["weight_hh_l0"] @ h + weights["bias_hh_l0"]
    (ir, iz, inew), (gr, gz, gnew) = i.chunk(3), g.chunk(3)
    r, z = 1 / (1 + (-(ir + gr)).exp()), 1 / (1 + (-(iz + gz)).exp())
    return (1 - z) * (inew + r * gnew).tanh() + z * h


def written_out(policy: NetworkPolicy, batch: Experience, weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Log-probabilities and values of a batch [N, T], decision by decision, in float64."""
    extras, choices = batch.extras, policy.space.actions is not None
    logps, values = torch.zeros(batch.mask.shape, dtype=torch.float64), torch.zeros(batch.mask.shape).double()
    of = {part: {k.split("cell.")[1]: v for k, v in weights.items() if k.startswith(f"{part}.cell")} for part in
          ("actor", "critic")}  # fmt: skip

    def perceptron(part: str, x: Tensor) -> Tensor:
        w = {k.removeprefix(f"{part}.network."): v for k, v in weights.items()}
        return w["2.weight"] @ (w["0.weight"] @ x + w["0.bias"]).tanh() + w["2.bias"]

    rows = []
    for n in range(len(batch)):
        memory = extras["memory"][n, 0].double()
        for t in range(batch.mask.shape[1]):
            if not batch.mask[n, t]:
                memory = torch.zeros(2 * UNITS).double()
                continue
            s, p = extras["observation"][n, t].double(), extras["privileged"][n, t].double()
            output = perceptron("actor", torch.cat([s, memory[:UNITS]]))
            action = extras["action"][n, t]
            if choices:
                logp = output.log_softmax(-1)[action]
                taken = torch.eye(3).double()[action]
            else:
                law = torch.distributions.Normal(output, weights["log_std"].exp())
                logp, taken = law.log_prob(action.double()).sum(), action.double()
            rows.append((n, t, logp, perceptron("critic", torch.cat([s, memory[UNITS:], p]))[0]))
            x = torch.cat([s, taken])
            memory = torch.cat([gru(of["actor"], x, memory[:UNITS]), gru(of["critic"], x, memory[UNITS:])])
            if batch.terminated[n, t] or batch.truncated[n, t]:
                memory = torch.zeros(2 * UNITS).double()
    for n, t, logp, value in rows:
        logps = logps.index_put((torch.tensor(n), torch.tensor(t)), logp)
        values = values.index_put((torch.tensor(n), torch.tensor(t)), value)
    return logps, values


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("choices", [True, False])
def test_it_learns_from_what_it_acted_by(choices: bool, mode: AutoresetMode) -> None:
    """Before the first step log-probabilities are those of the rollout, whose memories went through earlier fragments,
    and the memories those that were acted by."""
    policy, batch = played(choices, mode)
    found = policy.evaluate(batch, {"value"})
    where = batch.mask
    torch.testing.assert_close(found.logp[where], batch.rollout_logp[where], rtol=1e-4, atol=1e-5)
    begins = (batch.extras["memory"] == 0).all(-1)
    ended = (batch.terminated | batch.truncated)[:, :-1] & where[:, 1:]
    assert ended.any() or mode == AutoresetMode.NEXT_STEP
    assert begins[:, 1:][ended].all()
    assert not begins[:, 1:][where[:, :-1] & where[:, 1:] & ~ended].any()
    final = torch.cat([batch.extras.get("final_observation", batch.extras["observation"][:, 1:]),
                       batch.extras["final_memory"], batch.extras["final_privileged"]], -1)  # fmt: skip
    torch.testing.assert_close(found.final_value[where], policy.critic(final)[..., 0].detach()[where])


@pytest.mark.parametrize("choices", [True, False])
def test_outputs_and_gradients_are_those_of_the_recurrence(choices: bool) -> None:
    policy, batch = played(choices, AutoresetMode.NEXT_STEP)
    assert not batch.mask.all()
    for parameter in policy.parameters():  # not those that acted
        torch.nn.init.normal_(parameter, std=0.5, generator=Generator().manual_seed(parameter.numel()))
    found = policy.evaluate(batch, {"value"})
    weights = {k: v.detach().double().requires_grad_() for k, v in policy.named_parameters()}
    logp, value = written_out(policy, batch, weights)
    where = batch.mask
    torch.testing.assert_close(found.logp[where].double(), logp[where], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.value[where].double(), value[where], rtol=1e-4, atol=1e-5)
    factor = torch.randn(batch.mask.shape, generator=Generator().manual_seed(1))
    (factor * (found.logp + found.value))[where].sum().backward()
    (factor.double() * (logp + value))[where].sum().backward()
    for name, parameter in policy.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad.double(), weights[name].grad, rtol=1e-3, atol=1e-4)


def test_masked_decisions_give_nothing() -> None:
    policy, batch = played(True, AutoresetMode.NEXT_STEP)
    observation = batch.extras["observation"].clone()
    observation[:, :-1][~batch.mask] = float("nan")
    poisoned = batch.replace(extras={**batch.extras, "observation": observation})
    gradients = []
    for rows in (batch, poisoned):
        policy.zero_grad()
        found = policy.evaluate(rows, {"value"})
        torch.where(rows.mask, found.logp, 0).sum().backward()
        gradients.append([p.grad.clone() for p in policy.actor.cell.parameters()])  # type: ignore[union-attr]
    for one, other in zip(*gradients, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)


def test_rows_are_independent_of_their_company() -> None:
    policy, batch = played(False, AutoresetMode.SAME_STEP)
    whole = policy.evaluate(batch).logp
    parts = [policy.evaluate(batch[torch.tensor(rows)]).logp for rows in ([3, 0], [1, 2])]
    torch.testing.assert_close(torch.cat(parts), whole[[3, 0, 1, 2]])


def test_normalised_observations_are_what_it_remembers() -> None:
    policy = policy_of(True, normalise=True)
    assert policy.normaliser is not None
    policy.normaliser.observe(5 + 3 * torch.randn(100, 2))
    policy.normaliser.advance()
    memory, seen, action = torch.randn(4, 2 * UNITS), 5 + torch.randn(4, 2), torch.tensor([0, 2, 1, 1])
    plain = policy_of(True)
    plain.load_state_dict({k: v for k, v in policy.state_dict().items() if not k.startswith("normaliser")})
    expected = plain.remember(memory, policy.normaliser(seen), action)
    torch.testing.assert_close(policy.remember(memory, seen, action), expected)
    assert not torch.allclose(plain.remember(memory, seen, action), expected)


def test_ppo_takes_its_step_on_fragments() -> None:
    made = control_ppo(gamma=0.9, lam=0.9, clip=0.2, entropy=0.01, steps=9)
    policy, batch = played(True, AutoresetMode.SAME_STEP)
    with torch.no_grad():
        before = policy.evaluate(batch, {"value"})
    batch = made.with_advantages(
        batch.replace(old_logp=before.logp, value=before.value, final_value=before.final_value)
    )
    outputs = made.objective.required_outputs
    made.objective(batch, policy.evaluate(batch, outputs)).loss.backward()
    assert isinstance(policy.actor, MemoryNetwork)
    assert all(float(p.grad.abs().sum()) > 0 for p in policy.actor.cell.parameters() if p.grad is not None)
    assert not policy.per_decision


def test_a_saved_policy_remembers_the_same(tmp_path: Path) -> None:
    policy = policy_of(False)
    policy.save(tmp_path)
    again = NetworkPolicy.load(tmp_path)
    given = torch.randn(4, 2 * UNITS), torch.randn(4, 2), torch.randn(4, 2)
    assert torch.equal(policy.remember(*given), again.remember(*given))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": {}}, "set sampling.policy_input to sampling.Memory with name = memory"),
        ({"inputs": {"memory": 5}}, "two memories of as many units"),
        ({"inputs": {"memory": 6, "skill": 2}}, "two memories of as many units"),
    ],
)
def test_policies_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_of(True, **settings)


def test_memories_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="units must be >= 1, found 0"):
        Memory(units=0)
