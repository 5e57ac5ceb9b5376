"""Where published programs bound what a negative advantage may add: against the formula written out in plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import polopt as po
from polopt.evaluation import Evaluation
from polopt.experience import Experience

# Method, bound, lower and upper clip, and what the sum is divided by.
BOUNDED = {
    "canon": (3.0, 0.2, 0.28, "rows times horizon"),
    "typhoon-s-ink-grpo": (3.0, 0.2, 0.24, "tokens"),
    "bupo": (10.0, 0.2, 0.2, "tokens"),
}
B, T, HORIZON = 16, 12, 12


def batch_and_logp(seed: int) -> tuple[Experience, Tensor]:
    """Two groups of rewards 0 and 1; a tenth of the tokens has a ratio between 9 and 120, some of the others too."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda *size: torch.rand(*size, generator=g, dtype=torch.double)  # noqa: E731
    mask = torch.arange(T) < torch.randint(2, T + 1, (B,), generator=g)[:, None]
    old = -5.5 - draw(B, T)  # the largest gap is log 120 = 4.8
    far = draw(B, T) < 0.1
    gap = torch.where(far, 9 + 111 * draw(B, T), 0.5 + draw(B, T)).log()
    outcome = (torch.arange(B) % 3 == 0).double()
    experience = Experience(
        mask=mask,
        rollout_logp=old,
        old_logp=old,
        entropy=draw(B, T),
        outcome=outcome,
        group=torch.arange(B) // 8,
        horizon=HORIZON,
        terminated=torch.ones(B, dtype=torch.bool),
        extras={"tokens": torch.zeros(B, T, dtype=torch.long)},
    )
    return experience, (old + gap).requires_grad_()


def written_out(batch: Experience, logp: Tensor, low: float, high: float, dual: float | None, per: str) -> Tensor:
    """mean of max(-A r, -A clip(r)), where A < 0 at most -A dual, with A the batch's own."""
    total, advantage = torch.zeros((), dtype=torch.double), batch.advantage
    for i, t in batch.mask.nonzero().tolist():
        r, a = (logp[i, t] - batch.rollout_logp[i, t]).exp(), advantage[i, t]
        term = torch.maximum(-a * r, -a * r.clamp(1 - low, 1 + high))
        if a < 0 and dual is not None:
            term = torch.minimum(term, -a * dual)
        total = total + term
    return total / (batch.mask.sum() if per == "tokens" else B * HORIZON)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("slug", BOUNDED)
def test_the_bound_is_the_programs(slug: str, seed: int) -> None:
    dual, low, high, per = BOUNDED[slug]
    # BuPO's second phase, and a batch without texts: what is left is the clipped surrogate.
    settings = {"batches": 0} if slug == "bupo" else {}
    batch, logp = batch_and_logp(seed)
    losses = {}
    for bound in ("default", None):
        algorithm = po.method(slug, **settings, **({} if bound == "default" else {"dual": None}))
        judged = algorithm.with_advantages(batch)
        loss = algorithm.objective(judged, Evaluation(logp=logp)).loss
        expected = written_out(judged, logp, low, high, dual if bound == "default" else None, per)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
        ours, theirs = (torch.autograd.grad(x, logp)[0] for x in (loss, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        losses[bound] = loss.item()
    assert losses[None] > losses["default"] + 0.1


def test_both_phases_of_bupo_are_bounded() -> None:
    trusts = [part for part in po.method("bupo").parts() if isinstance(part, po.objectives.Clip)]
    assert [trust.dual for trust in trusts] == [10.0, 10.0]


def test_bapo_s_default_is_the_published_statistic() -> None:
    """Bounds found by the program's rule on ratios and advantages, written out with its clipped sums."""
    batch, logp = batch_and_logp(0)
    algorithm = po.method("bapo-clip")
    judged = algorithm.with_advantages(batch)
    ratio, advantage = (logp - batch.rollout_logp).detach().exp()[batch.mask], judged.advantage[batch.mask]

    def quotient(low: float, high: float) -> float:
        right = (advantage.clamp(min=0) * ratio.clamp(max=high)).sum()
        return (right / (-advantage.clamp(max=0) * ratio.clamp(min=low)).sum()).item()

    low, high = 0.6, 1.2
    while quotient(low, high) < 1 and low < 0.9 - 1e-9:
        low += 0.05
    while quotient(low, high) < 1 and high < 3 - 1e-9:
        high += 0.05
    evaluation = Evaluation(logp=logp)
    found = algorithm.objective(judged.replace(full_batch_evaluation=evaluation), evaluation)
    assert float(found.metrics["clip/low"]) == pytest.approx(low, abs=1e-6)
    assert float(found.metrics["clip/high"]) == pytest.approx(high, abs=1e-6)
    terms = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(low, high))
    terms = torch.where(advantage < 0, torch.minimum(terms, -3 * advantage), terms)
    torch.testing.assert_close(found.loss.detach(), terms.mean(), rtol=1e-6, atol=1e-6)
