"""Methods between supervised and reinforcement learning: against their formulas in plain numbers, and each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from dealt_batches import dealt, halves, nll
from scipy import stats
from sentences import same, slope

import polopt as po
from polopt import ops
from polopt.claims.unified_hpt import learned
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TreeSource
from polopt.lab.problems import digits
from polopt.methods.chord import UncertaintyWeight, fading
from polopt.methods.otr import OneToken
from polopt.objectives import PolicyGradient, ProbabilityWeight, SequenceSum, Surrogate, TokenMean
from polopt.part_diff import diff
from polopt.sampling import WithDemonstrations, WithTexts

SFT = Surrogate(ratio=None, trust=PolicyGradient(), aggregate=TokenMean())
GRPO = {"objective.aggregate": TokenMean()}


# CHORD --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "factor"),
    [(None, torch.ones_like), (UncertaintyWeight(), lambda p: p * (1 - p)), (ProbabilityWeight(), lambda p: p)],
    ids=["none", "phi", "p"],
)
@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0])
def test_chord_is_grpo_and_a_likelihood(weight: Any, factor: Any, mu: float) -> None:
    algorithm = po.method("chord", group=4, mu=mu, weight=weight, each=0.5)
    batch, policy = dealt(algorithm)
    own, shown = halves(batch)
    assert (len(own), len(shown)) == (24, 12)
    grpo = slope(po.method("grpo", group=4, kl=0.0).but(GRPO), own, policy)
    same(slope(algorithm, batch, policy), (1 - mu) * grpo + mu * nll(shown, policy, factor))


@pytest.mark.parametrize(
    ("step", "expected"),
    # Half a cosine from 0.9 at 0 to 0.05 at 200: 0.05 + 0.85 (1 + cos(pi k / 200)) / 2.
    [(0, 0.9), (50, 0.475 + 0.425 * math.sqrt(0.5)), (100, 0.475), (200, 0.05), (999, 0.05)],
)
def test_chord_mu_fades(step: int, expected: float) -> None:
    assert fading().at(step) == pytest.approx(expected, abs=1e-12)
    late = fading(0.5, 0.02, warmup=200, decay=400)
    assert late.at(step) == pytest.approx(
        {0: 0.0, 50: 0.125, 100: 0.25, 200: 0.5, 999: 0.02}[step],
        abs=1e-12,
    )


def test_chord_mu_moves_both_weights() -> None:
    algorithm = po.method("chord", group=4, mu=fading(decay=4), weight=None)
    batch, policy = dealt(algorithm)
    own, shown = halves(batch)
    for _ in range(2):
        algorithm.step()
    mu = 0.05 + 0.85 / 2
    grpo = slope(po.method("grpo", group=4, kl=0.0).but(GRPO), own, policy)
    same(slope(algorithm, batch, policy), (1 - mu) * grpo + mu * nll(shown, policy))
    # A step schedule is SFT, then RL.
    stairs = po.schedules.Schedule(knots=[(0, 1.0), (3, 0.0)], shape="step")
    algorithm = po.method("chord", group=4, mu=stairs, weight=None)
    same(slope(algorithm, batch, policy), nll(shown, policy))
    for _ in range(3):
        algorithm.step()
    same(slope(algorithm, batch, policy), grpo)


def test_phi_is_largest_where_the_policy_is_undecided() -> None:
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.double)[None]
    batch = Experience(mask=torch.ones(1, 99, dtype=torch.bool))
    phi = UncertaintyWeight()(batch, Evaluation(logp=p.log()))
    assert phi.max().item() == pytest.approx(0.25)
    assert p[0, phi.argmax()].item() == pytest.approx(0.5)
    torch.testing.assert_close(phi, phi.flip(1))


# HPT ----------------------------------------------------------------------------------------------------------


def test_hpt_by_hand() -> None:
    """Prompt by prompt: its rollouts, or its solution."""
    algorithm = po.method("unified-hpt", group=4, gate=0.25, sft=0.3, entropy=0.05)
    batch, policy = dealt(algorithm, prompts=10)
    own, shown = halves(batch)
    hard = {g for g in own.group.unique().tolist() if own.outcome[own.group == g].mean() <= 0.25}
    assert 0 < len(hard) < 10
    assert sorted(shown.group.tolist()) == sorted(hard)
    kept = own[torch.tensor([g not in hard for g in own.group.tolist()])]
    said = policy.evaluate(kept, frozenset({"entropy"}))
    rl = torch.zeros((), dtype=torch.double)
    for i in range(len(kept)):
        A = kept.outcome[i] - kept.outcome[kept.group == kept.group[i]].mean()
        for t in kept.mask[i].nonzero().flatten():
            rl = rl - A * (said.logp[i, t] - kept.rollout_logp[i, t]).exp() - 0.05 * said.entropy[i, t]
    (rl_slope,) = torch.autograd.grad(rl / len(kept) / 2, policy.logits)  # answers have at most 2 tokens
    same(slope(algorithm, batch, policy), rl_slope + 0.3 * nll(shown, policy))


def test_hpt_at_its_limits() -> None:
    tree, policy = digits()
    never, always = po.method("unified-hpt", group=4, gate=-1, entropy=0), po.method("unified-hpt", group=4, gate=1)
    batch = never.sampling(TreeSource(tree, policy, rows=24))
    assert not batch.is_demonstration.any()
    same(slope(never, batch, policy), slope(po.method("dr-grpo", group=4), batch, policy))
    batch = always.sampling(TreeSource(tree, policy, rows=24))
    judged = always.compute_advantages(batch)
    assert judged.is_demonstration.all()
    assert len(judged) == 6
    same(slope(always, batch, policy), nll(judged, policy))


def test_hpt_stays_at_its_demonstration_where_the_first_rollouts_all_fail() -> None:
    """A known failure: arms that pay up to 1.0 stay unfound, because it imitates one that pays 0.8."""
    reward, _ = learned(po.method("unified-hpt"), known=False)
    assert 0.75 < reward < 0.82
    assert learned(po.method("unified-hpt"))[0] > 0.95


# OTR ----------------------------------------------------------------------------------------------------------


def spoken(seed: int = 0, B: int = 3, T: int = 5, V: int = 6) -> tuple[Experience, torch.Tensor]:
    """Demonstrated rows and logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(B, T, V, generator=generator, dtype=torch.double)
    mask = torch.rand(B, T, generator=generator) < 0.7
    tokens = torch.randint(0, V, (B, T), generator=generator)
    return Experience(mask=mask, advantage=mask.double(), extras={"tokens": tokens}), logits.requires_grad_()


