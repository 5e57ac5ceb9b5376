"""Objectives that watch the entropy, against the same formulas in plain loops, and their limits."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any

import loops
import pytest
import torch
from batches import SampleBatch, random_batch
from entropy_batches import SEEDS, numbers, places, surveyed
from scipy import stats

import polopt as po
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.methods.clip_cov_kl_cov import ClipCov, KLCov
from polopt.methods.steer import STEERWeight
from polopt.objectives import Clip, Surrogate, TokenMean, Unclipped


class TestSteadyEntropy:
    @SEEDS
    @pytest.mark.parametrize("score", ["paper", "exact"])
    @pytest.mark.parametrize("map", ["exponential", "linear"])
    def test_weights_decision_by_decision(self, seed: int, score: Any, map: Any) -> None:
        batch = random_batch(seed)
        changes = []
        for n in numbers(batch):
            p = math.exp(n["logp"])
            if score == "paper":
                # As released: (A / pi_old) pi (1 - pi) (log pi + H).
                changes.append(abs(n["A"] / (p / n["r"]) * p * (1 - p) * (n["logp"] + n["entropy"])))
            else:
                changes.append(abs(n["A"] * n["r"] * (p * (n["logp"] + n["entropy"]) - n["entropy_slope"])))
        if map == "exponential":
            kappa = -math.log(0.3) / max(*changes, 0.02)
            expected = [min(1.0, max(0.3, math.exp(-kappa * d))) for d in changes]
        else:
            low, high = min(changes), max(changes)
            expected = [1.5 - (d - low) / (high - low) * (1.5 - 0.3) for d in changes]
        part = STEERWeight(score=score, map=map, low=0.3, high=1.5)
        found = part(surveyed(batch), batch.evaluation())
        assert [found[i, t].item() for i, t in places(batch.experience)] == pytest.approx(expected, rel=1e-10)
        assert min(expected) == pytest.approx(0.3)

    def test_small_changes_are_left_alone(self) -> None:
        """A largest change of 0.005 is a quarter of the floor: the least weight is the fourth root of `low`."""
        mask = torch.ones(1, 3, dtype=torch.bool)
        half = torch.full((1, 3), math.log(0.5), dtype=torch.float64)
        batch = Experience(
            mask=mask, rollout_logp=half, advantage=torch.tensor([[0.01, -0.02, 0.0]], dtype=torch.float64)
        )
        said = Evaluation(logp=half, entropy=torch.full_like(half, 0.5 - math.log(0.5)))
        found = STEERWeight(low=0.2)(batch.with_full_batch_evaluation(said), said)
        assert found[0].tolist() == pytest.approx([0.2**0.125, 0.2**0.25, 1.0])

    def test_all_equal_changes(self) -> None:
        batch = random_batch(0)
        batch = SampleBatch(
            batch.experience.replace(advantage=torch.zeros_like(batch.experience.advantage)), batch.leaves
        )
        for map, expected in (("exponential", 1.0), ("linear", 1.0)):
            found = STEERWeight(map=map)(surveyed(batch), batch.evaluation())  # type: ignore[arg-type]
            assert found[batch.mask].unique().tolist() == pytest.approx([expected])

    @SEEDS
    @pytest.mark.parametrize("score", ["paper", "exact"])
    def test_its_gradient_is_the_weighted_clips(self, seed: int, score: Any) -> None:
        batch, part = random_batch(seed), STEERWeight(score=score, low=0.2)
        weights = part(surveyed(batch), batch.evaluation())
        result = Surrogate(trust=Clip(low=0.1, high=0.2), weights=[part])(batch.experience, batch.evaluation())
        (grad,) = torch.autograd.grad(result.loss, batch.leaves["logp"])
        known = numbers(batch)
        for (i, t), n in zip(places(batch.experience), known, strict=True):
            _, slope = loops.clipped(n["r"], n["A"], 0.1, 0.2)
            expected = weights[i, t].item() * slope * n["r"] / len(known)
            assert grad[i, t].item() == pytest.approx(expected, rel=1e-9, abs=1e-12)

    def test_with_weights_of_one_steer_is_grpo_by_tokens(self) -> None:
        batch = random_batch(1)
        plain = Surrogate(trust=Clip(low=0.2, high=0.28, dual=10.0), aggregate=TokenMean())
        for map in ("exponential", "linear"):
            ours = po.method("steer", weight=1.0, most=1.0, map=map).objective
            a, b = (part(batch.experience, batch.evaluation()).loss for part in (ours, plain))
            torch.testing.assert_close(a, b, rtol=1e-12, atol=0)

    @pytest.mark.parametrize("settings", [{"low": 0.0}, {"low": 1.1}, {"low": 0.9, "high": 0.8}, {"floor": 0.0}])
    def test_refusals(self, settings: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="STEERWeight: need"):
            STEERWeight(**settings)

    def test_who_does_not_ask_for_the_vocabulary_does_not_pay(self) -> None:
        assert po.method("steer").required_outputs == {"entropy"}
        assert po.method("steer", score="exact").required_outputs == {"entropy", "extras.entropy_slope"}


def covariance(batch: SampleBatch) -> dict[tuple[int, int], float]:
    known = numbers(batch)
    mean = {k: statistics.fmean(n[k] for n in known) for k in ("A", "logp")}
    spots = zip(places(batch.experience), known, strict=True)
    return {spot: (n["A"] - mean["A"]) * (n["logp"] - mean["logp"]) for spot, n in spots}


def marked(values: torch.Tensor) -> set[tuple[int, int]]:
    return {(i, t) for i, t in values.nonzero().tolist()}


class TestClipCov:
    part = ClipCov(share=0.1, least=0.2, most=4.0, low=0.3, high=0.3)

    def eligible(self, batch: SampleBatch) -> set[tuple[int, int]]:
        free = {
            spot
            for spot, n in zip(places(batch.experience), numbers(batch), strict=True)
            if loops.clipped(n["r"], n["A"], 0.3, 0.3)[1] != 0
        }
        return {spot for spot, c in covariance(batch).items() if 0.2 < c < 4.0 and spot in free}

    @SEEDS
    def test_decision_by_decision(self, seed: int) -> None:
        batch = random_batch(seed, B=30)
        stopped = marked(self.part.stopped(surveyed(batch)))
        known = dict(zip(places(batch.experience), numbers(batch), strict=True))
        assert stopped <= self.eligible(batch)
        assert len(stopped) == min(max(1, len(known) // 10), len(self.eligible(batch)))
        result = Surrogate(trust=self.part)(batch.experience, batch.evaluation())
        (grad,) = torch.autograd.grad(result.loss, batch.leaves["logp"])
        total = 0.0
        for (i, t), n in known.items():
            term, slope = (0.0, 0.0) if (i, t) in stopped else loops.clipped(n["r"], n["A"], 0.3, 0.3)
            assert grad[i, t].item() == pytest.approx(slope * n["r"] / len(known), rel=1e-10, abs=1e-14)
            total += term / len(known)
        assert result.loss.item() == pytest.approx(total, rel=1e-10)

    def test_every_eligible_decision_is_drawn_alike(self) -> None:
        batch, part = random_batch(2, B=30), self.part.but(share=0.02)
        experience, eligible = surveyed(batch), self.eligible(batch)
        counts = dict.fromkeys(eligible, 0)
        each = max(1, int(0.02 * len(places(batch.experience))))
        for _ in range(800):
            drawn = marked(part.stopped(experience))
            assert drawn == marked(part.stopped(experience))
            assert len(drawn) == each
            for spot in drawn:
                counts[spot] += 1
            part.step()
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_rounding_in_the_survey_moves_no_draw(self) -> None:
        batch = random_batch(1, B=30)
        experience = surveyed(batch)
        noise = 1e-14 * torch.randn(batch.mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        shaken = dataclasses.replace(
            experience.full_batch_evaluation, logp=experience.full_batch_evaluation.logp + noise
        )
        assert marked(self.part.stopped(experience.replace(full_batch_evaluation=shaken))) == marked(
            self.part.stopped(experience)
        )

    def test_seeds_differ(self) -> None:
        experience = surveyed(random_batch(2, B=30))
        assert (
            len({frozenset(marked(self.part.but(seed=seed, share=0.02).stopped(experience))) for seed in range(5)}) > 1
        )

    def test_without_a_share_it_is_the_clip(self) -> None:
        batch = random_batch(1)
        ours, plain = (
            Surrogate(trust=trust)(batch.experience, batch.evaluation())
            for trust in (self.part.but(share=0.0), Clip(low=0.3, high=0.3))
        )
        assert ours.loss == plain.loss
        assert ours.metrics == plain.metrics

    def test_refusals(self) -> None:
        for wrong in ({"share": 1.1}, {"low": 2.0}, {"high": -0.1}):
            with pytest.raises(ValueError, match="ClipCov: need"):
                ClipCov(**wrong)


class TestKLCov:
    @SEEDS
    @pytest.mark.parametrize("percent", [0.1, 7.0, 100.0])
    def test_decision_by_decision(self, seed: int, percent: float) -> None:
        batch, part = random_batch(seed, B=30), KLCov(percent=percent, coefficient=1.5)
        known = dict(zip(places(batch.experience), numbers(batch), strict=True))
        ranked = sorted(known, key=covariance(batch).__getitem__, reverse=True)
        held = set(ranked[: max(1, int(len(known) * percent / 100))])
        assert marked(part.penalised(surveyed(batch))) == held
        result = Surrogate(trust=part)(batch.experience, batch.evaluation())
        (grad,) = torch.autograd.grad(result.loss, batch.leaves["logp"])
        for (i, t), n in known.items():
            slope = -n["A"] * n["r"] + (1.5 * math.copysign(1, math.log(n["r"])) if (i, t) in held else 0)
            assert grad[i, t].item() == pytest.approx(slope / len(known), rel=1e-10, abs=1e-14)

    def test_without_a_share_it_is_the_plain_surrogate(self) -> None:
        batch = random_batch(1)
        ours, plain = (
            Surrogate(trust=trust)(batch.experience, batch.evaluation()).loss
            for trust in (KLCov(percent=0.0), Unclipped())
        )
        assert ours == plain

    def test_the_penalty_has_no_pull_on_policy(self) -> None:
        batch = random_batch(1, clean=True)
        logp = batch.experience.rollout_logp.clone().requires_grad_()
        pulls = []
        for percent in (0.0, 100.0):
            loss = Surrogate(trust=KLCov(percent=percent))(batch.experience, Evaluation(logp=logp)).loss
            pulls.append(torch.autograd.grad(loss, logp)[0])
        assert torch.equal(*pulls)

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="KLCov: percent must be in"):
            KLCov(percent=101.0)
