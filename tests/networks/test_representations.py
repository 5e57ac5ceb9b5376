"""Losses of vectors against their formulas written out, columns given by networks, and a step on a joint loss."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.lab.transitions import decisions
from polopt.methods.metra import metra
from polopt.methods.zero_shot_rl import task_of_rewards, zero_shot_rl
from polopt.network_training import NetworkTraining
from polopt.networks import LearnedNetwork, VectorNetwork
from polopt.objectives import NetworkRegression
from polopt.outputs import NetworkOutput, Proposal, output_of
from polopt.policies.network import NetworkPolicy
from polopt.sampling import on_sphere, transition_rows

D = 3


def rows(count: int = 8) -> Experience:
    log = decisions(count, 0, lambda s, g: torch.rand(len(s), generator=g), lambda s, a: s)
    after = torch.randn(count, 1, generator=torch.Generator().manual_seed(1))
    return transition_rows(log | {"next_observation": after}, NetworkPolicy(observations=1, dimensions=1).head.support)


def training(kind: str, **settings: object) -> NetworkTraining:
    algorithm = zero_shot_rl(conservative=kind, weight=0.3, dimensions=D, gamma=0.9, hidden=(5,), actions=2, **settings)  # type: ignore[arg-type]
    policy = NetworkPolicy(
        observations=1,
        dimensions=1,
        head="deterministic",
        low=[-1.0],
        high=[1.0],
        hidden=(4,),
        inputs={"task_vector": D},
    )
    found = NetworkTraining(policy, algorithm, 1e-3, torch.Generator().manual_seed(0))
    for module in found.targets.values():
        for p in module.parameters():
            p.add_(0.1)
    return found


@pytest.mark.parametrize("kind", ["none", "values", "measures"])
def test_forward_backward_loss_pair_by_pair(kind: str) -> None:
    found = training(kind, noise=0.0)
    batch = found.relabelled(rows().replace(group=torch.tensor([0] * 5 + [1] * 3)))
    objective = found.specs["forward"].objective
    assert objective is not None
    loss = objective(batch, found.evaluate(batch, objective)).loss
    s, after = batch.extras["observation"].unbind(1)
    a, z = batch.extras["action"][:, 0], batch.extras["task_vector"][:, 0]
    over = batch.terminated[:, 0]
    F, B, slow_F, slow_B = (m[n] for m in (found.modules, found.targets) for n in ("forward", "backward"))
    next_a = found.policy.propose(torch.cat([after, z], -1), torch.Generator()).action
    f, b = F(s, z, a), B(after)
    slow_f, slow_b = slow_F(after, z, next_a), slow_B(after)
    several = batch.extras["candidate_actions"][:, 0]
    terms = []
    for group in (range(5), range(5, 8)):
        for i in group:
            term = -(f[i] @ b[i]).sum() - 2 * b[i] @ b[i]
            for j in group:
                if j != i:
                    slow = 0 if over[i] else 0.9 * (slow_f[i] @ slow_b[j]).min()
                    error = (f[i] @ b[j] - slow).square().sum() / 2 + (b[i] @ b[j]).square()
                    term = term + error / (len(group) - 1)
            by_action = torch.stack([F(s[i, None], z[i, None], action[None])[0] for action in several[i]])
            if kind == "values":
                term = term + 0.3 * ((by_action @ z[i]).logsumexp(0) - f[i] @ z[i]).sum()
            if kind == "measures":
                gaps = [((by_action @ b[j]).logsumexp(0) - f[i] @ b[j]).sum() for j in group]
                term = term + 0.3 * sum(gaps) / len(gaps)
            terms.append(term)
    torch.testing.assert_close(loss, torch.stack(terms).mean())


def test_both_networks_take_a_step_on_the_one_loss() -> None:
    found = training("values")
    before = {name: [p.clone() for p in module.parameters()] for name, module in found.modules.items()}
    found.begin_minibatch()
    found.step(found.relabelled(rows()))
    for name, module in found.modules.items():
        assert all(not torch.equal(p, q) for p, q in zip(module.parameters(), before[name], strict=True)), name
    assert all(not p.requires_grad for module in found.modules.values() for p in module.parameters())


def test_tasks_are_of_states_or_uniform_and_candidates_hold_the_logged_action() -> None:
    found = training("values", mix=0.5)
    batch = found.relabelled(rows(400))
    task = batch.extras["task_vector"][:, 0]
    torch.testing.assert_close(task.norm(dim=1), torch.full((400,), D**0.5))
    states = found.modules["backward"](batch.extras["observation"][:, 1])
    of_states = (torch.cdist(task, states).amin(1) < 1e-5).float().mean()
    assert 0.4 < of_states < 0.6
    several = batch.extras["candidate_actions"]
    assert several.shape == (400, 1, 5, 1)
    assert (several == batch.extras["action"][:, :, None]).any(2).all()
    inferred = found.algorithm.relabel[0].evaluation_input()
    assert inferred is not None
    value = torch.tensor(inferred.value)
    expected = task_of_rewards(found.modules["backward"], batch.extras["observation"][:, 1], batch.reward[:, 0])
    torch.testing.assert_close(value, expected)


def test_the_task_of_a_reward_is_linear_in_it_before_its_length() -> None:
    found = training("none")
    seen, r, q = torch.randn(9, 1), torch.randn(9), torch.randn(9)
    B: Tensor = found.modules["backward"](seen)
    expected = on_sphere(((2 * r - q)[:, None] * B).sum(0))
    torch.testing.assert_close(task_of_rewards(found.modules["backward"], seen, 2 * r - q), expected)


def test_names_of_outputs_at_columns_are_read_back() -> None:
    for target, after, proposal in itertools.product((False, True), (False, True), (None, Proposal())):
        output = NetworkOutput("forward", target, after, proposal, column=None if proposal else "candidate_actions")
        assert output_of(output.name) == output


def test_each_network_needs_one_loss() -> None:
    extra = LearnedNetwork(name="other", network=VectorNetwork(hidden=(4,)), objective=None)
    made = metra(hidden=(4,))
    with pytest.raises(ValueError, match="every network needs one loss"):
        made.but(networks=[*made.networks, extra]).check_networks()
    twice = extra.but(name="encoder_2", objective=NetworkRegression(), together_with=("critic",))
    with pytest.raises(ValueError, match="every network needs one loss"):
        made.but(networks=[*made.networks, twice]).check_networks()
