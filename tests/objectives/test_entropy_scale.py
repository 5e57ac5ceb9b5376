"""HAPO: levels of entropy on a scale, and clips, shares and temperatures that follow them."""

from __future__ import annotations

import math
import statistics
from typing import Any

import loops
import pytest
import torch
from batches import random_batch
from entropy_batches import SEEDS, TOKENS, levels, numbers, places, surveyed

import polopt as po
from polopt import ops
from polopt.credit import GroupStd, RelativeAdvantage
from polopt.experience import Experience
from polopt.methods.hapo import BoundedAdvantage, EntropyAdvantage, EntropyClip, EntropyLevel
from polopt.objectives import Clip, Surrogate

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
