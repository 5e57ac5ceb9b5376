"""Weights of a log's trajectories, against numpy and trajectories written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from polopt.sampling import TrajectoryWeights, TransitionReplay, WeightedLog
from polopt.sampling.log_weights import positive_variance, trajectories

# Rows 4, 0, 1 are one trajectory, over the end of the ring; 2, 3 another; 5 a third.
FOLLOWING = torch.tensor([1, 0, 1, 0, 2, 0])


def log() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        "following": FOLLOWING,
        "observation": torch.randn(6, 2, generator=draw),
        "reward": torch.tensor([1.0, 2.0, 3.0, 5.0, 0.5, -1.0]),
    }


def test_rows_of_a_trajectory_are_found_over_the_end_of_a_ring() -> None:
    first, number = trajectories(FOLLOWING)
    assert first.tolist() == [2, 4, 5]
    assert number.tolist() == [1, 1, 0, 0, 1, 2]


@pytest.mark.parametrize("advantage", [False, True])
def test_weights_are_those_of_the_formula(advantage: bool) -> None:
    columns = log()
    columns["observation"] = torch.cat([columns["observation"][:, :1], torch.ones(6, 1)], 1)
    G = np.array([8.0, 3.5, -1.0])
    if advantage:
        s0 = columns["observation"][[2, 4, 5], 0].double().numpy()
        slope, intercept = np.polyfit(s0, G, 1)
        G = G - slope * s0 - intercept
    expected = np.exp((G - G.min()) / (G.max() - G.min()) / 0.2)[[1, 1, 0, 0, 1, 2]]
    found = TrajectoryWeights(alpha=0.2, advantage=advantage)(columns)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_equal_returns_are_weighed_alike() -> None:
    columns = log() | {"reward": torch.tensor([1.0, 1.0, 1.5, 1.5, 1.0, 3.0])}
    assert torch.equal(TrajectoryWeights(advantage=False)(columns), torch.ones(6, dtype=torch.float64))


def test_rows_are_drawn_in_proportion() -> None:
    drawn = WeightedLog(log(), TrajectoryWeights(alpha=0.5, advantage=False))
    rows = drawn.draw(20_000, torch.Generator().manual_seed(1))
    weights = TrajectoryWeights(alpha=0.5, advantage=False)(log()).numpy()
    counts = np.bincount(rows.numpy(), minlength=6)
    assert stats.chisquare(counts, 20_000 * weights / weights.sum()).pvalue > 1e-3
    G = np.array([8.0, 3.5, -1.0])
    assert drawn.metrics["log/positive_variance"] == pytest.approx(np.mean(np.clip(G - G.mean(), 0, None) ** 2))
    assert drawn.metrics["log/trajectories"] == 3
    assert positive_variance(torch.ones(4)) == 0


def test_weights_of_no_log_are_refused() -> None:
    with pytest.raises(ValueError, match="weights are of the log, and logged = 0 draws none of it"):
        TransitionReplay(weights=TrajectoryWeights())
    with pytest.raises(ValueError, match="alpha must be > 0"):
        TrajectoryWeights(alpha=0.0)
