"""The numbers that a learner reports of its updates, against the same arithmetic written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from learners import ALGORITHMS, batch_of, learner_of, prepared, slopes, stopping

from polopt import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.objectives import (
    Clip,
    SequenceMean,
    Surrogate,
)
from polopt.training.measure import describe
from polopt.training.noise import NoiseMeter
from polopt.training.specs import OptimiserSpec


def test_the_noise_meter_finds_a_known_noise_scale() -> None:
    """Gradients drawn around a known mean with known variance: tr(Sigma) / |G|^2 is known."""
    generator = torch.Generator().manual_seed(0)
    truth, spread, rows = torch.linspace(-1, 1, 50, dtype=torch.float64), 3.0, 16
    parameter = torch.nn.Parameter(torch.zeros(50, dtype=torch.float64))
    meter, found = NoiseMeter(), []
    for _ in range(600):
        for _ in range(4):
            noise = torch.randn(50, generator=generator, dtype=torch.float64)
            parameter.grad = truth + spread / rows**0.5 * noise
            meter.see([parameter.grad], rows)
        found.append(meter.scale())
    late = [scale for scale in found[100:] if scale is not None]
    expected = 50 * spread**2 / float(truth.square().sum())
    assert len(late) == 500
    assert sum(late) / len(late) == pytest.approx(expected, rel=0.05)


def test_a_signal_that_is_rounding_has_no_noise_scale() -> None:
    """Of three minibatches one has a gradient: |G|^2 is estimated as 0, but for rounding."""
    parameter, meter = torch.nn.Parameter(torch.zeros(7)), NoiseMeter()
    for seed in range(20):
        gradient = torch.randn(7, generator=torch.Generator().manual_seed(seed))
        for grad in (gradient, torch.zeros(7), torch.zeros(7)):
            parameter.grad = grad
            meter.see([parameter.grad], 4)
        assert meter.scale() is None


def test_noise_needs_two_minibatches_and_is_kept_with_the_state() -> None:
    algorithm, made = ALGORITHMS["grpo"], stopping()
    batch = prepared(made, algorithm, batch_of(made))
    alone, several = learner_of(made, algorithm), learner_of(made, algorithm, minibatches=2)
    assert "grad_noise" not in alone.update(batch, 0)
    assert not alone.noise.moments.any()
    several.update(batch, 0)
    assert several.noise.moments.any()
    fresh = learner_of(made, algorithm, minibatches=2)
    fresh.load(several.state())
    assert torch.equal(fresh.noise.moments, several.noise.moments)


def test_only_the_first_minibatch_is_compared_with_the_sampler() -> None:
    algorithm, made = ALGORITHMS["grpo"], stopping()
    batch = algorithm.compute_advantages(batch_of(made))
    record = learner_of(made, algorithm, epochs=2, minibatches=2, optimiser=OptimiserSpec(lr=0.05)).update(batch, 0)
    assert record["mismatch/max"] < 1e-10
    assert record["ratio/max"] > 1.01  # the largest of all steps
    assert abs(record["ratio/mean"] - 1) > 1e-4


def test_the_gradient_is_clipped_and_its_own_norm_reported() -> None:
    algorithm, made = ALGORITHMS["grpo"], stopping()
    batch = prepared(made, algorithm, batch_of(made))
    record = learner_of(made, algorithm, optimiser=OptimiserSpec(clip=1e-3, lr=1e-12)).update(batch, 0)
    assert record["grad_norm"] > 2e-3
    assert math.sqrt(sum(float(g.square().sum()) for g in slopes(made))) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("rows", [None, 5])
def test_what_only_policies_can_say(rows: int | None) -> None:
    made, reference = stopping(critic=True), stopping()
    reference.model.lm_head.bias.data.add_(
        torch.randn(len(reference.tokenizer), generator=torch.Generator().manual_seed(2))
    )
    batch = batch_of(made)
    learner = learner_of(made, ALGORITHMS["kl"], micro_rows=rows)
    filled = learner.assess(batch, frozenset({"old_logp", "value"}), {"ref_logp": reference})
    with torch.no_grad():
        mine, theirs = made.evaluate(batch, {"value"}), reference.evaluate(batch)
    for found, expected in [
        (filled.old_logp, mine.logp),
        (filled.ref_logp, theirs.logp),
        (filled.value, mine.value),
        (filled.final_value, mine.final_value),
    ]:
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        assert not found.requires_grad
    assert (filled.ref_logp - filled.old_logp)[batch.mask].abs().max() > 1e-3
    assert learner.assess(batch, frozenset({"rollout_logp"}), {}).old_logp is None


def test_what_the_world_told_besides_is_in_the_numbers_of_a_batch() -> None:
    made = stopping("float32")
    algorithm = Algorithm(credit=RelativeAdvantage(), objective=Surrogate(trust=Clip(), aggregate=SequenceMean()))
    batch = algorithm.compute_advantages(batch_of(made, rows=16))
    paid = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 2)
    true = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, float("nan")] * 2)
    judge = torch.full((16,), float("nan"))
    batch = batch.replace(
        outcome=paid,
        terminated=torch.ones(16, dtype=torch.bool),
        truncated=torch.zeros(16, dtype=torch.bool),
        extras={"signal_true": true, "signal_judge": judge, "predicted": torch.full((16,), 0.25)},
    )
    record = describe(batch)
    assert record["predicted/brier"] == pytest.approx((3 * 0.75**2 + 5 * 0.25**2) / 8)
    assert record["signal/true"] == pytest.approx(3 / 7)
    assert "signal/judge" not in record  # it never answered
    assert record["verifier/false_positive"] == pytest.approx(1 / 4)
    assert record["verifier/false_negative"] == pytest.approx(1 / 3)
    assert record["groups/mixed"] == pytest.approx(2 / 4)  # every second group of four is all wrong


def test_the_numbers_of_a_batch() -> None:
    made = stopping("float32")
    algorithm = Algorithm(credit=RelativeAdvantage(), objective=Surrogate(trust=Clip(), aggregate=SequenceMean()))
    batch = algorithm.compute_advantages(batch_of(made, rows=16))
    reward, length = batch.outcome.tolist(), batch.mask.sum(1).tolist()
    record = describe(batch)
    assert record["reward/mean"] == record["outcome/mean"] == pytest.approx(sum(reward) / 16)
    assert record["solved"] == sum(r >= 1 for r in reward) / 16
    mean = sum(reward) / 16
    assert record["reward/std"] == pytest.approx(math.sqrt(sum((r - mean) ** 2 for r in reward) / 16), rel=1e-5)
    assert record["length/mean"] == pytest.approx(sum(length) / 16)
    assert record["length/max"] == max(length)
    assert record["truncated"] == pytest.approx(sum(batch.truncated.tolist()) / 16)
    assert 0 < record["truncated"] < 1
    groups = [reward[i : i + 4] for i in range(0, 16, 4)]
    assert record["groups/signal"] == pytest.approx(sum(len(set(g)) > 1 for g in groups) / 4)
    shown = [
        x
        for row, marks in zip(batch.entropy.tolist(), batch.mask.tolist(), strict=True)
        for x, m in zip(row, marks, strict=True)
        if m
    ]
    assert record["entropy"] == pytest.approx(sum(shown) / len(shown), rel=1e-5)
    assert record["outcome/digit"] == record["outcome/mean"]
    edges, counts = record["reward/histogram"]["edges"], record["reward/histogram"]["counts"]
    assert sum(counts) == 16
    assert (edges[0], edges[-1]) == pytest.approx((min(reward), max(reward)), abs=1e-5)
