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
from scipy import stats

import polopt as po
from polopt import ops
from polopt.credit import BoundedAdvantage, GroupMean, GroupStd, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import (
    Clip,
    ClipCov,
    EntropyAdvantage,
    EntropyClip,
    EntropyLevel,
    KLCov,
    STEERWeight,
    Surrogate,
    TokenMean,
    Unclipped,
)

SEEDS = pytest.mark.parametrize("seed", range(4))
TOKENS = RelativeAdvantage(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))


def places(experience: Experience) -> list[tuple[int, int]]:
    return [(i, t) for i, row in enumerate(loops.decisions(experience)) for t in row]


def numbers(batch: SampleBatch) -> list[dict[str, float]]:
    """What is known of each decision, in plain numbers."""
    leaves = {k.removeprefix("extras."): v.detach() for k, v in batch.leaves.items()}
    found = []
    for i, t in places(batch.experience):
        r = math.exp(leaves["logp"][i, t].item() - batch.experience.logp[i, t].item())
        known = {n: leaves[n][i, t].item() for n in ("logp", "entropy", "entropy_slope")}
        found.append({"A": batch.experience.advantage[i, t].item(), "r": r, **known})
    return found


def surveyed(batch: SampleBatch) -> Experience:
    return batch.experience.surveyed(batch.evaluation())


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
        batch = Experience(mask=mask, logp=half, advantage=torch.tensor([[0.01, -0.02, 0.0]], dtype=torch.float64))
        said = Evaluation(logp=half, entropy=torch.full_like(half, 0.5 - math.log(0.5)))
        found = STEERWeight(low=0.2)(batch.surveyed(said), said)
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
        assert po.method("steer").all_evaluates == {"entropy"}
        assert po.method("steer", score="exact").all_evaluates == {"entropy", "extras.entropy_slope"}


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
            part.advance()
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_rounding_in_the_survey_moves_no_draw(self) -> None:
        batch = random_batch(1, B=30)
        experience = surveyed(batch)
        noise = 1e-14 * torch.randn(batch.mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        shaken = dataclasses.replace(experience.survey, logp=experience.survey.logp + noise)
        assert marked(self.part.stopped(experience.replace(survey=shaken))) == marked(self.part.stopped(experience))

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
        assert marked(part.held(surveyed(batch))) == held
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
        logp = batch.experience.logp.clone().requires_grad_()
        pulls = []
        for percent in (0.0, 100.0):
            loss = Surrogate(trust=KLCov(percent=percent))(batch.experience, Evaluation(logp=logp)).loss
            pulls.append(torch.autograd.grad(loss, logp)[0])
        assert torch.equal(*pulls)

    def test_refusals(self) -> None:
        with pytest.raises(ValueError, match="KLCov: percent must be in"):
            KLCov(percent=101.0)


def release(entropy: list[float], quantile: float) -> list[float]:
    """Entropy levels as HAPO's program computes them: standardised about the pivot, then each side by its extreme."""
    z = [math.log(max(h, 1e-8)) for h in entropy]
    pivot = sorted(z)[round(quantile * (len(z) - 1))]
    std = math.sqrt(max(statistics.fmean((x - pivot) ** 2 for x in z), 1e-8))
    h = [(x - pivot) / std for x in z]
    high, low = max(*(x for x in h), 1e-8), min(*(x for x in h), -1e-8)
    return [x / high if x > 0 else x / low for x in h]


def levels(batch: SampleBatch, quantile: float, compat: str) -> dict[tuple[int, int], float]:
    entropies = [n["entropy"] for n in numbers(batch)]
    found = release(entropies, quantile)
    if compat == "text":
        pivot = sorted(entropies)[round(quantile * (len(entropies) - 1))]
        found = [-h if e <= pivot else h for h, e in zip(found, entropies, strict=True)]
    return dict(zip(places(batch.experience), found, strict=True))


COMPAT = pytest.mark.parametrize("compat", ["text", "released"])


class TestEntropyLevel:
    @SEEDS
    @COMPAT
    @pytest.mark.parametrize("quantile", [0.0, 0.5, 0.8, 1.0])
    def test_against_the_release(self, seed: int, compat: Any, quantile: float) -> None:
        """Whose standard deviation about the pivot cancels."""
        batch = random_batch(seed, B=30)
        found = EntropyLevel(quantile=quantile, compat=compat)(surveyed(batch))
        expected = levels(batch, quantile, compat)
        assert [found[spot].item() for spot in expected] == pytest.approx(list(expected.values()), abs=1e-9)
        assert found[batch.mask].abs().max() == pytest.approx(1.0)

    def test_the_ends_and_the_pivot(self) -> None:
        entropy = torch.tensor([0.1, 0.2, 0.4, 0.8, 1.6], dtype=torch.float64)
        scale = ops.entropy_scale(entropy, 0.5)
        assert scale == pytest.approx([math.log(x) for x in (0.1, 0.4, 1.6)])
        asked = torch.tensor([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 9.0], dtype=torch.float64)
        assert ops.entropy_level(asked, *scale).tolist() == pytest.approx([-1, -1, -0.5, 0, 0.5, 1, 1])
        heated = ops.entropy_level(asked, *scale, released=True)
        assert heated.tolist() == pytest.approx([1, 1, 0.5, 0, 0.5, 1, 1])

    def test_rounding_is_no_level(self) -> None:
        """Where all entropies are one, their last float32 bit does not make any of them the highest."""
        entropy = torch.full((9,), 0.7)
        entropy[3] = torch.nextafter(entropy[3], torch.tensor(1.0))
        assert ops.entropy_level(entropy, *ops.entropy_scale(entropy, 0.5)).abs().max() < 1e-2


class TestEntropyClip:
    def test_bounds_at_the_ends(self) -> None:
        """(low, high) at h = -1, 0 and 1."""
        low, high = EntropyClip().ranges(torch.tensor([-1.0, 0.0, 1.0]))
        assert low.tolist() == pytest.approx([0.4, 0.2, 0.2])
        assert high.tolist() == pytest.approx([0.2, 0.2, 0.4])

    @SEEDS
    @COMPAT
    @pytest.mark.parametrize("strength", [0.0, 0.7])
    def test_decision_by_decision(self, seed: int, compat: Any, strength: float) -> None:
        batch = random_batch(seed, B=30)
        clip = EntropyClip(low=0.15, high=0.25, strength=0.8, dual=1.6, level=EntropyLevel(compat=compat))
        part = EntropyAdvantage(trust=clip, strength=strength) if strength else clip
        result = Surrogate(trust=part)(batch.experience, batch.evaluation())
        (grad,) = torch.autograd.grad(result.loss, batch.leaves["logp"])
        level, known = levels(batch, 0.8, compat), numbers(batch)
        total = 0.0
        for (i, t), n in zip(places(batch.experience), known, strict=True):
            h = level[i, t]
            low, high = (0.15, 0.25 * (1 + 0.8 * h)) if h > 0 else (0.15 * (1 - 0.8 * h), 0.25)
            inside = 1 - low / 2 < n["r"] < 1 + high / 2
            A = n["A"] * (1 + strength * h) if inside == (h <= 0) else n["A"]
            term, slope = loops.clipped(n["r"], A, low, high, 1.6)
            total += term / len(known)
            assert grad[i, t].item() == pytest.approx(slope * n["r"] / len(known), rel=1e-9, abs=1e-12)
        assert result.loss.item() == pytest.approx(total, rel=1e-10)

    def test_limits(self) -> None:
        batch = random_batch(2)
        plain = Surrogate(trust=Clip(low=0.1, high=0.3, dual=2.0))(batch.experience, batch.evaluation()).loss
        clip = EntropyClip(low=0.1, high=0.3, dual=2.0, strength=0.0)
        for trust in (clip, EntropyAdvantage(trust=clip, strength=0.0)):
            assert Surrogate(trust=trust)(batch.experience, batch.evaluation()).loss == plain

    def test_refusals(self) -> None:
        for part, wrong in (
            (EntropyClip, {"low": 1.5}),
            (EntropyClip, {"strength": -1.0}),
            (EntropyClip, {"dual": 1.0}),
            (EntropyAdvantage, {"strength": 1.5}),
            (EntropyLevel, {"quantile": 1.5}),
        ):
            with pytest.raises(ValueError, match=f"{part.__name__}: "):
                part(**wrong)


class TestByToken:
    @SEEDS
    def test_every_token_counts(self, seed: int) -> None:
        e = random_batch(seed, B=30).experience
        R, lengths = loops.outcomes(e), e.lengths.tolist()
        found = TOKENS(e)
        for i, row in enumerate(loops.decisions(e)):
            tokens = [R[j] for j in loops.group_of(e, i) for _ in range(lengths[j])]
            if row:
                expected = (R[i] - statistics.fmean(tokens)) / (statistics.pstdev(tokens) + 1e-6)
                assert found[i, row].tolist() == pytest.approx([expected] * len(row), abs=1e-9)
        for group in e.group.unique():
            assert found[e.group == group].sum().item() == pytest.approx(0, abs=1e-9)

    def test_the_sample_std_of_tokens(self) -> None:
        mask = torch.tensor([[True, True], [True, False]])
        e = Experience(mask=mask, reward=torch.tensor([1.0, 4.0]), group=torch.zeros(2, dtype=torch.long))
        std = GroupStd(unit="token", eps=0.0)(e, e.reward)
        assert std.tolist() == pytest.approx([statistics.stdev([1.0, 1.0, 4.0])] * 2)

    def test_equal_lengths_are_grpo_with_the_population_std(self) -> None:
        e = random_batch(0, clean=True).experience
        e = e.replace(mask=torch.ones_like(e.mask))
        plain = RelativeAdvantage(scale=GroupStd(correction=0))(e)
        torch.testing.assert_close(TOKENS(e), plain, rtol=1e-12, atol=1e-14)

    def test_a_group_with_one_extreme_takes_the_other_credit(self) -> None:
        """Group 0: one of 37 tokens right, A = 6; group 1: half of the tokens."""
        lengths = torch.tensor([1, 36, 3, 3])
        mask = torch.arange(36) < lengths[:, None]
        reward, group = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64), torch.tensor([0, 0, 1, 1])
        e = Experience(mask=mask, reward=reward, group=group)
        assert TOKENS(e)[0, 0].item() == pytest.approx(6.0, abs=1e-3)
        found = BoundedAdvantage(credit=TOKENS, otherwise=RelativeAdvantage())(e)
        grpo = RelativeAdvantage()(e)
        torch.testing.assert_close(found[:2], grpo[:2])
        torch.testing.assert_close(found[2:], TOKENS(e)[2:])
        with pytest.raises(ValueError, match="BoundedAdvantage: limit must be > 0"):
            BoundedAdvantage(credit=TOKENS, otherwise=RelativeAdvantage(), limit=0)


class TestHapo:
    def test_without_its_parts_it_is_dapo_without_the_higher_clip(self) -> None:
        mild = po.method("hapo", heat=0.0, advantage=0.0, bounds=0.0, refills=9)
        mild = mild.but(credit=RelativeAdvantage(), **{"objective.trust": Clip(dual=10.0)})
        assert {path for path, *_ in po.diff(mild, po.method("dapo"))} == {
            "objective.trust.high",
            "objective.trust.dual",
        }
        batch = random_batch(1)
        none = po.method("hapo", advantage=0.0, bounds=0.0).objective
        a, b = (part(batch.experience, batch.evaluation()).loss for part in (none, mild.objective))
        assert a == b

    def test_one_level_for_all(self) -> None:
        algorithm = po.method("hapo", quantile=0.6, compat="released")
        assert algorithm.sampling.adapt.quantile == algorithm.objective.trust.trust.level.quantile == 0.6
        assert algorithm.sampling.adapt.compat == algorithm.objective.trust.trust.level.compat == "released"
