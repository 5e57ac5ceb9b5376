"""KTO: labels of single answers against TRL's loss, and what a batch of them must have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from trl_oracle import BETA, trl_kto

import polopt as po
from polopt.credit import ReferencePoint
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.methods.kto import kto
from polopt.objectives import LabelledObjective
from polopt.support import PLAIN


def rows(seed: int, mismatched: bool = True) -> tuple[Experience, Tensor]:
    """Seven answers with labels, as many of other prompts, and the policy's log-probabilities."""
    g = torch.Generator().manual_seed(seed)
    n = 14 if mismatched else 7
    lengths = torch.randint(1, 6, (n,), generator=g)
    mask = torch.arange(5) < lengths[:, None]
    logp, ref = (-torch.rand(n, 5, generator=g, dtype=torch.double) * 4 for _ in range(2))
    logp = torch.where(torch.arange(n)[:, None] >= 7, 0.7 * ref, logp)
    batch = Experience(
        mask=mask,
        ref_logp=torch.where(mask, ref, torch.nan),
        old_logp=logp,
        outcome=torch.tensor([1.0, 0, 1, 1, 0, 0, 1, *[0] * (n - 7)], dtype=torch.double),
        group=torch.arange(n),
        extras={"mismatched": torch.arange(n) >= 7} if mismatched else {},
    )
    return batch, logp


@pytest.mark.parametrize("loss_type", ["kto", "apo_zero_unpaired"])
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_trls(seed: int, loss_type: str) -> None:
    relative = loss_type == "kto"
    algorithm = kto(beta=BETA, desirable=1.3, undesirable=0.7, reference_point=relative)
    batch, logp = rows(seed, mismatched=relative)
    own = torch.arange(len(batch)) < 7
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    assert len(ready) == 7
    policy = logp[own].requires_grad_()
    loss = algorithm.objective(ready, Evaluation(logp=policy, support=PLAIN)).loss
    mask, ref = batch.mask, torch.where(batch.mask, batch.ref_logp, 0)
    total = torch.where(mask, logp, 0)
    strange = torch.stack([total[~own].sum(1), ref[~own].sum(1)]) if relative else torch.zeros(2, 0)
    if relative:
        assert (strange[0] - strange[1]).mean() > 0  # the reference point counts
    twin = logp[own].requires_grad_()
    good = batch.outcome[own] > 0
    expected = trl_kto(
        mask[own], torch.where(mask[own], twin, 0), ref[own], good, strange, weights=(1.3, 0.7), loss_type=loss_type
    )
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    slopes = [torch.autograd.grad(one, at)[0] for one, at in ((loss, policy), (expected, twin))]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-12)


def test_micro_batches_add_up() -> None:
    algorithm = kto(beta=BETA)
    batch, logp = rows(0)
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    policy = logp[:7].requires_grad_()
    whole = algorithm.objective(ready, Evaluation(logp=policy, support=PLAIN))
    parts, start = [], 0
    for micro in ready.split(2):
        at = policy[start : start + len(micro)]
        parts.append(algorithm.objective(micro, Evaluation(logp=at, support=PLAIN)))
        start += len(micro)
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item(), abs=1e-12)
    for name, value in whole.metrics.items():
        assert sum(float(part.metrics[name]) for part in parts) == pytest.approx(float(value), abs=1e-12)


def test_a_policy_behind_its_reference_has_point_zero() -> None:
    batch, _ = rows(1)
    low = batch.replace(old_logp=torch.where(batch.mask, batch.ref_logp, 0) - 1)
    assert (ReferencePoint().credited(low).extras["reference_point"] == 0).all()


def test_what_cannot_be_is_refused() -> None:
    batch, _ = rows(0)
    with pytest.raises(ExperienceError, match=r"credit.ReferencePoint needs answers that belong to other prompts"):
        ReferencePoint().credited(batch.replace(extras={"mismatched": torch.zeros(14, dtype=torch.bool)}))
    with pytest.raises(ValueError, match=r"credit.ReferencePoint: scale must be > 0, found 0"):
        ReferencePoint(scale=0.0)
    with pytest.raises(ValueError, match=r"need desirable >= 0 and undesirable >= 0, one of them > 0"):
        LabelledObjective(desirable=0.0, undesirable=0.0)
    assert po.method("kto", reference_point=False).required_fields.isdisjoint({"old_logp", "extras.mismatched"})
