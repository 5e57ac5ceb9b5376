"""Preference models: their losses by hand and by TRL, what each can express, and what it cannot."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from trl_oracle import trl_reward

from polopt.backends import (
    BradleyTerry,
    GaussianReward,
    GeneralPreference,
    Pairs,
    PreferenceModel,
    TextScorer,
    fit_scorer,
)
from polopt.backends.preference_models import KINDS, kind_of
from polopt.backends.scorer import ScorerShape

FIRST, SECOND = torch.tensor([0.3, -2.0, 5.0]).double(), torch.tensor([1.0, 0.5, -40.0]).double()
MARGIN, VOTES = torch.tensor([0.0, 0.7, 2.0]).double(), torch.tensor([1.0, 0.6, 0.25]).double()


def logistic(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def normal(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def expected(z: list[float], chance: Any, votes: list[float], smoothing: float) -> float:
    """The cross-entropy, by the standard library alone."""
    total = 0.0
    for each, p in zip(z, votes, strict=True):
        q = (1 - smoothing) * p + smoothing * (1 - p)
        total -= q * math.log(chance(each)) + ((1 - q) * math.log(chance(-each)) if q < 1 else 0.0)
    return total / len(z)


class TestLosses:
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_bradley_terry_by_hand(self, smoothing: float) -> None:
        z = [a - b - m for a, b, m in zip(FIRST.tolist(), SECOND.tolist(), MARGIN.tolist(), strict=True)]
        model = BradleyTerry(label_smoothing=smoothing)
        found = model.loss(FIRST, SECOND, margin=MARGIN, probability=VOTES)
        assert found.item() == pytest.approx(expected(z, logistic, VOTES.tolist(), smoothing), rel=1e-12)
        plain = [a - b for a, b in zip(FIRST.tolist(), SECOND.tolist(), strict=True)]
        assert model.loss(FIRST, SECOND).item() == pytest.approx(expected(plain, logistic, [1.0] * 3, smoothing))

    @pytest.mark.parametrize("link", ["probit", "logistic"])
    def test_gaussian_by_hand(self, link: Any) -> None:
        one, other = torch.tensor([[0.3, -1.0], [2.0, 0.5]]).double(), torch.tensor([[1.0, 2.0], [1.5, 0.1]]).double()
        z = []
        for (a, u), (b, v) in zip(one.tolist(), other.tolist(), strict=True):
            stds = math.log1p(math.exp(u)), math.log1p(math.exp(v))
            z.append((a - b) / math.hypot(*stds))
        chance = normal if link == "probit" else lambda each: logistic(1.702 * each)
        found = GaussianReward(link=link, label_smoothing=0.2).loss(one, other, probability=VOTES[:2])
        assert found.item() == pytest.approx(expected(z, chance, VOTES[:2].tolist(), 0.2), rel=1e-12)

    def test_the_logistic_link_is_nearly_the_normal_one(self) -> None:
        worst = max(abs(normal(x / 100) - logistic(1.702 * x / 100)) for x in range(-600, 601))
        assert 0.009 < worst < 0.0095

    @pytest.mark.parametrize("margin", [None, MARGIN.float()])
    @pytest.mark.parametrize("center", [None, 0.01])
    def test_trl_has_the_same_loss_and_gradient(self, margin: Tensor | None, center: float | None) -> None:
        """On one batch; -40 and 5 are far apart, where a naive log sigmoid has no digits left."""
        ours, theirs = ([x.float().clone().requires_grad_() for x in (FIRST, SECOND)] for _ in range(2))
        found = BradleyTerry(center_rewards_coefficient=center or 0.0).loss(*ours, margin=margin)
        wanted = trl_reward(*theirs, margin, center)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)
        assert found > 0
        found.backward()
        wanted.backward()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("model", [BradleyTerry(), GeneralPreference(), GaussianReward()])
    def test_extreme_margins_have_finite_losses_and_gradients(self, model: PreferenceModel) -> None:
        z = torch.tensor([-1e4, 0.0, 1e4], requires_grad=True)
        loss = model(z)
        assert loss[2] == 0
        assert torch.isfinite(loss).all()
        loss.sum().backward()
        assert z.grad is not None
        assert torch.isfinite(z.grad).all()

    def test_bad_settings_and_names(self) -> None:
        with pytest.raises(ValueError, match=r"backends.GeneralPreference: label_smoothing must be in \[0, 0.5\]"):
            GeneralPreference(label_smoothing=0.6)
        with pytest.raises(ValueError, match=r"center_rewards_coefficient must be >= 0, found -1\.0"):
            BradleyTerry(center_rewards_coefficient=-1.0)
        assert [kind_of(kind()) for kind in KINDS.values()] == list(KINDS)


ANSWERS = ("rock", "paper", "scissors")
BEATS = [("paper", "rock"), ("scissors", "paper"), ("rock", "scissors")]


def fitted(model: PreferenceModel, pairs: Pairs, steps: int, layers: int = 0, **settings: Any) -> TextScorer:
    shape = ScorerShape(
        width=16, layers=layers, compares=model.compares, antisymmetric=model.compares, outputs=model.outputs
    )
    scorer = TextScorer(shape, seed=1)
    fit_scorer(scorer, pairs, steps=steps, model=model, seed=1, **settings)
    return scorer


def margins(model: PreferenceModel, scorer: TextScorer, prompts: list[str], one: Any, other: Any) -> Tensor:
    with torch.no_grad():
        return model.margin(*model.score(scorer, prompts, one, other))


class TestGeneralPreference:
    def test_a_circle_that_no_reward_orders(self) -> None:
        """Three answers, each beaten by the next. No reward is right on more than two of three pairs, nor has a loss
        below log 2."""
        pairs = Pairs(["?"] * 3, *map(list, zip(*BEATS, strict=True)))
        general, reward = GeneralPreference(), BradleyTerry()
        z = margins(
            general, fitted(general, pairs, 150, rows=12), *map(list, (pairs.prompts, pairs.better, pairs.worse))
        )
        assert (z > 2).all()
        control = margins(
            reward, fitted(reward, pairs, 150, rows=12), *map(list, (pairs.prompts, pairs.better, pairs.worse))
        )
        assert int((control > 0).sum()) <= 2
        assert reward(control).mean() >= math.log(2) - 1e-6
        assert general(z).mean() < 0.13

    @pytest.mark.parametrize("layers", [0, 1])
    def test_exchanging_the_answers_negates_the_score(self, layers: int) -> None:
        shape = ScorerShape(width=8, layers=layers, compares=True, antisymmetric=True)
        scorer = TextScorer(shape).double()
        there, back = scorer(["p", "q"], ["a", "b"], ["c", "b"]), scorer(["p", "q"], ["c", "b"], ["a", "b"])
        torch.testing.assert_close(there, -back, rtol=0, atol=1e-15)
        assert there[0].abs() > 1e-4
        assert there[1] == 0
        one_way = TextScorer(ScorerShape(width=8, layers=layers, compares=True)).double()
        assert (one_way(["p"], ["a"], ["c"]) + one_way(["p"], ["c"], ["a"])).abs() > 1e-4
        with pytest.raises(ValueError, match="antisymmetric needs compares"):
            ScorerShape(antisymmetric=True)

    def test_the_scorer_must_be_of_the_models_kind(self) -> None:
        pairs = Pairs(["?"], ["a"], ["b"])
        with pytest.raises(ValueError, match="needs a scorer with outputs=1 and compares=True, found 1 and False"):
            fit_scorer(TextScorer(ScorerShape(width=8)), pairs, steps=1, model=GeneralPreference())
        with pytest.raises(ValueError, match="needs a scorer with outputs=2 and compares=False"):
            fit_scorer(TextScorer(ScorerShape(width=8)), pairs, steps=1, model=GaussianReward())


MU = torch.tensor([-1.2, -0.4, 0.0, 0.3, 0.9, 1.4]).double()
SIGMA = torch.tensor([0.3, 2.0, 0.5, 1.5, 0.4, 1.0]).double()


class TestGaussianReward:
    @staticmethod
    def best(model: PreferenceModel, votes: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """The parameters of each answer that minimise the loss of exact shares of votes."""
        generator = torch.Generator().manual_seed(3)
        theta = torch.randn(len(MU), model.outputs, generator=generator, dtype=torch.float64).mul(0.1).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [theta], max_iter=5000, line_search_fn="strong_wolfe", tolerance_grad=0, tolerance_change=0
        )

        def closure() -> Tensor:
            optimiser.zero_grad()
            scores = (theta[first], theta[second]) if model.outputs > 1 else (theta[first, 0], theta[second, 0])
            loss = model.loss(*scores, probability=votes)
            loss.backward()
            return loss

        for _ in range(5):
            optimiser.step(closure)
        return theta.detach()

    def test_it_recovers_noise_that_differs_from_answer_to_answer(self) -> None:
        first, second = torch.tensor(list(itertools.combinations(range(len(MU)), 2))).T
        truth = torch.special.ndtr((MU[first] - MU[second]) / (SIGMA[first].square() + SIGMA[second].square()).sqrt())
        gaussian, reward = GaussianReward(), BradleyTerry()
        theta = self.best(gaussian, truth, first, second)
        z = gaussian.margin(theta[first], theta[second])
        torch.testing.assert_close(torch.special.ndtr(z), truth, rtol=0, atol=1e-5)
        std = torch.nn.functional.softplus(theta[:, 1])
        # Known up to a factor.
        torch.testing.assert_close(std / std[0], SIGMA / SIGMA[0], rtol=0.02, atol=0)
        control = self.best(reward, truth, first, second)[:, 0]
        assert (torch.sigmoid(control[first] - control[second]) - truth).abs().max() > 0.1

    def test_a_network_learns_it_from_votes(self) -> None:
        """One vote each on pairs of texts, of which those in capitals are judged with ten times the noise."""
        generator = torch.Generator().manual_seed(0)
        words = ["poor", "fair", "good", "fine", "POOR", "FAIR", "GOOD", "FINE"]
        mean = torch.tensor([-1.0, -0.4, 0.4, 1.0] * 2)
        std = torch.tensor([0.3] * 4 + [3.0] * 4)
        first, second = torch.randint(8, (2, 3000), generator=generator)
        first, second = first[first != second], second[first != second]
        drawn = mean + std * torch.randn(len(first), 8, generator=generator)
        won = drawn.gather(1, first[:, None]) > drawn.gather(1, second[:, None])
        better = torch.where(won[:, 0], first, second).tolist()
        worse = torch.where(won[:, 0], second, first).tolist()
        pairs = Pairs(["How?"] * len(better), [words[i] for i in better], [words[i] for i in worse])
        a, b = map(list, zip(*itertools.combinations(range(8), 2), strict=True))
        truth = torch.special.ndtr((mean[a] - mean[b]) / (std[a].square() + std[b].square()).sqrt())
        wrong = {}
        for model in (GaussianReward(), BradleyTerry()):
            scorer = fitted(model, pairs, 400)
            z = margins(model, scorer, ["How?"] * len(a), [words[i] for i in a], [words[i] for i in b])
            wrong[kind_of(model)] = (model.log_probability(z).exp() - truth).abs().mean().item()
            if model.outputs == 2:
                found = torch.nn.functional.softplus(scorer(["How?"] * 8, words)[:, 1])
                assert found[4:].min() > 3 * found[:4].max()
        assert wrong["gaussian"] < 0.04
        assert wrong["bradley-terry"] > 2 * wrong["gaussian"]


def test_votes_and_margins_reach_the_loss() -> None:
    """Of one pair the fitted probability is the share of votes, and the fitted margin grows by the margin."""
    votes = fitted(BradleyTerry(), Pairs(["?"], ["a"], ["b"], probabilities=[0.7]), 300, rows=1, rate=1e-2)
    assert torch.sigmoid(votes(["?"], ["a"]) - votes(["?"], ["b"])).item() == pytest.approx(0.7, abs=1e-3)
    shifted = fitted(BradleyTerry(), Pairs(["?"], ["a"], ["b"], margins=[2.0], probabilities=[0.5]), 300, rows=1)
    assert (shifted(["?"], ["a"]) - shifted(["?"], ["b"])).item() == pytest.approx(2.0, abs=1e-2)
    with pytest.raises(ValueError, match=r"probabilities must be in \(0, 1\], found 0.0"):
        Pairs(["?"], ["a"], ["b"], probabilities=[0.0])


def test_micro_batches_change_no_gradient_and_passes_take_each_row_once() -> None:
    pairs = Pairs(
        [f"{i}" for i in range(12)], ["a", "bb", "c"] * 4, ["c", "a", "dd"] * 4, margins=[0.1 * i for i in range(12)]
    )
    model = BradleyTerry(center_rewards_coefficient=0.1)
    whole, parts = (fitted(model, pairs, 4, rows=6, micro_rows=micro, passes=True).state_dict() for micro in (None, 4))
    for name, value in whole.items():
        torch.testing.assert_close(value, parts[name], rtol=1e-3, atol=1e-5)
    from polopt.backends.scorer_training import _passes

    batches = _passes(5, 3, torch.Generator().manual_seed(0))
    taken = [row for _ in range(5) for row in next(batches)]
    for at in (0, 5, 10):
        assert sorted(taken[at : at + 5]) == list(range(5))
    assert taken[:5] != taken[5:10]
