"""ORPO: the mean negative log-likelihood of preferred answers, by token, plus TRL's loss of the odds."""

import types

import pytest
import torch

import polopt as po
from polopt.objectives import LogOddsReward, PairedObjective


def pairs() -> tuple[po.Experience, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Five pairs, and their log-probabilities; the chosen and the rejected rows' means."""
    g = torch.Generator().manual_seed(0)
    logp = -torch.rand(10, 6, generator=g, dtype=torch.double) * 3
    mask = torch.arange(6) < torch.randint(1, 7, (10, 1), generator=g)
    batch = po.Experience(
        mask=mask,
        outcome=torch.tensor([1.0, 0.0] * 5, dtype=torch.double),
        group=torch.arange(5).repeat_interleave(2),
        horizon=6,
    )
    mean = torch.where(mask, logp, 0).sum(1) / mask.sum(1)
    return batch, torch.where(mask, logp, float("nan")), mean[::2], mean[1::2]


def test_the_loss_is_trls() -> None:
    trainer = pytest.importorskip("trl.experimental.orpo").ORPOTrainer
    batch, logp, chosen, rejected = pairs()
    stand_in = types.SimpleNamespace(beta=0.2, accelerator=types.SimpleNamespace(device="cpu"))
    gain, *_ = trainer.odds_ratio_loss(stand_in, chosen, rejected)
    algorithm = po.method("orpo", lam=0.2)
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    found = algorithm.objective(ready, po.Evaluation(logp=logp)).loss
    assert found.item() == pytest.approx((-chosen.mean() - gain.double().mean()).item(), abs=1e-5)


def test_the_odds_in_float64() -> None:
    batch, logp, chosen, rejected = pairs()
    found = PairedObjective(implicit=LogOddsReward())(batch, po.Evaluation(logp=logp))
    ratio = torch.logit(chosen.exp()) - torch.logit(rejected.exp())
    assert found.loss.item() == pytest.approx(torch.log1p((-ratio).exp()).mean().item(), abs=1e-12)
    assert found.metrics["pairs/margin"].item() == pytest.approx(ratio.mean().item(), abs=1e-12)


def test_certain_answers_have_finite_odds() -> None:
    batch, logp, *_ = pairs()
    leaf = torch.zeros_like(logp).requires_grad_()
    found = PairedObjective(implicit=LogOddsReward())(batch, po.Evaluation(logp=leaf))
    assert found.loss.isfinite()
    assert torch.autograd.grad(found.loss, leaf)[0].isfinite().all()


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="lam must be >= 0, found -1"):
        po.method("orpo", lam=-1.0)
