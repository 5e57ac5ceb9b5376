"""Optimiser steps, against the same arithmetic written out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from learners import ALGORITHMS, batch_of, learner_of, prepared, slopes, stopping

import polopt
from polopt import Algorithm, Experience, Support
from polopt.objectives import (
    Surrogate,
)
from polopt.training.language import with_prompt_logp
from polopt.training.learner import learning_rate
from polopt.training.specs import OptimiserSpec


@pytest.mark.parametrize("name", ALGORITHMS)
def test_micro_batches_change_nothing(name: str) -> None:
    algorithm = ALGORITHMS[name]
    made = stopping(critic=name == "critic")
    batch = prepared(made, algorithm, batch_of(made))
    assert len(set(batch.lengths.tolist())) > 1
    weights = [p.detach().clone() for p in made.parameters()]
    found = []
    for rows in (None, 1, 3, 5, 12, 100):
        with torch.no_grad():
            for parameter, value in zip(made.parameters(), weights, strict=True):
                parameter.copy_(value)
        record = learner_of(made, algorithm, micro_rows=rows).update(batch, 0)
        found.append((slopes(made), record))
    (first, whole), *others = found
    assert max(float(g.abs().max()) for g in first) > 1e-3
    for gradient, record in others:
        for ours, theirs in zip(gradient, first, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)
        for key, value in whole.items():
            assert record[key] == pytest.approx(value, abs=1e-6), key


def test_rows_of_advantage_zero_are_skipped_and_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, made = ALGORITHMS["grpo"], stopping()
    batch = prepared(made, algorithm, batch_of(made))
    dull = torch.arange(12) % 3 == 0
    batch = batch.replace(advantage=torch.where(dull[:, None], 0, batch.advantage))
    found = []
    for skip in (True, False):
        fresh, read = stopping(), []
        fresh.load_state_dict(made.state_dict())
        plain = fresh.evaluate
        fresh.evaluate = lambda e, n=(), plain=plain, read=read: read.append(len(e)) or plain(e, n)  # type: ignore[method-assign, func-returns-value]
        if not skip:
            everybody = lambda _, experience: experience.mask.any(1)  # noqa: E731
            monkeypatch.setattr(Surrogate, "contributes", everybody)
        learner_of(fresh, algorithm, micro_rows=4).update(batch, 0)
        found.append((sum(read), slopes(fresh)))
    (few, skipped), (many, full) = found
    assert (few, many) == (8, 12)
    for ours, theirs in zip(skipped, full, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=1e-11)


@pytest.mark.parametrize("rows", [None, 1, 2])
def test_prompts_are_scored_once_for_each_group(rows: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean log-probability of a prompt's tokens, the first of which is given, by the model's own forward pass."""
    made = stopping()
    batch = batch_of(made, support=Support(temperature=0.5))
    expected = []
    for i in range(12):
        ids = batch.extras["tokens"][i, : int(batch.mask[i].int().argmax())]
        table = made.model(ids[None], use_cache=False).logits[0].log_softmax(-1)
        expected.append(torch.stack([table[t - 1, ids[t]] for t in range(1, len(ids))]).mean())
    read: list[int] = []
    plain = made.evaluate
    monkeypatch.setattr(made, "evaluate", lambda e, n=(), top=0: read.append(len(e)) or plain(e, n))
    learner = learner_of(made, Algorithm(), micro_rows=rows)
    found = with_prompt_logp(batch, learner).extras["prompt_logp"]
    torch.testing.assert_close(found, torch.stack(expected).detach())
    assert sum(read) == 3  # groups, not rows
    assert not found.requires_grad
    assert learner.assess(batch, frozenset({"old_logp"}), {}).extras.keys() == batch.extras.keys()


def test_a_prompt_of_one_token_and_a_row_without_decisions_score_0() -> None:
    made = stopping()
    tokens = torch.tensor([[-1, 5, 6, 7], [4, 5, 6, -1]])
    mask = torch.tensor([[False, False, True, True], [False, False, False, False]])
    batch = Experience(mask=mask, group=torch.tensor([3, 1]), extras={"tokens": tokens})
    found = with_prompt_logp(batch, learner_of(made, Algorithm()))
    assert found.extras["prompt_logp"].tolist() == [0, 0]