def loss_of(trust: OneToken, batch: Experience, logits: torch.Tensor) -> torch.Tensor:
    logp = logits.log_softmax(-1).gather(-1, batch.extras["tokens"].clamp(min=0)[..., None])[..., 0]
    return Surrogate(ratio=None, trust=trust)(batch, Evaluation(logp=logp, logits=logits)).loss


@pytest.mark.parametrize(("temperature", "miss", "floor"), [(1.0, 0.0, -20.0), (1.3, -0.1, -20.0), (0.7, 0.2, -2.0)])
def test_one_token_by_hand(temperature: float, miss: float, floor: float) -> None:
    batch, logits = spoken()
    found = torch.autograd.grad(
        loss_of(OneToken(temperature=temperature, miss=miss, floor=floor), batch, logits), logits
    )[0].numpy()
    z, expected = logits.detach().numpy(), np.zeros(logits.shape)
    n = int(batch.mask.sum())
    for b, t in batch.mask.nonzero().tolist():
        p = np.exp(z[b, t]) / np.exp(z[b, t]).sum()
        q = np.exp(z[b, t] / temperature) / np.exp(z[b, t] / temperature).sum()
        for a in range(6):
            score = (np.arange(6) == a) - p  # d log p_a / d logits
            hit = a == int(batch.extras["tokens"][b, t])
            if hit or np.log(p[a]) >= floor:
                expected[b, t] -= q[a] * (1.0 if hit else miss) * score / n
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_one_token_without_misses_is_the_likelihood_weighed_with_p() -> None:
    batch, logits = spoken()
    (found,) = torch.autograd.grad(loss_of(OneToken(), batch, logits), logits)
    logp = logits.log_softmax(-1).gather(-1, batch.extras["tokens"][..., None])[..., 0]
    weighed = Surrogate(ratio=None, trust=PolicyGradient(), weights=[ProbabilityWeight()])
    same(found, torch.autograd.grad(weighed(batch, Evaluation(logp=logp)).loss, logits)[0])
    algorithm = po.method("otr", draws=None, temperature=1.0, miss=0.0)
    shown, policy = dealt(algorithm)
    same(slope(algorithm, shown, policy), nll(shown, policy, lambda p: p))


