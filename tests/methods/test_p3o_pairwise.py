"""P3O: the loss of each clipping by hand, which gradients the bounds stop, and what is refused."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import polopt as po

GROUP = torch.tensor([0, 0, 1, 1, 1, 2])
LENGTHS = torch.tensor([3, 2, 1, 3, 2, 2])
ADVANTAGE = torch.tensor([1.0, 0.25, 0.5, 0.5, -1.0, 3.0], dtype=torch.double)


def batch_of(spread: float) -> tuple[po.Experience, torch.Tensor]:
    """A pair, three answers of which two are equal, and one alone; NaN outside the mask."""
    g = torch.Generator().manual_seed(0)
    mask = torch.arange(3) < LENGTHS[:, None]
    old = -3 * torch.rand(6, 3, generator=g, dtype=torch.double) - 5
    logp = old + spread * torch.randn(6, 3, generator=g, dtype=torch.double)
    hidden = lambda x: torch.where(mask, x, torch.nan)  # noqa: E731
    batch = po.Experience(
        mask=mask, rollout_logp=hidden(old), advantage=hidden(ADVANTAGE[:, None].expand(6, 3)), group=GROUP
    )
    return batch, hidden(logp).requires_grad_()


@pytest.mark.parametrize("clipping", ["joint", "separate", "tokens"])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0])
def test_the_loss_by_hand(clipping: str, spread: float) -> None:
    clip, limit = 0.2, 3.0
    batch, logp = batch_of(spread)
    ratio = [[(logp[i, t] - batch.rollout_logp[i, t]).item() for t in range(n)] for i, n in enumerate(LENGTHS.tolist())]
    terms, pairs = 0.0, 0
    for i, j in itertools.combinations(range(6), 2):
        if GROUP[i] != GROUP[j]:
            continue
        pairs += 1
        w, x = (i, j) if ADVANTAGE[i] > ADVANTAGE[j] else (j, i)
        z, y = sum(ratio[w]), sum(ratio[x])
        weight = min(max(math.exp(z + y), 1 / limit), limit)
        bounded = {
            "joint": min(z - y, clip),
            "separate": min(z, clip) + min(-y, clip),
            "tokens": sum(min(t, clip) for t in ratio[w]) + sum(min(-t, clip) for t in ratio[x]),
        }[clipping]
        terms += (ADVANTAGE[w] - ADVANTAGE[x]).item() * weight * bounded / 2
    objective = po.method("p3o-pairwise", clipping=clipping, clip=clip, max_weight=limit).objective
    found = objective(batch, po.Evaluation(logp=logp))
    assert pairs == 4
    assert found.loss.item() == pytest.approx(-terms / pairs, abs=1e-12)
    assert objective.contributes(batch).tolist() == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("clipping", "moved", "expected"),
    [
        ("joint", (0.3, 0.0), (0.0, 0.0)),
        ("joint", (0.3, 0.2), (1.0, -1.0)),
        ("joint", (-0.9, 0.2), (1.0, -1.0)),
        ("separate", (0.3, 0.0), (0.0, -1.0)),
        ("separate", (0.1, -0.3), (1.0, 0.0)),
        ("separate", (-0.9, 0.9), (1.0, -1.0)),
    ],
)
def test_a_bound_stops_what_has_gone_far_enough(clipping: str, moved: tuple, expected: tuple) -> None:
    """The gradient of answers of one token, the better one first, in units of D w / 2."""
    logp = torch.tensor([[moved[0] - 2], [moved[1] - 2]], dtype=torch.double).requires_grad_()
    batch = po.Experience(
        mask=torch.ones(2, 1, dtype=torch.bool),
        rollout_logp=torch.full((2, 1), -2.0, dtype=torch.double),
        advantage=torch.tensor([[3.0], [1.0]], dtype=torch.double),
        group=torch.tensor([0, 0]),
    )
    loss = po.method("p3o-pairwise", clipping=clipping).objective(batch, po.Evaluation(logp=logp)).loss
    (gradient,) = torch.autograd.grad(loss, logp)
    assert (-gradient[:, 0] / math.exp(sum(moved))).tolist() == pytest.approx(expected)


def test_the_distance_to_the_reference_is_a_part_of_the_difference() -> None:
    algorithm = po.method("p3o-pairwise", kl=0.5)
    batch, _ = batch_of(0.0)
    ref = torch.where(batch.mask, batch.rollout_logp - 0.1, torch.nan)
    batch = batch.replace(outcome=ADVANTAGE, ref_logp=ref, advantage=None)
    found = algorithm.compute_advantages(algorithm.sampling.mark(batch)).advantage[:, 0]
    assert found.tolist() == pytest.approx((ADVANTAGE - 0.5 * 0.1 * LENGTHS).tolist())


def test_a_batch_without_pairs_has_no_loss() -> None:
    batch, logp = batch_of(0.1)
    alone = batch[torch.tensor([0, 5])]
    found = po.method("p3o-pairwise").objective(alone, po.Evaluation(logp=logp[torch.tensor([0, 5])]))
    assert found.loss.item() == 0


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"need clip > 0 and max_weight >= 1, found 0\.0 and 10\.0"):
        po.method("p3o-pairwise", clip=0.0)
    with pytest.raises(ValueError, match=r"need clip > 0 and max_weight >= 1, found 0\.2 and 0\.5"):
        po.method("p3o-pairwise", max_weight=0.5)
    with pytest.raises((TypeError, ValueError), match="clipping"):
        po.method("p3o-pairwise", clipping="both")


def test_a_part_of_a_group_is_refused() -> None:
    batch, logp = batch_of(0.1)
    piece = next(batch.split(3))
    with pytest.raises(po.ExperienceError, match="PairwiseSurrogate compares the rows of a group"):
        po.method("p3o-pairwise").objective(piece, po.Evaluation(logp=logp[:3]))
