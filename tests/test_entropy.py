"""Objectives that watch the entropy, against the same formulas in plain loops, and their limits."""

from __future__ import annotations

import math
from typing import Any

import loops
import pytest
import torch
from batches import Batch, random_batch

import polopt as po
from polopt.experience import Evaluation, Experience
from polopt.objectives import Clip, SteadyEntropy, Surrogate, TokenMean

SEEDS = pytest.mark.parametrize("seed", range(4))


def places(experience: Experience) -> list[tuple[int, int]]:
    return [(i, t) for i, row in enumerate(loops.decisions(experience)) for t in row]


def numbers(batch: Batch) -> list[dict[str, float]]:
    """What is known of each decision, in plain numbers."""
    leaves = {k.removeprefix("extras."): v.detach() for k, v in batch.leaves.items()}
    found = []
    for i, t in places(batch.experience):
        r = math.exp(leaves["logp"][i, t].item() - batch.experience.logp[i, t].item())
        known = {n: leaves[n][i, t].item() for n in ("logp", "entropy", "entropy_slope")}
        found.append({"A": batch.experience.advantage[i, t].item(), "r": r, **known})
    return found


def surveyed(batch: Batch) -> Experience:
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
        part = SteadyEntropy(score=score, map=map, low=0.3, high=1.5)
        found = part(surveyed(batch), batch.evaluation())
        assert [found[i, t].item() for i, t in places(batch.experience)] == pytest.approx(expected, rel=1e-10)
        assert min(expected) == pytest.approx(0.3)

    def test_small_changes_are_left_alone(self) -> None:
        """A largest change of 0.005 is a quarter of the floor: the least weight is the fourth root of `low`."""
        mask = torch.ones(1, 3, dtype=torch.bool)
        half = torch.full((1, 3), math.log(0.5), dtype=torch.float64)
        batch = Experience(mask=mask, logp=half, advantage=torch.tensor([[0.01, -0.02, 0.0]], dtype=torch.float64))
        said = Evaluation(logp=half, entropy=torch.full_like(half, 0.5 - math.log(0.5)))
        found = SteadyEntropy(low=0.2)(batch.surveyed(said), said)
        assert found[0].tolist() == pytest.approx([0.2**0.125, 0.2**0.25, 1.0])

    def test_all_equal_changes(self) -> None:
        batch = random_batch(0)
        batch = Batch(batch.experience.replace(advantage=torch.zeros_like(batch.experience.advantage)), batch.leaves)
        for map, expected in (("exponential", 1.0), ("linear", 1.0)):
            found = SteadyEntropy(map=map)(surveyed(batch), batch.evaluation())  # type: ignore[arg-type]
            assert found[batch.mask].unique().tolist() == pytest.approx([expected])

    @SEEDS
    @pytest.mark.parametrize("score", ["paper", "exact"])
    def test_its_gradient_is_the_weighted_clips(self, seed: int, score: Any) -> None:
        batch, part = random_batch(seed), SteadyEntropy(score=score, low=0.2)
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
        with pytest.raises(ValueError, match="SteadyEntropy: need"):
            SteadyEntropy(**settings)

    def test_who_does_not_ask_for_the_vocabulary_does_not_pay(self) -> None:
        assert po.method("steer").all_evaluates == {"entropy"}
        assert po.method("steer", score="exact").all_evaluates == {"entropy", "extras.entropy_slope"}