def test_draws_follow_the_policy() -> None:
    """One token in many rows that differ: how often each is drawn, by chi-square."""
    rows, V = 4000, 5
    odds = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03], dtype=torch.double)
    tokens = torch.arange(rows)[:, None].expand(rows, 2)
    trust = OneToken(draws=3)
    drawn = trust._frequencies(odds.expand(rows, 2, V), tokens) * 3
    assert torch.equal(drawn.sum(-1), torch.full((rows, 2), 3.0, dtype=torch.double))
    for where in (drawn[:, 0], drawn[:, 1]):
        counts = where.sum(0).numpy()
        assert stats.chisquare(counts, (odds * rows * 3).numpy()).pvalue > 1e-4
    # Two places of a row, two draws of a place: independent of each other.
    table = torch.zeros(V, V)
    first, second = trust.but(draws=1), trust.but(draws=1, seed=1)
    one = first._frequencies(odds.expand(rows, 2, V), tokens).argmax(-1)
    other = second._frequencies(odds.expand(rows, 2, V), tokens).argmax(-1)
    for left, right in ((one[:, 0], one[:, 1]), (one[:, 0], other[:, 0])):
        table.zero_().index_put_((left, right), torch.ones(rows), accumulate=True)
        assert stats.chi2_contingency(table.numpy()).pvalue > 1e-4


def test_draws_are_new_after_each_batch_and_the_same_when_resumed() -> None:
    batch, logits = spoken()
    trust = OneToken(draws=4)
    first = loss_of(trust, batch, logits)
    assert loss_of(trust, batch, logits) == first  # every epoch on the batch
    trust.on_step()
    second = loss_of(trust, batch, logits)
    assert second != first
    resumed = OneToken(draws=4)
    resumed.load_state_dict(trust.state_dict())
    assert loss_of(resumed, batch, logits) == second
    assert loss_of(OneToken(draws=4, seed=1), batch, logits) != first


def test_numbers_from_counters_are_uniform() -> None:
    keys = torch.arange(-50_000, 50_000)
    found = ops.uniform(keys)
    assert stats.kstest(found.numpy(), "uniform").pvalue > 1e-4
    assert stats.pearsonr(found[:-1].numpy(), found[1:].numpy()).pvalue > 1e-4
    assert len(ops.scrambled(keys).unique()) == 100_000
    # SplitMix64 from seed 0, as published: its first three outputs.
    state = torch.tensor([0, 1, 2]) * -0x61C8864680B583EB
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [x % (1 << 64) for x in ops.scrambled(state).tolist()] == expected


# InK-GRPO -----------------------------------------------------------------------------------------------------


BOUNDS = {"objective.trust.high": 0.24, "objective.trust.dual": 3.0}


@pytest.mark.parametrize(("probability", "weight"), [(0.0, 0.1), (1.0, 0.0), (1.0, 0.3)])
def test_ink_is_grpo_and_now_and_then_a_likelihood(probability: float, weight: float) -> None:
    algorithm = po.method("typhoon-s-ink-grpo", group=4, probability=probability, weight=weight, texts=5)
    batch, policy = dealt(algorithm)
    own, texts = halves(batch)
    assert len(texts) == 5 * int(probability)
    expected = slope(
        po.method("grpo", group=4, kl=0.0).but(GRPO, **{"objective.trust.high": 0.24, "objective.trust.dual": 3.0}),
        own,
        policy,
    )
    same(slope(algorithm, batch, policy), expected + (weight * nll(texts, policy) if len(texts) else 0))


def test_ink_on_demonstrations_is_the_ptx_term() -> None:
    ink = po.method("typhoon-s-ink-grpo", group=4, probability=1.0, weight=0.7)
    shown = ink.but({"sampling.mix": [WithDemonstrations(each=1.0)]})
    ptx = po.method("secrets-rlhf-ppo-max", group=4, ptx=0.7)
    assert diff(shown.sampling, ptx.sampling) == []
    assert diff(shown.objective.routes[1], ptx.objective.routes[1]) == []  # type: ignore[attr-defined, index]
    assert {path for path, *_ in diff(ink, shown)} == {"sampling.mix.0"}
    assert isinstance(ink.sampling.mix[0], WithTexts)  # type: ignore[attr-defined, index]


def test_sums_count_their_own_rows() -> None:
    """Dr. GRPO on a route divides by its rollouts, whatever joined them."""
    algorithm = po.method("typhoon-s-ink-grpo", group=4, probability=1.0, weight=0.0, texts=9)
    algorithm = algorithm.but({"objective.routes.0.objective": Surrogate(aggregate=SequenceSum())})
    batch, policy = dealt(algorithm)
    own, _ = halves(batch)
    alone = po.Algorithm(objective=Surrogate(aggregate=SequenceSum()))
    same(slope(algorithm, batch, policy), slope(alone, own, policy))
