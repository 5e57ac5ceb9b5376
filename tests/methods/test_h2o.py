"""H2O's loss from its formula in float64, and its batches."""

import pytest
import torch

from polopt.claims.problems.walled_line import WalledLine, real_log
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.stepped import StoredWorldSource
from polopt.methods.h2o import RealTransitionWeight, SimulatedValuePenalty, h2o
from polopt.network_training import NetworkTraining
from polopt.networks import Space, VectorNetwork
from polopt.outputs import NetworkOutput
from polopt.policies.network import NetworkPolicy
from polopt.sampling import TransitionReplay, transition_rows
from polopt.support import PLAIN

GAMMA, BETA = 0.9, 0.3


def line_policy() -> NetworkPolicy:
    return NetworkPolicy(observations=1, dimensions=1, head="squashed_gaussian", low=[-1.0], high=[1.0], hidden=(8,))


def source(policy: NetworkPolicy, seed: int = 0) -> StoredWorldSource:
    world, draw = WalledLine(wall=False, seed=seed), torch.Generator().manual_seed(seed)
    return StoredWorldSource(world, policy, 4, draw, None, real_log(50, seed))


def rows_in_float64(count: int = 12) -> Experience:
    draw = torch.Generator().manual_seed(3)
    normal = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64)  # noqa: E731
    columns = {"observation": normal(count, 1), "next_observation": normal(count, 1), "reward": normal(count)}
    columns |= {"action": normal(count, 1).tanh(), "terminated": torch.arange(count) % 3 == 0}
    columns |= {"truncated": torch.zeros(count, dtype=torch.bool), "logged": torch.arange(count) % 2 == 1}
    return transition_rows(columns, PLAIN).replace(group=torch.zeros(count, dtype=torch.int64))


def test_the_losses_are_those_of_the_formula():
    algorithm, policy = h2o(hidden=(8,), gamma=GAMMA, beta=BETA, least=0.4), line_policy().double()
    networks = NetworkTraining(policy, algorithm, 1e-3, torch.Generator().manual_seed(0))
    for module in (*networks.modules.values(), *networks.targets.values()):
        module.double()
    batch = networks.relabelled(rows_in_float64())
    s, a = batch.extras["observation"][:, 0], batch.extras["action"][:, 0]
    after = batch.extras["observation"][:, 1]
    logged, reward = batch.extras["logged"][:, 0], batch.reward[:, 0]
    with torch.no_grad():
        pair = networks.modules["action_odds"](s, a)[:, 0]
        gap = networks.modules["transition_odds"](s, a, after)[:, 0]
        assert torch.equal(gap, batch.extras["dynamics_gap"][:, 0])
        expected = sum(
            torch.where(logged, (1 + odds.exp()).log(), (1 + (-odds).exp()).log()).mean() for odds in (pair, pair + gap)
        )
        spec = algorithm.networks[0].objective
        assert torch.allclose(spec(batch, networks.evaluate(batch, spec)).loss, expected)

        state = networks._generator.get_state()
        action = policy.propose(after, networks._generator).action
        networks._generator.set_state(state)
        value = networks.targets["critic"](after, action).amin(1)
        target = reward + GAMMA * torch.where(batch.terminated[:, 0], 0, value)
        q = networks.modules["critic"](s, a)
        weight = torch.where(logged, 1, (-gap).exp().clamp(0.4, 1))
        squared = weight[:, None] * (q - target[:, None]).square()
        penalty = (gap[~logged].clamp(1e-8, 10).log()[:, None] + q[~logged]).exp().sum(0).log() - q[logged].mean(0)
        whole = (squared[logged].mean(0) + squared[~logged].mean(0) + BETA * penalty).sum()
        loss = algorithm.networks[2].objective
        assert algorithm.networks[2].name == "critic"
        assert torch.allclose(loss(batch, networks.evaluate(batch, loss)).loss, whole / 2, rtol=1e-10)


def test_a_batch_holds_both_kinds_throughout():
    policy = line_policy()
    batch = TransitionReplay(rows=40, logged=0.25, start=10)(source(policy))
    for eight in batch.extras["logged"][:, 0].chunk(5):
        assert int(eight.sum()) == 2


@pytest.mark.parametrize("logged", [0.0, 1.0])
def test_a_batch_of_one_kind_has_no_such_column(logged):
    sampling = TransitionReplay(rows=8, logged=logged, start=10)
    assert "logged" not in sampling(source(line_policy())).extras
    assert "extras.logged" not in sampling.writes


def test_the_penalty_is_that_of_each_group_and_leaves_out_masked_rows():
    batch = rows_in_float64()
    mask = batch.mask.clone()
    mask[4:6] = False
    gap = torch.linspace(0.5, 2, 12, dtype=torch.float64)[:, None]
    extras = {**batch.extras, "dynamics_gap": gap, "logged": torch.arange(12)[:, None] % 2 == 1}
    extras["logged"][6:] = True  # the second group is of logged rows alone
    batch = batch.replace(mask=mask, group=torch.arange(12) // 6, extras=extras)
    critic = torch.randn(12, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    name = NetworkOutput("critic").name.removeprefix("extras.")
    logp = torch.zeros(12, 1, dtype=torch.float64)
    terms = SimulatedValuePenalty()(batch, Evaluation(logp=logp, support=PLAIN, extras={name: critic}))
    simulated, real = critic[[0, 2], 0], critic[[1, 3], 0]
    first = ((gap[[0, 2]] * simulated.exp()).sum(0).log() - real.mean(0)).sum()
    assert torch.allclose(terms[:4], first.expand(4, 1))
    assert terms[4:6].tolist() == [[0.0], [0.0]]
    assert torch.allclose(terms[6:], -critic[6:].mean((0, 1)).sum().expand(6, 1))


def test_numbers_of_a_limited_network():
    network = VectorNetwork(outputs=2, hidden=(4,), limit=3.0).build(Space(1), torch.Generator().manual_seed(0))
    plain = VectorNetwork(outputs=2, hidden=(4,)).build(Space(1), torch.Generator().manual_seed(0))
    far = torch.tensor([[1000.0], [0.5]])
    assert torch.allclose(network(far), 3 * plain(far).tanh())
    with pytest.raises(ValueError, match="limit must be > 0, found 0"):
        VectorNetwork(limit=0.0)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="least must be in"):
        RealTransitionWeight(least=2.0)
    with pytest.raises(ValueError, match="largest must be"):
        SimulatedValuePenalty(largest=0.0)
