"""Logged decisions: the behaviour policy's actions and rewards, with their probabilities under both policies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.metrics.row_format import MetricDataError

Numbers = NDArray[np.float64]


class LoggedDataError(MetricDataError):
    """Logged decisions cannot be used; the message names the row or the field, what was found and the fix."""


@dataclasses.dataclass(frozen=True, eq=False)
class LoggedDecisions:
    """B episodes of up to T decisions each, in order, from the left.

    lengths: [B] decisions of each episode, at least 1. reward: [B, T]. behaviour_logp, target_logp: [B, T]
    log-probabilities, or log-densities, of the action that was taken, under the policy that took it and under the one
    to be evaluated; the latter is -inf where that policy never takes it. state, action: [B, T] whole numbers that
    identify them. q, v: [B, T] a model's values of the action, and of the state under the target policy.
    Entries after an episode's end are never read, and are kept as 0. Arrays are stored by columns, as estimators go
    through all episodes of a step.

    Raises:
        LoggedDataError: shapes that differ, an episode without decisions, or a number that is not finite.
    """

    lengths: NDArray[np.int64]
    reward: Numbers
    behaviour_logp: Numbers
    target_logp: Numbers
    state: NDArray[np.int64] | None = None
    action: NDArray[np.int64] | None = None
    q: Numbers | None = None
    v: Numbers | None = None

    def __post_init__(self) -> None:
        lengths = np.asarray(self.lengths, np.int64)
        object.__setattr__(self, "lengths", lengths)
        shape = np.shape(self.reward)
        if len(shape) != 2 or lengths.shape != shape[:1] or not shape[0]:
            raise LoggedDataError(
                f"LoggedDecisions: reward must be [B, T] and lengths [B], with B >= 1, found {list(shape)} and "
                f"{list(lengths.shape)}"
            )
        if (lengths < 1).any() or (lengths > shape[1]).any():
            raise LoggedDataError(f"LoggedDecisions: lengths must be from 1 to {shape[1]}, found {lengths.tolist()}")
        for name in ("reward", "behaviour_logp", "target_logp", "state", "action", "q", "v"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, self._checked(name, value, shape))

    def _checked(self, name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
        found = np.asarray(value, np.int64 if name in ("state", "action") else np.float64)
        if found.shape != shape:
            raise LoggedDataError(f"LoggedDecisions: {name} must be {list(shape)}, found {list(found.shape)}")
        found = np.asfortranarray(np.where(self.mask, found, 0))
        bad = np.isnan(found) | (found == np.inf) if name == "target_logp" else ~np.isfinite(found)
        if bad.any():
            b, t = (int(i[0]) for i in bad.nonzero())
            raise LoggedDataError(
                f"LoggedDecisions: {name} of decision {t} of episode {b} must be a finite number, found {found[b, t]}"
            )
        return found

    @classmethod
    def of_experience(cls, experience: Experience, evaluation: Evaluation) -> Self:
        """Converts the decisions of a batch: `experience.rollout_logp` is the behaviour policy's, `evaluation.logp` the
        target's. Rows without decisions are left out; a reward [B] is that of the row's last decision.

        Raises:
            LoggedDataError: no row has decisions, or as the class.
        """
        experience.require(frozenset({"rollout_logp", "reward"}), by=cls.__name__)
        mask, reward = experience.mask, experience.reward
        assert reward is not None
        assert experience.rollout_logp is not None
        if reward.ndim == 1:
            reward = ops.per_decision_reward(reward, mask)
        kept = mask.any(1)
        if not kept.any():
            raise LoggedDataError("the batch has no decisions; a metric needs at least one row that has some")
        order = (~mask).to(int).argsort(dim=1, stable=True)  # type: ignore[call-overload]
        columns = [
            x.detach().double().cpu().gather(1, order.cpu())[kept.cpu()].numpy()
            for x in (reward, experience.rollout_logp, evaluation.logp)
        ]
        return cls(mask.sum(1)[kept].cpu().numpy(), *columns)

    @functools.cached_property
    def mask(self) -> NDArray[np.bool_]:
        """Mask of the decisions, [B, T]."""
        return np.asfortranarray(np.arange(np.shape(self.reward)[1])[None, :] < self.lengths[:, None])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> Self:
        """Selects episodes by index, which may repeat."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        taken: dict[str, Any] = {name: None if value is None else value[rows] for name, value in values.items()}
        return type(self)(**taken)

    def in_order(self) -> Self:
        """Sorts the episodes by their contents alone."""
        columns = [self.reward, self.target_logp, self.behaviour_logp, self.state, self.action]
        return self[np.lexsort([self.lengths, *(c for column in columns if column is not None for c in column.T)])]

    def returns(self, gamma: float) -> Numbers:
        """Returns sum_t gamma^t r_t, [B]."""
        # By rows, each of which is then summed alike: equal episodes must tie where a bootstrap sorts them.
        return np.ascontiguousarray(self.reward) @ gamma ** np.arange(self.reward.shape[1])

    def log_weights(self) -> Numbers:
        """Returns log w_{0:t} = sum_{i <= t} log pi(a_i | s_i) - log b(a_i | s_i), [B, T]; constant after an episode's
        end, as in an absorbing state where both policies are equal."""
        log_ratio = self.target_logp - self.behaviour_logp
        # numpy's takes four times as long, with the same rounding.
        found: Numbers = torch.from_numpy(log_ratio.T).cumsum_(0).numpy().T
        return found
