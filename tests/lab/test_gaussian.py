"""The lab's denoising chain is exact, and GRPO-Guard's ratio on it is what its formula says."""

from __future__ import annotations

import itertools
import math
import statistics

import loops
import pytest
import torch
from batches import SampleBatch, gaussian_batch, random_batch

import polopt as po
from polopt.lab import ChainSource, GaussianChain, learning
from polopt.methods.grpo_guard import GRPOGuardRatio, InverseTimeStep
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.sampling.parts import RolloutRequest

SEEDS = pytest.mark.parametrize("seed", range(4))
STD, DT = [0.5, 0.3, 0.1], [0.4, 0.4, 0.2]


def chain(seed: int = 0, dimensions: int = 2) -> GaussianChain:
    made, g = GaussianChain(dimensions, STD, DT), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        made.matrix.copy_(torch.randn(3, dimensions, dimensions, generator=g))
        made.shift.copy_(torch.randn(3, dimensions, generator=g))
    return made


# The lab ------------------------------------------------------------------------------------------------------


def test_a_chain_ends_where_it_says() -> None:
    made = chain()
    points = made.sample(200_000, torch.Generator().manual_seed(0)).extras["point"]
    mean, covariance = made.final()
    error = (covariance.diagonal() / len(points)).sqrt()
    assert ((points.mean(0) - mean).abs() < 4 * error).all()
    torch.testing.assert_close(points.T.cov(), covariance, rtol=0.03, atol=0.03)
    centre = torch.tensor([0.5, -1.0], dtype=torch.double)
    bump = torch.exp(-(points - centre).square().sum(-1) / (2 * 0.7**2))
    expected = made.expected_bump(centre, 0.7).item()
    assert abs(bump.mean().item() - expected) < 4 * bump.std().item() / len(points) ** 0.5
    assert expected > 0.02


def test_a_chain_says_the_density_of_its_steps() -> None:
    made, other = chain(0), chain(1)
    batch = made.sample(5, torch.Generator().manual_seed(0))
    for policy in (made, other):
        said = policy.evaluate(batch, frozenset({"extras.mean"}))
        for t in range(3):
            state, action = batch.extras["state"][:, t], batch.extras["action"][:, t]
            mean = state + DT[t] * (state @ policy.matrix[t].T + policy.shift[t])
            normal = torch.distributions.Normal(mean, STD[t])
            torch.testing.assert_close(said.logp[:, t], normal.log_prob(action).sum(-1))
            torch.testing.assert_close(said.extras["mean"][:, t], mean)
    torch.testing.assert_close(batch.rollout_logp, made.evaluate(batch).logp.detach())
    assert not batch.rollout_logp.requires_grad
    torch.testing.assert_close(batch.extras["state"][:, 1:], batch.extras["action"][:, :-1])


def test_a_chain_learns_the_gradient_of_its_expected_reward() -> None:
    """The score function's mean over many draws is the exact gradient of the expected bump."""
    made, centre = chain(), torch.tensor([0.5, 0.0], dtype=torch.double)
    source = ChainSource(made, lambda x: torch.exp(-(x - centre).square().sum(-1) / 2), rows=1)
    algorithm = po.method("reinforce").but(**{"sampling.group": 50_000})
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    (found,) = torch.autograd.grad(algorithm.objective(batch, made.evaluate(batch)).loss, made.shift)
    (exact,) = torch.autograd.grad(made.expected_bump(centre, 1.0), made.shift)
    assert torch.nn.functional.cosine_similarity(-found.flatten(), exact.flatten(), dim=0) > 0.99
    assert (-found - exact).norm() < 0.15 * exact.norm()


def test_a_chain_learns_with_grpo_guard() -> None:
    made, centre = GaussianChain(2, STD, DT), torch.tensor([1.5, 0.0], dtype=torch.double)
    source = ChainSource(made, lambda x: torch.exp(-(x - centre).square().sum(-1) / 2), rows=64)
    before = made.expected_bump(centre, 1.0).item()
    algorithm = po.method("grpo-guard", group=16, clip=0.1, reduce="sum")
    for _ in itertools.islice(learning(algorithm, source, made, rate=0.3, epochs=2), 30):
        pass
    assert made.expected_bump(centre, 1.0).item() > 2 * before


@pytest.mark.parametrize(("std", "dt"), [([0.1], [0.1, 0.2]), ([0.0], [0.1]), ([0.1], [-0.1]), ([], [])])
def test_a_chain_refuses(std, dt) -> None:
    with pytest.raises(ValueError, match="std and dt need one positive number a step"):
        GaussianChain(2, std, dt)


# The ratio ----------------------------------------------------------------------------------------------------


