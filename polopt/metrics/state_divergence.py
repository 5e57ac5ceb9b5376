"""The distance of a learner's states from a demonstrator's, and the bound by the divergence of their actions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class StateDivergence(NamedTuple):
    """Divergences in nats.

    states: the mean over steps 1 to H of KL(p_E^t || p_pi^t), the distributions of states. bound: its upper bound.
    by_step: KL of actions at steps 0 to H - 1 under the demonstrator's states, each unweighted, [H].
    """

    states: float
    bound: float
    by_step: NDArray[np.float64]


def state_divergence(
    start: ArrayLike, transitions: ArrayLike, demonstrator: ArrayLike, learner: ArrayLike, horizon: int
) -> StateDivergence:
    """Returns the divergence of a learner's states from a demonstrator's in a tabular problem, and its bound

        1/H sum_{t=1..H} KL(p_E^t || p_pi^t)  <=  1/H sum_{t=0..H-1} (H - t) E_{s ~ p_E^t} KL(pi_E(. | s) || pi(. | s)),

    by which an early difference of actions costs more than a late one. It follows from the chain rule of the
    divergence of whole trajectories, of which that of a state is a part; it is an equality where the state holds all
    earlier actions and the transitions are deterministic.

    start: [S] probabilities. transitions: [S, A, S]. demonstrator, learner: [S, A] probabilities.

    Raises:
        ValueError: shapes that do not fit, probabilities that do not add up to 1, or a horizon below 1.
    """
    p, P, expert, pi = (np.asarray(x, float) for x in (start, transitions, demonstrator, learner))
    shape = expert.shape
    if len(shape) != 2 or p.shape != shape[:1] or P.shape != (*shape, shape[0]) or pi.shape != shape or horizon < 1:
        raise ValueError(
            "state_divergence: needs start [S], transitions [S, A, S], policies [S, A] and a horizon >= 1, found "
            f"{list(p.shape)}, {list(P.shape)}, {list(shape)}, {list(pi.shape)} and {horizon}"
        )
    if any((x < 0).any() or (abs(x.sum(-1) - 1) > 1e-6).any() for x in (p, P, expert, pi)):
        raise ValueError("state_divergence: probabilities must be >= 0 and add up to 1")
    apart = _kl(expert, pi)
    own, other, states, by_step = p, p, 0.0, np.zeros(horizon)
    for t in range(horizon):
        by_step[t] = own @ np.where(own > 0, apart, 0.0)
        own, other = (np.einsum("s,sa,sau->u", x, policy, P) for x, policy in ((own, expert), (other, pi)))
        states += float(_kl(own, other)) / horizon
    bound = float((horizon - np.arange(horizon)) @ by_step) / horizon
    return StateDivergence(states, bound, by_step)


def _kl(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns KL(p || q) over the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: NDArray[np.float64] = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0).sum(-1)
    return found
