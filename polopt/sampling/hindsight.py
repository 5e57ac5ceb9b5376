"""Transitions with other goals: those that the same episode reached."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.part import Part
from polopt.sampling.source_protocols import GoalTransitionSource
from polopt.sampling.transitions import TransitionReplay
from polopt.schedules import now

GoalStrategy = Literal["future", "final", "episode"]


class GoalReward(Part):
    """`reward(achieved, desired) -> [N]`, of the goals achieved after decisions and the desired ones, [N, G]."""

    def forward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        raise NotImplementedError


class GoalDistanceReward(GoalReward):
    """-1 where |achieved - desired| > tolerance, else 0; or -|achieved - desired|.

    tolerance: Euclidean distance up to which a goal is met.
    sparse: whether the reward is the first of the two.
    """

    tolerance: float = 0.05
    sparse: bool = True

    def setup(self) -> None:
        if not self.tolerance > 0:
            raise ValueError(f"sampling.GoalDistanceReward: tolerance must be > 0, found {self.tolerance}")

    def forward(self, achieved: Tensor, desired: Tensor) -> Tensor:
        distance = (achieved - desired).norm(dim=-1)
        return -(distance > self.tolerance).to(distance) if self.sparse else -distance


class HindsightReplay(TransitionReplay):
    """`TransitionReplay` of a goal-conditioned environment: in a share of the rows the desired goal is replaced by one
    that the same episode achieved, and the reward is computed anew.

    strategy: whose achieved goal it is, of the state after a decision: "future" of this decision or a later one of the
        episode, uniformly; "final" of the episode's last; "episode" of any.
    relabelled: share of the stored rows whose goals are replaced, 0 to 1; with k goals for each real one it is
        k / (k + 1).
    goal_reward: the reward of a replaced goal; None is the environment's `compute_reward`.

    Transitions are drawn uniformly of episodes that have ended, as whole as they were played. Terminations stay as they
    were. Rows of the source's log keep their goals.

    Source: Andrychowicz et al. 2017, arXiv 1707.01495; strategies and shares as in stable-baselines3.
    """

    strategy: GoalStrategy = "future"
    relabelled: float = 0.8
    goal_reward: GoalReward | None = None

    def setup(self) -> None:
        super().setup()
        if self.strategy not in get_args(GoalStrategy):
            raise ValueError(
                f"sampling.HindsightReplay: strategy must be one of {get_args(GoalStrategy)}, found {self.strategy!r}"
            )
        if not 0 <= self.relabelled <= 1:
            raise ValueError(f"sampling.HindsightReplay: relabelled must be in [0, 1], found {self.relabelled}")
        if self.n_steps > 1 or self.sequence > 1:
            raise ValueError(
                f"sampling.HindsightReplay: n_steps and sequence must be 1, found {self.n_steps} and {self.sequence}"
            )
        if self.logged == 1:
            raise ValueError("sampling.HindsightReplay: logged = 1 plays nothing, and the log keeps its goals")

    @property
    def source_capabilities(self) -> frozenset[str]:  # type: ignore[override]
        return super().source_capabilities - {"transitions"} | {"goal_transitions"}

    def stored(self, source: Any, rows: int) -> Experience:
        goals: GoalTransitionSource = source
        batch = goals.goal_transitions(
            rows,
            strategy=self.strategy,
            steps=self.steps,
            start=self.start,
            capacity=self.capacity,
            noise=self.noise,
            epsilon=now(self.epsilon),
        )
        count = int(self.relabelled * rows)
        goal = batch.extras["achieved_later"][:count, 0]
        width = goal.shape[-1]
        observation, reward = batch.extras["observation"].clone(), batch.reward.clone()
        observation[:count, :, -width:] = goal[:, None]
        achieved = observation[:count, 1, -2 * width : -width]
        reward[:count, 0] = (self.goal_reward or source.goal_rewards)(achieved, goal).to(reward)
        extras = {name: value for name, value in batch.extras.items() if name != "achieved_later"}
        if self.gamma is not None:
            extras["discount"] = torch.full_like(reward, self.gamma)
        return batch.replace(reward=reward, extras=extras | {"observation": observation})


def goal_places(
    strategy: GoalStrategy, place: Tensor, end: Tensor, begin: Tensor, generator: torch.Generator
) -> Tensor:
    """Returns the decisions whose achieved goals replace those of decisions `place`, [N] each.

    begin, end: the first decision of each one's episode, and the number after its last.
    """
    if strategy == "final":
        return end - 1
    first = place if strategy == "future" else begin
    share = torch.rand(len(place), generator=generator, dtype=torch.float64)
    return first + (share * (end - first)).long()