@SEEDS
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_grpo_guard(seed: int, reduce: str) -> None:
    batch = gaussian_batch(seed)
    e, now = batch.experience, batch.leaves["logp"].tolist()
    mean, old = batch.leaves["extras.mean"].tolist(), e.extras["mean"].tolist()
    objective = po.method("grpo-guard", clip=0.05, reduce=reduce).objective
    loss = objective(e, batch.evaluation()).loss
    by_logp, by_mean = torch.autograd.grad(loss, [batch.leaves["logp"], batch.leaves["extras.mean"]])
    rows = loops.decisions(e)
    tokens, total = sum(map(len, rows)), 0.0
    for i, row in enumerate(rows):
        for t in row:
            s, dt, A = e.extras["std"][i, t].item(), e.extras["dt"][i, t].item(), e.advantage[i, t].item()
            apart = [m - o for m, o in zip(mean[i][t], old[i][t], strict=True)]
            shrink = 1 / 3 if reduce == "mean" else 1.0
            # Both log-probability and bias are reduced alike, then scaled by s.
            b = sum(a * a for a in apart) / (2 * s * s) * shrink
            rho = math.exp(((now[i][t] - e.rollout_logp[i, t].item()) * shrink + b) * s)
            value, by_ratio = loops.clipped(rho, A, 0.05, 0.05)
            total += value / dt / tokens
            pull = by_ratio * rho / dt / tokens * shrink
            assert by_logp[i, t].item() == pytest.approx(pull * s, abs=1e-10)
            assert by_mean[i, t].tolist() == pytest.approx([pull * a / s for a in apart], abs=1e-10)
    assert loss.item() == pytest.approx(total, abs=1e-10)
    assert (by_mean[~e.mask] == 0).all()


def test_the_log_ratio_is_the_noise_times_the_drift() -> None:
    """z (mu - mu'), whatever the noise level, and its gradient by the mean is z alone."""
    old, new = chain(0), chain(0)
    with torch.no_grad():
        new.shift.add_(torch.tensor([0.3, -0.2]))
    batch = old.sample(6, torch.Generator().manual_seed(1))
    said = new.evaluate(batch, frozenset({"extras.mean"}))
    z = (batch.extras["action"] - batch.extras["mean"]) / batch.extras["std"][..., None]
    drift = said.extras["mean"] - batch.extras["mean"]
    torch.testing.assert_close(GRPOGuardRatio(reduce="sum")(batch, said), (z * drift).sum(-1))
    torch.testing.assert_close(GRPOGuardRatio()(batch, said), (z * drift).mean(-1))
    (pull,) = torch.autograd.grad(GRPOGuardRatio(reduce="sum")(batch, said).sum(), new.shift)
    torch.testing.assert_close(pull, z.sum(0) * torch.tensor(DT)[:, None].double())


def test_without_its_three_changes_it_is_flow_grpo_and_on_policy_a_rescaled_score() -> None:
    made = chain()
    source = ChainSource(made, lambda x: x[:, 0], rows=32)
    algorithm = po.method("grpo-guard", group=8, clip=0.1, reduce="sum")
    batch = algorithm.compute_advantages(source.rollout(RolloutRequest(source.take(4), 8)))
    said = made.evaluate(batch, algorithm.objective.required_outputs)
    plain = algorithm.but(**{"objective.ratio": TokenRatio(), "objective.weights": []})
    assert po.diff(plain.objective, Surrogate(trust=Clip(low=0.1, high=0.1), aggregate=TokenMean())) == []
    # On policy rho = 1 and its slope is s times that of the plain ratio, per step; 1 / dt is the weight.
    ours = torch.autograd.grad(algorithm.objective(batch, said).loss, made.shift, retain_graph=True)[0]
    flow = torch.autograd.grad(plain.objective(batch, said).loss, made.shift)[0]
    torch.testing.assert_close(ours, flow * (torch.tensor(STD) / torch.tensor(DT)).double()[:, None])


def test_the_spread_of_the_log_ratio_is_the_distance_of_the_means() -> None:
    for std in (0.02, 0.5):
        old, new = GaussianChain(64, [std], [1.0]), GaussianChain(64, [std], [1.0])
        with torch.no_grad():
            new.shift.fill_(0.018)
        batch = old.sample(20_000, torch.Generator().manual_seed(3))
        found = GRPOGuardRatio(reduce="sum")(batch, new.evaluate(batch, frozenset({"extras.mean"})))[:, 0].tolist()
        assert statistics.stdev(found) == pytest.approx(0.144, rel=0.02)
        assert statistics.fmean(found) == pytest.approx(0.0, abs=4 * 0.144 / 20_000**0.5)


# The door -----------------------------------------------------------------------------------------------------


def refused(changes, message: str, leaves=None) -> None:
    batch = gaussian_batch(0)
    batch = SampleBatch(batch.experience.replace(extras=changes), {**batch.leaves, **(leaves or {})})
    objective = Surrogate(ratio=GRPOGuardRatio(), weights=[InverseTimeStep()])
    with pytest.raises(po.ExperienceError, match=message):
        objective(batch.experience, batch.evaluation())


def test_what_is_missing_or_misshaped_is_refused() -> None:
    e = gaussian_batch(0).experience
    with pytest.raises(po.ExperienceError, match=r"extras\['std'\] must be floating point of shape \[B, T\]"):
        e.replace(extras={"std": e.extras["std"][:, 0]})
    refused({"std": -e.extras["std"]}, r"extras\['std'\].*must be positive")
    refused({"dt": torch.zeros_like(e.extras["dt"])}, r"InverseTimeStep.*extras\['dt'\].*must be positive, found 0")
    refused({"mean": e.extras["mean"][..., :2]}, r"must be \[B, T, D\] alike, found \[9, 8, 2\] and \[9, 8, 3\]")
    bare = gaussian_batch(0)
    with pytest.raises(po.ExperienceError, match=r"needs evaluation\.extras\.mean"):
        Surrogate(ratio=GRPOGuardRatio())(bare.experience, po.Evaluation(logp=bare.leaves["logp"]))
    with pytest.raises(po.ExperienceError, match=r"needs experience\.extras\['std'\]"):
        Surrogate(ratio=GRPOGuardRatio())(
            random_batch(0).experience.replace(extras={"mean": e.extras["mean"]}), bare.evaluation()
        )