def test_a_batch_without_signal_moves_nothing() -> None:
    algorithm, made = ALGORITHMS["grpo"], stopping()
    batch = prepared(made, algorithm, batch_of(made))
    before = [p.detach().clone() for p in made.parameters()]
    record = learner_of(made, algorithm).update(batch.replace(advantage=torch.zeros_like(batch.advantage)), 0)
    assert record == {"lr": 1e-3}
    assert all(torch.equal(a, b) for a, b in zip(before, made.parameters(), strict=True))


def test_a_step_by_hand() -> None:
    """GRPO with a KL term from its formula, row by row; then AdamW's first step in closed form; then the metrics."""
    algorithm, made = ALGORITHMS["kl"], stopping()
    raw = batch_of(made)
    batch = prepared(made, algorithm, raw)
    rewards = raw.outcome.double().reshape(3, 4)
    z = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)).reshape(12)
    loss, ratios, held, kls = torch.zeros((), dtype=torch.float64), [], [], []
    now = []
    for i in range(12):
        n = int((raw.extras["tokens"][i] >= 0).sum())
        ids = raw.extras["tokens"][i, :n]
        logp = made.model(ids[None], use_cache=False).logits[0].log_softmax(-1)
        terms = []
        for t in raw.mask[i].nonzero().flatten().tolist():
            lp = logp[t - 1, ids[t]]
            now.append(lp.item())
            ratio = (lp - raw.rollout_logp[i, t]).exp()
            surrogate = torch.minimum(ratio * z[i], ratio.clamp(0.8, 1.2) * z[i])
            d = batch.ref_logp[i, t] - lp
            kl = d.exp() - d - 1
            terms.append(-surrogate + 0.3 * kl)
            ratios.append(ratio.item())
            held.append(bool(ratio * z[i] > ratio.clamp(0.8, 1.2) * z[i]))
            kls.append((kl.item(), len(raw.mask[i].nonzero())))
        loss = loss + torch.stack(terms).mean() / 12
    expected = torch.autograd.grad(loss, list(made.parameters()), allow_unused=True)
    before = [p.detach().clone() for p in made.parameters()]
    record = learner_of(made, algorithm, micro_rows=5, optimiser=OptimiserSpec(lr=0.01, clip=1e9)).update(batch, 0)
    for parameter, old, slope in zip(made.parameters(), before, expected, strict=True):
        assert slope is not None
        torch.testing.assert_close(parameter.grad, slope, atol=1e-7, rtol=1e-6)  # advantages are float32
        # Moments start at zero and are corrected for it: m = g, v = g^2.
        torch.testing.assert_close(parameter.detach(), old - 0.01 * slope / (slope.abs() + 1e-8), atol=1e-5, rtol=0)
    norm = math.sqrt(sum(float(g.square().sum()) for g in expected if g is not None))
    assert record["loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert record["grad_norm"] == pytest.approx(norm, rel=1e-6)
    assert record["ratio/mean"] == pytest.approx(sum(ratios) / len(ratios), rel=1e-9)
    assert record["ratio/square"] == pytest.approx(sum(r * r for r in ratios) / len(ratios), rel=1e-9)
    assert record["clip_fraction"] == pytest.approx(sum(held) / len(held), abs=1e-6)
    assert sum(held) > 0
    assert record["ReferenceKL"] == pytest.approx(sum(k / n for k, n in kls) / 12, rel=1e-9)
    assert record["lr"] == 0.01
    gap = (torch.tensor(now, dtype=torch.float64) - raw.rollout_logp[raw.mask]).abs()
    assert record["mismatch/mean"] == pytest.approx(gap.mean().item(), rel=1e-9)
    assert record["mismatch/max"] == pytest.approx(gap.max().item(), rel=1e-9)
    assert record["ratio/max"] == pytest.approx(max(ratios), rel=1e-9)


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (1, 4), (2, 5), (2, 100)])
def test_epochs_times_minibatches_steps(epochs: int, minibatches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, made = ALGORITHMS["grpo"], stopping("float32")
    batch = algorithm.compute_advantages(batch_of(made))
    batch = batch.replace(extras={"number": list(range(12))})
    learner = learner_of(made, algorithm, epochs=epochs, minibatches=minibatches)
    seen: list[list[int]] = []
    monkeypatch.setattr(
        learner, "_minibatch", lambda b, _, first: seen.append(b.extras["number"]) or {"first": float(first)}
    )
    record = learner.update(batch, 0)
    groups = len(batch.group.unique())
    each = min(minibatches, groups)
    assert len(seen) == epochs * each
    assert record["first"] == pytest.approx(1 / len(seen))
    for epoch in range(epochs):
        parts = seen[epoch * each : (epoch + 1) * each]
        assert sorted(n for part in parts for n in part) == list(range(12))
        held = [set(batch.group[part].tolist()) for part in parts]
        assert sum(map(len, held)) == groups  # no group is divided
        assert max(map(len, held)) - min(map(len, held)) <= 1
    if each > 1 and epochs > 1:
        assert seen[:each] != seen[each : 2 * each]


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_the_learning_rate(decay: Any) -> None:
    spec = OptimiserSpec(lr=0.5, warmup=4, decay=decay, final=0.1)
    rates = [learning_rate(spec, step, 14) for step in range(14)]
    assert rates[:4] == pytest.approx([0.125, 0.25, 0.375, 0.5])
    for k in range(10):
        x = k / 10
        expected = {"constant": 0.5, "linear": 0.5 - 0.45 * x, "cosine": 0.05 + 0.225 * (1 + math.cos(math.pi * x))}
        assert rates[4 + k] == pytest.approx(expected[decay])


def test_the_optimiser_steps_at_the_schedules_rate() -> None:
    made = stopping("float32")
    batch = ALGORITHMS["grpo"].compute_advantages(batch_of(made))
    learner = learner_of(made, ALGORITHMS["grpo"], steps=4, optimiser=OptimiserSpec(lr=0.2, decay="linear", warmup=1))
    assert [learner.update(batch, step)["lr"] for step in range(4)] == pytest.approx([0.2, 0.2, 0.4 / 3, 0.2 / 3])
    assert float(learner.stepper.lr) == pytest.approx(0.2 / 3)


def test_a_gradient_that_is_not_finite_is_refused_before_it_does_harm() -> None:
    algorithm, made = ALGORITHMS["grpo"], stopping()
    batch = algorithm.compute_advantages(batch_of(made))
    next(made.parameters()).register_hook(lambda slope: slope * torch.inf)
    before = [p.detach().clone() for p in made.parameters()]
    with pytest.raises(FloatingPointError, match="gradient's norm is"):
        learner_of(made, algorithm).update(batch, 0)
    assert all(torch.equal(a, b) for a, b in zip(before, made.parameters(), strict=True))


def test_a_learner_put_back_goes_on_bit_for_bit() -> None:
    algorithm = polopt.method("grpo", kl=0.0).but(**{"credit.baseline": polopt.credit.MovingAverage()})
    made = stopping("float32")
    batch = batch_of(made)
    learner = learner_of(made, algorithm, epochs=2, minibatches=3)
    learner.update(algorithm.compute_advantages(batch), 0)
    state = {k: v.clone() for k, v in learner.state().items()}
    weights = {k: v.clone() for k, v in made.state_dict().items()}
    numbers = learner.generator.get_state()
    learner.update(algorithm.compute_advantages(batch), 1)
    expected = [p.detach().clone() for p in made.parameters()]

    other = stopping("float32")
    other.load_state_dict(weights)
    fresh = algorithm.but(**{"credit.baseline": polopt.credit.MovingAverage()})
    again = learner_of(other, fresh, epochs=2, minibatches=3)
    again.load(state)
    again.generator.set_state(numbers)
    again.update(fresh.compute_advantages(batch), 1)
    assert all(torch.equal(a, b) for a, b in zip(expected, other.parameters(), strict=True))
    assert {k: v.tolist() for k, v in learner.state().items()} == {k: v.tolist() for k, v in again.state().items()}
