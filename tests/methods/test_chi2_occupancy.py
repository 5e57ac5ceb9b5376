"""Divergences between occupancies as rewards: policy gradients, the discriminator, what a proxy guarantees."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.capabilities import Lack
from polopt.claims.problems.proxies import chi_square, correlated_proxies, distance, loved_and_rare
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, flat_gradient
from polopt.lab.measure import learning
from polopt.lab.problems import digits
from polopt.lab.walks import StatePolicy, WalkSource
from polopt.methods.chi2_occupancy import AnswerRatio, Departure, departure, excess, trimmed_mean
from polopt.metrics import correlation, least_true_gain, proxy_hacking
from polopt.problems.mdp import TabularMDP, random_mdp
from polopt.rewards import Discriminator, KLPenalty
from polopt.sampling.parts import RolloutRequest
from polopt.training.provided import LANGUAGE

PROBLEM = correlated_proxies(3, seed=5, states=6, actions=3)


def some_logits() -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    return (PROBLEM.base.log() + 0.7 * torch.randn(PROBLEM.base.shape, generator=g)).requires_grad_()


@pytest.mark.parametrize(("kind", "factor"), [("kl", 1.0), ("chi2", 0.5), ("sqrt_chi2", 1.0), ("tv", 2.0)])
def test_as_a_reward_each_price_has_its_divergences_gradient(kind, factor) -> None:
    """The reward is held fixed; its gradient through the occupancy is that of the divergence by a linear solve."""
    logits = some_logits()
    mu = PROBLEM.mdp.occupancy(logits.softmax(-1))
    d, chi2 = (mu / PROBLEM.occupancy).log().detach(), chi_square(mu, PROBLEM.occupancy).detach()
    price = torch.stack([departure(x.flatten(), kind, chi2=c).view_as(x) for x, c in zip(d, chi2, strict=True)])
    (ours,) = torch.autograd.grad((mu * price).sum(), logits, retain_graph=True)
    (exact,) = torch.autograd.grad(factor * distance(kind, logits.softmax(-1), mu, PROBLEM).sum(), logits)
    torch.testing.assert_close(ours, exact, rtol=1e-8, atol=1e-12)
    assert exact.abs().max() > 1e-3


def ratio_of(tree, policy, reference) -> tuple[torch.Tensor, torch.Tensor]:
    """[leaves] odds and log-ratio of every answer, with gradient."""
    logp, ref = tree.log_probabilities(policy).flatten(), tree.log_probabilities(reference).detach().flatten()
    return logp, logp - ref


def test_for_answers_it_is_the_chi_square_of_sequences_and_of_one_step() -> None:
    tree, policy = digits()
    reference = TabularPolicy(tree, spread=0.4, seed=9)
    logp, d = ratio_of(tree, policy, reference)
    odds = logp.exp() / tree.prompts
    chi2 = (odds * d.exp()).sum() - 1
    exact = flat_gradient(chi2.sqrt(), policy)
    leaves = tree.leaves().replace(
        rollout_logp=policy.evaluate(tree.leaves()).logp.detach(),
        ref_logp=reference.evaluate(tree.leaves()).logp.detach(),
    )
    torch.testing.assert_close(AnswerRatio()(leaves), d.detach(), rtol=1e-12, atol=1e-14)
    price = departure(AnswerRatio()(leaves), "sqrt_chi2", chi2=chi2.detach())
    logp, _ = ratio_of(tree, policy, reference)
    ours = flat_gradient((logp.exp() / tree.prompts * price).sum(), policy)
    same(ours[exact.abs() > 1e-9] / exact[exact.abs() > 1e-9], torch.ones(int((exact.abs() > 1e-9).sum())).double())


def test_the_authors_program_for_language_adds_the_other_kl() -> None:
    """What chi2_occupancy's text says of it: through d, on the policy's own answers."""
    tree, policy = digits()
    reference = TabularPolicy(tree, spread=0.4, seed=9)
    logp, d = ratio_of(tree, policy, reference)
    odds = logp.detach().exp() / tree.prompts
    theirs = flat_gradient((odds * (d.exp() + (-d).exp() - 2)).sum(), policy)
    logp, d = ratio_of(tree, policy, reference)
    chi2 = (logp.exp() / tree.prompts * d.exp()).sum() - 1
    exact = flat_gradient(chi2 / 2, policy) + flat_gradient(tree.kl(reference, policy), policy)
    torch.testing.assert_close(theirs, exact, rtol=1e-10, atol=1e-14)


def test_by_kl_it_is_the_kl_penalty_of_whole_answers() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy).replace()
    batch = batch.replace(ref_logp=TabularPolicy(tree, spread=0.4, seed=9).evaluate(batch).logp.detach())
    ours = Departure(coefficient=0.3, divergence="kl")(batch)
    same(ours, KLPenalty(coefficient=0.3)(batch).sum(1))


def test_without_a_price_it_is_ppo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    batch = batch.replace(ref_logp=batch.rollout_logp - 0.1)
    free = po.method("chi2-occupancy", coefficient=0.0)
    same(slope(free, batch, policy), slope(po.method("ppo", kl=0), batch, policy))


def test_the_normaliser_leaves_out_both_ends_and_is_asked_only_where_it_is_positive() -> None:
    x = torch.randn(250, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    kept = sorted(x.tolist())[2:-2]
    assert trimmed_mean(x, 0.01).item() == pytest.approx(sum(kept) / len(kept), rel=1e-12)
    assert trimmed_mean(x[:99], 0.01).item() == pytest.approx(x[:99].mean().item(), rel=1e-12)
    assert trimmed_mean(x[:1], 0.49).item() == x[0].item()
    d = x.abs() * 0.3
    torch.testing.assert_close(departure(d, "sqrt_chi2"), torch.expm1(d) / torch.expm1(d).mean().sqrt())
    torch.testing.assert_close(departure(-d, "sqrt_chi2"), torch.expm1(-d))
    assert departure(d[:0], "sqrt_chi2").shape == (0,)


def test_a_ratio_beyond_ten_goes_along_its_tangent() -> None:
    d = torch.tensor([10.0, 10.0 + 1e-6, 13.0, -50.0], dtype=torch.double)
    found = excess(d)
    assert found[1].item() == pytest.approx(math.exp(10 + 1e-6) - 1, rel=1e-9)
    assert found[2].item() == pytest.approx(4 * math.exp(10) - 1, rel=1e-12)
    assert found[3].item() == -1


def beside(rows: int = 20) -> Experience:
    g = torch.Generator().manual_seed(0)
    own, base = (torch.randn(rows, 5, 4, generator=g) + shift for shift in (0.5, 0.0))
    mask = torch.rand(rows, 5, generator=g) < 0.8
    extras = {"features": own, "base_features": base, "base_mask": torch.ones(rows, 5, dtype=torch.bool)}
    return Experience(mask=mask, extras=extras)


@pytest.mark.parametrize("hidden", [0, 8])
def test_the_discriminator_learns_in_training_alone_and_goes_on_from_its_state(hidden: int) -> None:
    batch, judge = beside(), Discriminator(features=4, hidden=hidden, steps=30)
    assert (judge.eval()(batch) == 0).all()
    first, second = judge.train()(batch), judge(batch)
    assert not torch.equal(first, second)
    torch.testing.assert_close(judge.eval()(batch), second)
    resumed = Discriminator(features=4, hidden=hidden, steps=30)
    resumed.load_state_dict(copy.deepcopy(judge.state_dict()))
    assert torch.equal(resumed.train()(batch), judge.train()(batch))
    # It can tell them apart: own visits look like own ones, on average.
    assert first[batch.mask].mean() > 0.05
    assert (first[~batch.mask] == 0).all()


def test_the_best_linear_judge_of_two_gaussians_is_their_log_ratio() -> None:
    """N(m, 1) against N(0, 1) in one dimension: d = m x - m^2 / 2."""
    g, m, n = torch.Generator().manual_seed(3), 0.8, 40_000
    z = torch.randn(2, 1, n, 1, generator=g, dtype=torch.double)
    everywhere = torch.ones(1, n, dtype=torch.bool)
    extras = {"features": z[0] + m, "base_features": z[1], "base_mask": everywhere}
    judge = Discriminator(features=1, steps=300)
    judge(Experience(mask=everywhere, extras=extras))
    weight, bias = (b.item() for b in judge.buffers())
    assert weight == pytest.approx(m, abs=0.05)
    assert bias == pytest.approx(-(m**2) / 2, abs=0.05)


def test_walks_visit_what_the_occupancy_says() -> None:
    mdp, policy = (
        random_mdp(1, 5, 2),
        StatePolicy(torch.randn(5, 2, generator=torch.Generator().manual_seed(1)).double()),
    )
    source = WalkSource(mdp, policy, torch.zeros(5, 2).double(), rows=8, base=torch.full((5, 2), 0.5).double())
    batch = source.rollout(RolloutRequest(source.take(1), 8000))
    for name, mask, odds in (
        ("features", batch.mask, policy.probs),
        ("base_features", batch.extras["base_mask"], source.base),
    ):
        seen = batch.extras[name][mask].mean(0).view(5, 2)
        assert (seen - mdp.occupancy(odds.detach())).abs().max() < 0.01


def test_with_a_discriminator_the_sentence_stays_near_the_reference() -> None:
    """The discriminator learns from every batch before the policy does."""
    problem = correlated_proxies(1, seed=3, states=5, actions=3)
    mdp = TabularMDP(problem.mdp.transitions[0], problem.mdp.start[0], 0.9)
    base, proxy = problem.base[0], problem.proxy[0]
    far = {}
    for coefficient in (0.0, 1.0):
        sentence = po.method("chi2-occupancy", coefficient=coefficient, features=15, hidden=0)
        sentence = sentence.but({"reward.terms.1.log_ratio.steps": 40})
        policy = StatePolicy(base.log())
        source = WalkSource(mdp, policy, proxy, rows=200, base=base, seed=4, horizon=40)
        for _ in itertools.islice(learning(sentence, source, policy, rate=2.0), 20):
            pass
        mu = mdp.occupancy(policy.probs.detach())
        far[coefficient] = chi_square(mu, problem.occupancy[0]).item()
        known = sentence.reward.terms[1].log_ratio
        error = (known.weight_0[0] + known.bias_0 - (mu / problem.occupancy[0]).log().flatten()).abs()
        assert (mu.flatten() * error).sum() < 0.25
    assert far[1.0] < far[0.0] / 2


def test_bad_input_is_named() -> None:
    with pytest.raises(ExperienceError, match=r"extras\['features'\] must be \[B, T, features\] with features = 3"):
        Discriminator(features=3)(beside())
    with pytest.raises(ExperienceError, match=r"needs experience.extras\['base_features'\]"):
        Discriminator(features=3)(Experience(mask=torch.ones(2, 2, dtype=torch.bool), extras={}))
    with pytest.raises(ValueError, match="features >= 1"):
        Discriminator(features=0)
    with pytest.raises(ValueError, match=r"trim < 0\.5"):
        Departure(trim=0.5)


def test_language_training_takes_answers_and_refuses_features() -> None:
    assert LANGUAGE.lacking(po.method("chi2-occupancy")) == []
    names = ("extras.base_features", "extras.base_mask", "extras.features")
    expected = [Lack("rewards.Discriminator", "field", name) for name in names]
    assert LANGUAGE.lacking(po.method("chi2-occupancy", features=4)) == expected


def test_what_is_guaranteed() -> None:
    g = torch.Generator().manual_seed(4)
    for _ in range(200):
        base, mu = (torch.randn(7, generator=g, dtype=torch.double).mul(1.5).softmax(0) for _ in range(2))
        x, y = torch.randn(2, 7, generator=g, dtype=torch.double)
        x, y = ((v - base @ v) / (base @ (v - base @ v) ** 2).sqrt() for v in (x, y))
        r = correlation(x, y, base)
        assert r.item() == pytest.approx((base @ (x * y)).item(), abs=1e-12)
        chi2, proxy, true = ((mu - base) ** 2 / base).sum(), mu @ x, mu @ y
        tight = least_true_gain(proxy, chi2, r.item())
        assert true >= tight - 1e-12
        if r > 0:
            assert tight >= least_true_gain(proxy, chi2, r.item(), tight=False) - 1e-12


def test_correlation_and_hacking() -> None:
    g = torch.Generator().manual_seed(5)
    x, y = torch.randn(2, 50, generator=g, dtype=torch.double)
    assert correlation(x, y).item() == pytest.approx(torch.corrcoef(torch.stack([x, y]))[0, 1].item())
    assert correlation(x, torch.ones_like(x)) == 0
    base, true, proxy = loved_and_rare(0, 0.6)
    assert correlation(true, proxy, base).item() == pytest.approx(0.6)
    at = torch.multinomial(base, 20_000, replacement=True, generator=g)
    last = torch.full((100,), 19)
    found = proxy_hacking(proxy[last], true[last], proxy[at], true[at])
    assert found.before == pytest.approx(0.6, abs=0.03)
    assert found.hacked
    assert found.proxy_gain > 1 > 0 > found.true_gain
    assert not proxy_hacking(proxy[at], true[at] + 1, proxy[at], true[at]).hacked
