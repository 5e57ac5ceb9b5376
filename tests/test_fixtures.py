"""Mistakes that people reported about other code, each as a number that has to come out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import polopt as po
from polopt.credit import GAE, GroupStd, RelativeAdvantage
from polopt.objectives import (
    Clip,
    OldPolicyRatio,
    PolicyGradient,
    ReferenceKL,
    SequenceMean,
    SequenceSum,
    Surrogate,
    TokenMean,
    TokenRatio,
    TruncatedImportance,
    Unclipped,
)

AGGREGATES = [TokenMean(), SequenceMean(), SequenceSum(length=10)]


def batch_of(lengths, T=None):
    mask = torch.arange(T or max(lengths)) < torch.tensor(lengths)[:, None]
    return po.Experience(mask=mask, rollout_logp=torch.zeros(mask.shape, dtype=torch.float64))


def in_micro_batches(experience, logp, objective, rows):
    """Loss and gradient by logp, accumulated over micro-batches of `rows` rows."""
    loss, logp = 0.0, logp.detach().clone().requires_grad_()
    for k, micro in enumerate(experience.split(rows)):
        piece = objective(micro, po.Evaluation(logp=logp[k * rows : (k + 1) * rows])).loss
        piece.backward()
        loss += piece.item()
    return loss, logp.grad


class TestF1SplitInvariance:
    def test_a_hundred_and_nine_hundred_tokens(self):
        """100 tokens at 0.5 and 900 at 0.3: (50 + 270) / 1000 = 0.32, not the mean of means 0.40."""
        experience = batch_of([100, 900])
        terms = torch.tensor([[0.5], [0.3]], dtype=torch.float64).expand(2, 900)
        experience = experience.replace(advantage=torch.ones_like(terms))
        for rows in (1, 2):
            objective = Surrogate(trust=PolicyGradient(), aggregate=TokenMean())
            loss, grad = in_micro_batches(experience, -terms, objective, rows)
            assert loss == pytest.approx(0.32, abs=1e-12)
            torch.testing.assert_close(grad, experience.mask.double() / -1000, rtol=0, atol=1e-15)
        # What the two other reducers mean by it: rows count the same; rows are summed.
        sequence, _ = in_micro_batches(
            experience, -terms, Surrogate(trust=PolicyGradient(), aggregate=SequenceMean()), 1
        )
        assert sequence == pytest.approx(0.40, abs=1e-12)
        total, _ = in_micro_batches(
            experience, -terms, Surrogate(trust=PolicyGradient(), aggregate=SequenceSum(length=900)), 1
        )
        assert total == pytest.approx(320 / 1800, abs=1e-12)

    @pytest.mark.parametrize("aggregate", AGGREGATES, ids=repr)
    @pytest.mark.parametrize(("window", "accumulation"), [(4, 2), (8, 32)])
    def test_generation_window_and_accumulation(self, window, accumulation, aggregate):
        """The gradient of an optimiser batch is the same however it was generated and accumulated (0.5x, 4x)."""
        generator = torch.Generator().manual_seed(window)
        lengths = torch.randint(1, 9, (window * accumulation,), generator=generator).tolist()
        experience = batch_of(lengths)
        shape = experience.mask.shape
        experience = experience.replace(advantage=torch.randn(shape, generator=generator, dtype=torch.float64))
        logp = -0.3 * torch.randn(shape, generator=generator, dtype=torch.float64).abs()
        objective = Surrogate(aggregate=aggregate)
        loss, grad = in_micro_batches(experience, logp, objective, len(lengths))
        for rows in (1, accumulation, window):
            split_loss, split_grad = in_micro_batches(experience, logp, objective, rows)
            assert split_loss == pytest.approx(loss, abs=1e-12)
            torch.testing.assert_close(split_grad, grad, rtol=1e-12, atol=1e-15)
        windows = po.Experience.cat([experience[k : k + window] for k in range(0, len(lengths), window)])
        _, joined = in_micro_batches(windows, logp, objective, window)
        torch.testing.assert_close(joined, grad, rtol=1e-12, atol=1e-15)

    def test_a_micro_batch_that_moves_keeps_its_whole(self):
        experience = batch_of([1, 3]).replace(advantage=torch.ones(2, 3))
        micro = next(experience.split(1)).to(torch.float32)
        result = Surrogate(trust=PolicyGradient())(micro, po.Evaluation(logp=-torch.ones(1, 3)))
        assert result.loss.item() == pytest.approx(1 / 4)


class TestF2OneMask:
    @pytest.mark.parametrize("hidden", [float("nan"), 1e30])
    def test_thirty_tokens_five_masked(self, hidden):
        """Masked tool output neither adds to the sum nor to the count: 25 terms of 1 over 25 is 1."""
        mask = torch.ones(1, 30, dtype=torch.bool)
        mask[0, 10:15] = False
        terms = torch.where(mask, 1.0, hidden)
        experience = po.Experience(mask=mask, advantage=torch.ones(1, 30))
        for aggregate in (TokenMean(), SequenceMean(), SequenceSum(length=25)):
            logp = (-terms).requires_grad_()
            result = Surrogate(trust=PolicyGradient(), aggregate=aggregate, ratio=None)(
                experience, po.Evaluation(logp=logp)
            )
            assert result.loss.item() == pytest.approx(1.0)
            (grad,) = torch.autograd.grad(result.loss, logp)
            torch.testing.assert_close(grad, torch.where(mask, -1 / 25, 0.0))


class TestF3RatioOnPolicy:
    @pytest.mark.parametrize(
        "support",
        [po.Support(), po.Support(temperature=0.6), po.Support(top_p=0.8), po.Support(temperature=0.7, top_k=3)],
        ids=repr,
    )
    def test_ratio_is_one_to_the_last_bit(self, support):
        logits = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0)) / support.temperature
        keep = po.ops.kept_choices(logits, support.top_k, support.top_p)
        logp = logits.masked_fill(~keep, -torch.inf).log_softmax(-1).max(-1).values
        experience = po.Experience(
            mask=torch.ones(4, 6, dtype=torch.bool), rollout_logp=logp, support=support, advantage=torch.randn(4, 6)
        )
        metrics = Surrogate()(experience, po.Evaluation(logp=logp.clone(), support=support)).metrics
        assert metrics["ratio/mean"].item() == 1.0
        assert metrics["ratio/square"].item() == 1.0
        assert metrics["clip_fraction"].item() == 0.0

    def test_another_support_is_refused(self):
        experience = batch_of([2, 3]).replace(advantage=torch.ones(2, 3), support=po.Support(temperature=0.6))
        with pytest.raises(po.SupportError, match=r"temperature=0\.6.*temperature=1\.0"):
            Surrogate()(experience, po.Evaluation(logp=torch.zeros(2, 3)))

    def test_the_kept_mass_would_be_the_bias(self):
        """top_p 0.75 keeps 0.5 and 0.3 and renormalises: against the full policy every ratio would be 0.8."""
        p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
        keep = po.ops.kept_choices(p.log(), top_k=0, top_p=0.75)
        assert keep.tolist() == [True, True, False, False]
        sampler = p.log().masked_fill(~keep, -torch.inf).log_softmax(-1)
        assert (p / sampler.exp())[keep].tolist() == pytest.approx([0.8, 0.8])


class TestF5TurnBroadcast:
    def test_an_outcome_lands_on_every_turn(self):
        """Turns of different lengths with tool output between them; two rows at different columns."""
        mask = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 0, 1, 0, 1]]).bool()
        experience = po.Experience(
            mask=mask, reward=torch.tensor([1.0, 0.0]), group=torch.zeros(2, dtype=torch.long), turn=(~mask).cumsum(1)
        )
        advantage = RelativeAdvantage(scale=None)(experience)
        assert advantage[0].tolist() == [0.5, 0.5, 0, 0, 0.5, 0.5, 0.5, 0]
        assert advantage[1].tolist() == [0, 0, 0, -0.5, 0, -0.5, 0, -0.5]


class TestF7Extremes:
    @pytest.mark.parametrize(("now", "then"), [(-2.0, -91.0), (-91.0, -2.0)])
    @pytest.mark.parametrize("A", [1.0, -1.0])
    def test_ratio_stays_finite_and_the_masked_token_silent(self, now, then, A):
        mask = torch.tensor([[True, False, True]])
        logp = torch.tensor([[now, now, -1.0]], requires_grad=True)
        experience = po.Experience(
            mask=mask,
            rollout_logp=torch.tensor([[then, then, -1.0]]),
            old_logp=torch.tensor([[then, then, -1.0]]),
            ref_logp=torch.tensor([[then, then, -1.0]]),
            advantage=torch.full((1, 3), A),
        )
        for ratio, trust in itertools.product((TokenRatio(), OldPolicyRatio()), (Clip(), Clip(dual=3.0), Unclipped())):
            objective = Surrogate(ratio=ratio, trust=trust, weights=[TruncatedImportance()], regularise=[ReferenceKL()])
            result = objective(experience, po.Evaluation(logp=logp))
            (grad,) = torch.autograd.grad(result.loss, logp)
            assert result.loss.isfinite()
            assert grad.isfinite().all()
            assert grad[0, 1] == 0

    def test_k3_pulls_towards_a_reference_however_far(self):
        """exp(89) is no float32: the estimate stays finite and its gradient keeps its sign and its size."""
        logp = torch.tensor([[-91.0, -25.0, -2.0]], requires_grad=True)
        ref = torch.tensor([[-2.0, -2.0, -91.0]])
        kl = po.ops.kl_estimate("k3", logp, ref)
        (grad,) = torch.autograd.grad(kl.sum(), logp)
        assert kl.isfinite().all()
        torch.testing.assert_close(grad, torch.tensor([[1 - math.exp(20), 1 - math.exp(20), 1.0]]))
        assert kl[0, 0] > kl[0, 1] > kl[0, 2] > 0


class TestF8TimeLimit:
    gamma = 0.9

    def experience(self, reward=1.0, rows=2, T=5, **ends):
        """A world that pays `reward` for ever, cut after T steps, with the right values V = r / (1 - gamma)."""
        value = torch.full((rows, T), reward / (1 - self.gamma), dtype=torch.float64)
        return po.Experience(
            mask=torch.ones(rows, T, dtype=torch.bool),
            reward=torch.full((rows, T), reward, dtype=torch.float64),
            value=value,
            final_value=value[:, 0],
            **ends,
        )

    @pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
    def test_cut_by_patience_the_value_is_a_fixed_point(self, lam):
        cut = torch.ones(2, dtype=torch.bool)
        advantage = GAE(gamma=self.gamma, lam=lam)(self.experience(terminated=~cut, truncated=cut))
        assert advantage.abs().max() < 1e-12

    @pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
    def test_ended_by_the_world_it_is_not(self, lam):
        """The last decision loses gamma V: A = r - V = -9; before it, (gamma lam)^k of that."""
        over = torch.ones(2, dtype=torch.bool)
        advantage = GAE(gamma=self.gamma, lam=lam)(self.experience(terminated=over, truncated=~over))
        expected = [-9 * (self.gamma * lam) ** k for k in range(4, -1, -1)]
        assert advantage[0].tolist() == pytest.approx(expected, abs=1e-12)

    def test_values_converge_to_r_over_one_minus_gamma(self):
        """Iterating V <- V + A from 0 in fragments of 5, the last value bootstrapped."""
        cut, V = torch.ones(1, dtype=torch.bool), 0.0
        for _ in range(60):
            value = torch.full((1, 5), V, dtype=torch.float64)
            e = self.experience(rows=1, terminated=~cut, truncated=cut).replace(value=value, final_value=value[:, 0])
            V += GAE(gamma=self.gamma, lam=1.0)(e)[0, 0].item()
        assert pytest.approx(10.0, abs=1e-9) == V

    def test_a_cut_without_a_final_value_is_refused(self):
        cut = torch.tensor([True, False])
        e = self.experience(terminated=~cut, truncated=cut).replace(final_value=None)
        with pytest.raises(po.ExperienceError, match=r"credit.GAE: 1 of 2 rows did not terminate.*final_value"):
            GAE()(e)

    def test_a_cut_inside_a_row_needs_its_own_final_value(self):
        truncated = torch.zeros(2, 5, dtype=torch.bool)
        truncated[0, 2] = True
        e = self.experience(terminated=torch.zeros(2, 5, dtype=torch.bool), truncated=truncated)
        with pytest.raises(po.ExperienceError, match=r"1 rows were cut off before .* \[2, 5\], found \[2\]"):
            GAE()(e)
        final = e.value.clone()
        assert GAE(gamma=self.gamma)(e.replace(final_value=final)).abs().max() < 1e-12

    def test_flags_between_decisions_do_not_count(self):
        """An end that stands on a masked column is no end of a decision: `ops.gae` must not read it."""
        mask = torch.tensor([[True, False, True]])
        zero = torch.zeros(1, 3, dtype=torch.float64)
        value = torch.tensor([[1.0, 50.0, 3.0]], dtype=torch.float64)
        off = torch.zeros(1, 3, dtype=torch.bool)
        there = torch.tensor([[False, True, False]])
        end = torch.tensor([[False, False, True]])
        expected = po.ops.gae(zero, value, zero, end, off, mask, 1.0, 0.0)
        assert expected[0].tolist() == [2.0, 0.0, -3.0]
        assert po.ops.gae(zero, value, zero, end | there, there, mask, 1.0, 0.0)[0].tolist() == [2.0, 0.0, -3.0]


class TestF9LastTransition:
    def test_the_last_advantage_is_that_of_the_last_decision(self):
        """Reward 1 on the last of 4 decisions, V = 0.25: the fragment's last advantage is r + gamma V' - V."""
        mask = torch.tensor([[True, True, False, True, True, False]])
        reward = torch.tensor([[0.0, 0.0, 9.0, 0.0, 1.0, 9.0]], dtype=torch.float64)
        value = torch.full((1, 6), 0.25, dtype=torch.float64)
        e = po.Experience(
            mask=mask,
            reward=reward,
            value=value,
            final_value=torch.tensor([0.5], dtype=torch.float64),
            terminated=torch.tensor([False]),
        )
        advantage = GAE(gamma=0.9, lam=0.0)(e)
        assert advantage[0, 4].item() == pytest.approx(1 + 0.9 * 0.5 - 0.25)
        assert GAE(gamma=0.9, lam=0.0)(e.replace(terminated=torch.tensor([True])))[0, 4].item() == pytest.approx(0.75)

    def test_an_episode_end_belongs_to_the_decision_that_caused_it(self):
        """done[t] ends after decision t: decision t does not see V_{t+1}, decision t - 1 sees V_t."""
        done = torch.tensor([[False, True, False, False]])
        value = torch.tensor([[1.0, 2.0, 4.0, 8.0]], dtype=torch.float64)
        e = po.Experience(
            mask=torch.ones(1, 4, dtype=torch.bool),
            reward=torch.zeros(1, 4, dtype=torch.float64),
            value=value,
            final_value=torch.tensor([16.0], dtype=torch.float64),
            terminated=done,
        )
        assert GAE(gamma=1.0, lam=0.0)(e)[0].tolist() == [2 - 1, 0 - 2, 8 - 4, 16 - 8]
        assert GAE(gamma=1.0, lam=1.0)(e)[0].tolist() == [0 - 1, 0 - 2, 16 - 4, 16 - 8]


class Broken(po.credit.Credit):
    def forward(self, experience):
        raise RuntimeError("my own mistake")


class BrokenTrust(po.objectives.SurrogateTerm):
    def forward(self, log_ratio, advantage, evaluation):
        raise RuntimeError("my own mistake")


class TestF12CustomPartsAreCalled:
    def test_what_a_custom_part_raises_is_raised(self):
        experience = batch_of([2, 3]).replace(outcome=torch.ones(2), advantage=torch.ones(2, 3))
        with pytest.raises(RuntimeError, match="my own mistake"):
            po.Algorithm(credit=Broken()).compute_advantages(experience)
        with pytest.raises(RuntimeError, match="my own mistake"):
            Surrogate(trust=BrokenTrust())(experience, po.Evaluation(logp=torch.zeros(2, 3)))


class TestF15GroupStatistics:
    def credit(self, rewards, group, credit):
        B = len(rewards)
        return credit(
            po.Experience(
                mask=torch.ones(B, 1, dtype=torch.bool),
                reward=torch.tensor(rewards, dtype=torch.float64),
                group=torch.tensor(group),
            )
        )[:, 0].tolist()

    def test_all_rollouts_of_a_group_enter_the_mean(self):
        """Group 0 is (1, 2, 6) with mean 3, in mixed order."""
        found = self.credit([1.0, 10.0, 2.0, 6.0, 20.0], [0, 1, 0, 0, 1], RelativeAdvantage(scale=None))
        assert found == [-2, -5, -1, 3, 5]

    def test_negative_means_do_not_flip_signs(self):
        rewards, group = [-1.0, -3.0, -5.0, 4.0, 2.0], [0, 0, 0, 1, 1]
        for scale in (None, GroupStd(), GroupStd(correction=0)):
            found = self.credit(rewards, group, RelativeAdvantage(scale=scale))
            assert [math.copysign(1, a) if abs(a) > 1e-12 else 0 for a in found] == [1, 0, -1, 1, -1]

    def test_group_and_batch_scale_differ(self):
        """Groups (0, 2) and (0, 20): each group's std makes both +-1/sqrt 2; unscaled they stay +-1 and +-10."""
        rewards, group = [0.0, 2.0, 0.0, 20.0], [0, 0, 1, 1]
        scaled = self.credit(rewards, group, RelativeAdvantage(scale=GroupStd(eps=0.0)))
        assert scaled == pytest.approx([-(0.5**0.5), 0.5**0.5, -(0.5**0.5), 0.5**0.5])
        assert self.credit(rewards, group, RelativeAdvantage(scale=None)) == [-1, 1, -10, 10]

    @pytest.mark.parametrize("reward", [0.1, 0.7, 1000.1, 1e6 + 0.3])
    def test_rounding_is_no_difference(self, reward):
        """Seven equal float32 rewards: their plain mean misses them by an ulp, which 1e-6 does not hide."""
        plain = torch.full((7,), reward)
        assert reward != 1000.1 or (plain.sum() / 7 - plain[0]).abs() > 0
        experience = po.Experience(
            mask=torch.ones(7, 2, dtype=torch.bool), reward=plain, group=torch.zeros(7, dtype=torch.long)
        )
        assert RelativeAdvantage()(experience).count_nonzero() == 0
