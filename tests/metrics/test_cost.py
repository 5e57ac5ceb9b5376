"""Tokens spent and problems solved, against a loop over problems and passes."""

from __future__ import annotations

import numpy as np
import pytest

from polopt.metrics import cost_curve


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_against_a_loop(seed: int, stop: bool) -> None:
    rng = np.random.default_rng(seed)
    tokens, solved = rng.integers(0, 50, (20, 6)), rng.random((20, 6)) < 0.2
    cost, share = cost_curve(tokens, solved, stop=stop)
    for k in range(1, 7):
        spent, right = 0, 0
        for lengths, wins in zip(tokens, solved, strict=True):
            done = False
            for length, win in zip(lengths[:k], wins[:k], strict=True):
                spent += 0 if done and stop else int(length)
                done = done or bool(win)
            right += done
        assert cost[k - 1] == pytest.approx(spent / 20)
        assert share[k - 1] == pytest.approx(right / 20)
    assert (np.diff(cost) >= 0).all()
    assert (np.diff(share) >= 0).all()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alike, found \(2, 3\) and \(2, 2\)"):
        cost_curve(np.ones((2, 3)), np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"found \(3,\)"):
        cost_curve([1, 2, 3], [1, 0, 0])
    with pytest.raises(ValueError, match=r"length >= 0, found -1"):
        cost_curve([[-1]], [[1]])
