"""RPO: DPO plus eta beta times the summed negative log-likelihood of the preferred answers, a mean over pairs."""

import pytest
import torch
from torch.nn import functional as F

import polopt as po


@pytest.mark.parametrize("eta", [0.0, 0.4])
def test_the_loss_by_hand(eta: float) -> None:
    """Three pairs, one of which stands in a list of three with another worse answer: five rows, four pairs, and every
    preferred answer once."""
    g = torch.Generator().manual_seed(0)
    logp, ref = (-torch.rand(7, 4, generator=g, dtype=torch.double) * 3 for _ in range(2))
    lengths = torch.tensor([4, 2, 3, 1, 4, 4, 2])
    mask = torch.arange(4) < lengths[:, None]
    batch = po.Experience(
        mask=mask,
        outcome=torch.tensor([1.0, 0, 1, 0, 0, 1, 0], dtype=torch.double),
        group=torch.tensor([0, 0, 1, 1, 1, 2, 2]),
        ref_logp=torch.where(mask, ref, float("nan")),
        horizon=4,
    )
    algorithm = po.method("rpo-sft", beta=0.5, eta=eta)
    batch = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    found = algorithm.objective(batch, po.Evaluation(logp=torch.where(mask, logp, float("nan"))))
    total, base = (torch.where(mask, x, 0).sum(1) for x in (logp, ref))
    implicit = 0.5 * (total - base)
    pairs = [(0, 1), (2, 3), (2, 4), (5, 6)]
    dpo = -sum(F.logsigmoid(implicit[w] - implicit[x]) for w, x in pairs) / 4
    expected = dpo - eta * 0.5 * (total[0] + total[2] + total[5]) / 3
    assert found.loss.item() == pytest.approx(expected.item(), abs=1e-12)
    assert found.metrics["pairs/accuracy"].item() == pytest.approx(
        sum(float(implicit[w] > implicit[x]) for w, x in pairs) / 4
    )


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="eta must be >= 0, found -1"):
        po.method("rpo-sft", eta=-1.0)
