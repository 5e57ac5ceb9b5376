"""Goals replaced in hindsight, on episodes worked by hand and beside stable-baselines3's buffer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scipy import stats
from test_control_runs import left_by
from test_transition_runs import recipe
from tiny_runs import Stop, StopAt, lines

from polopt.config import ConfigError
from polopt.errors import RunError
from polopt.policies.network import NetworkPolicy
from polopt.sampling import GoalDistanceReward, HindsightReplay
from polopt.sampling.hindsight import GoalStrategy
from polopt.training.control.domain import goal_size
from polopt.training.control.goal_source import EpisodeIndex, GoalReplaySource
from polopt.training.launch import resume, train

LENGTHS = (2, 3, 4)  # of a copy's episodes, in turn
EPISODE = 100.0


class Reach(gymnasium.Env[Any, Any]):
    """Achieved goals number the decisions: 100 times the episode, plus its steps. The desired one is -1."""

    one = Box(-np.inf, np.inf, (1,))
    observation_space: Any = Dict({"observation": Box(-1e6, 1e6, (2,)), "achieved_goal": one, "desired_goal": one})
    action_space: Any = Box(-1.0, 1.0, (1,))
    numbers = iter(range(0))

    def __init__(self, ends: bool = True) -> None:
        self.ends, self.count = ends, -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode, self.step_number, self.count = next(Reach.numbers), 0, self.count + 1
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.step_number += 1
        over = self.ends and self.step_number == LENGTHS[self.count % 3]
        return self._seen(), -1.0, over and self.count % 2 == 0, over and self.count % 2 == 1, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        assert len(info) == len(achieved)
        return -(np.abs(achieved - desired)[:, 0] > 0.5).astype(np.float32)

    def _seen(self) -> Any:
        reached = np.array([EPISODE * self.episode + self.step_number])
        seen = {"observation": np.array([self.episode, self.step_number]), "achieved_goal": reached}
        return {k: v.astype(np.float32) for k, v in (seen | {"desired_goal": np.array([-1.0])}).items()}


class Endless(Reach):
    """Its episodes do not end."""

    compute_reward = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(ends=False)


class Line(gymnasium.Env[Any, Any]):
    """A point on a line that is moved towards a goal, 10 steps long."""

    observation_space, action_space = Reach.observation_space, Reach.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.goal, self.count = self.np_random.uniform(-1, 1, 1), self.np_random.uniform(-1, 1, 1), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.place, self.count = self.place + 0.3 * np.asarray(action), self.count + 1
        return self._seen(), float(self.compute_reward(self.place, self.goal, {})), False, self.count == 10, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(np.abs(achieved - desired)[..., 0] > 0.1).astype(np.float32)

    def _seen(self) -> Any:
        seen = {"observation": np.concatenate([self.place, self.place**2]), "achieved_goal": self.place}
        return {k: v.astype(np.float32) for k, v in (seen | {"desired_goal": self.goal}).items()}


gymnasium.register("test-endless-v0", Endless)
gymnasium.register("test-line-v0", Line)


def source_of(folder: Path, mode: AutoresetMode, **settings: Any) -> GoalReplaySource:
    Reach.numbers = iter(range(10**6))
    environments = SyncVectorEnv([Reach, Reach], autoreset_mode=mode)
    policy = NetworkPolicy(observations=4, dimensions=1, low=[-1.0], high=[1.0], hidden=(8,), seed=3)
    about: dict[str, Any] = {"goals": goal_size(environments), "compute_reward": Reach().compute_reward}
    generator = torch.Generator().manual_seed(4)
    return GoalReplaySource(
        environments, policy, seed=1, generator=generator, folder=folder, checkpoint_every=2, **about | settings
    )


def drawn(part: HindsightReplay, source: GoalReplaySource) -> list[tuple[int, int, float, float, float]]:
    """Episode, step, desired goal before and after, and reward, of each row."""
    batch = part(source)
    seen = batch.extras["observation"]
    columns = (seen[:, 0, 0], seen[:, 0, 1], seen[:, 0, 3], seen[:, 1, 3], batch.reward[:, 0])
    assert torch.equal(seen[:, 1, 2], EPISODE * seen[:, 0, 0] + seen[:, 0, 1] + 1)  # what was achieved stays
    return [(int(a), int(b), c, d, e) for a, b, c, d, e in zip(*(c.tolist() for c in columns), strict=True)]


def allowed(strategy: GoalStrategy, step: int, length: int) -> range:
    """Steps, counted after the decision, whose achieved goals may be taken."""
    first = {"future": step + 1, "final": length, "episode": 1}[strategy]
    return range(first, length + 1)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_those_that_the_strategy_allows_evenly(
    strategy: GoalStrategy, mode: AutoresetMode, tmp_path: Path
) -> None:
    source = source_of(tmp_path, mode)
    part = HindsightReplay(rows=4000, steps=25, strategy=strategy, relabelled=0.75)
    rows = drawn(part, source)
    lengths = Counter(e for e, s in {(e, s) for e, s, *_ in rows})  # of the episodes that ended, all steps are drawn
    assert set(lengths.values()) <= set(LENGTHS)
    assert len(lengths) > 8
    counts: Counter[tuple[int, int, int]] = Counter()
    for i, (episode, step, goal, after, reward) in enumerate(rows):
        assert goal == after
        if i >= 3000:
            assert (goal, reward) == (-1.0, -1.0)
            continue
        other, later = divmod(int(goal), int(EPISODE))
        assert other == episode
        assert later in allowed(strategy, step, lengths[episode])
        assert reward == (0.0 if later == step + 1 else -1.0)
        counts[episode, step, later] += 1
    total = sum(lengths.values())
    expected = {
        (e, s, later): 3000 / total / len(allowed(strategy, s, length))
        for e, length in lengths.items()
        for s in range(length)
        for later in allowed(strategy, s, length)
    }
    found = [counts[key] for key in expected]
    assert stats.chisquare(found, [*expected.values()]).pvalue > 1e-3


def test_an_episode_of_which_the_beginning_is_gone_is_not_drawn(tmp_path: Path) -> None:
    part = HindsightReplay(rows=300, steps=5, capacity=23)
    source = source_of(tmp_path, AutoresetMode.SAME_STEP)
    for _ in range(12):
        rows = drawn(part, source)
        steps = {e: {s for f, s, *_ in rows if f == e} for e, *_ in rows}
        assert all(found == {*range(len(found))} for found in steps.values())
        assert len({(e, s) for e, s, *_ in rows}) <= 23


def test_the_reward_can_be_a_part(tmp_path: Path) -> None:
    source = source_of(tmp_path, AutoresetMode.NEXT_STEP, compute_reward=None)
    part = HindsightReplay(rows=50, steps=25, relabelled=1.0, goal_reward=GoalDistanceReward(sparse=False))
    for _, step, goal, _, reward in drawn(part, source):
        assert reward == -abs(goal % EPISODE - step - 1)
    achieved, desired = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.zeros(2, 2)
    assert GoalDistanceReward(tolerance=5.0)(achieved, desired).tolist() == [0, 0]
    assert GoalDistanceReward(tolerance=4.9)(achieved, desired).tolist() == [0, -1]


def test_the_index_is_that_of_a_longer_one(tmp_path: Path) -> None:
    """Forgetting leaves what can be drawn."""
    index = EpisodeIndex()
    for episode in range(30):
        number = torch.arange(3) + 3 * episode
        index.add(torch.full((3,), episode), number, torch.tensor([False, False, True]))
    assert index.has_any(40)
    numbers, later = index.draw(500, "final", 40, torch.Generator().manual_seed(0))
    assert set(numbers.tolist()) == set(range(42, 90))
    assert torch.equal(later, numbers - numbers % 3 + 2)
    assert not index.has_any(90)


HINDSIGHT = {"part": "sampling.HindsightReplay", "rows": 32, "steps": 6, "start": 20, "capacity": 60}
ON_LINE = {"environment.id": "test-line-v0", "stages.rl.but": {"sampling": HINDSIGHT}}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_run_that_is_stopped_ends_as_if_it_had_not_been(at: int, tmp_path: Path) -> None:
    made = recipe(**ON_LINE)
    whole = train(made, tmp_path / "whole").folder
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(at),))
    again = resume(tmp_path / "run").folder
    assert left_by(again) == left_by(whole)
    assert lines(whole, "metrics")[-1]["rows"] == 32


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"environment.id": "Pendulum-v1"},
            "hindsight replaces goals, and observations .* are no Dict of observation,",
        ),
        ({"environment.id": "test-endless-v0"}, "has no compute_reward, which a replaced goal needs"),
    ],
)
def test_what_hindsight_needs_is_refused_at_the_door(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        train(recipe(**ON_LINE | changes), tmp_path / "run")


def test_episodes_that_do_not_end_are_said(tmp_path: Path) -> None:
    source = source_of(tmp_path, AutoresetMode.NEXT_STEP)
    source.environments = SyncVectorEnv([Endless, Endless])
    with pytest.raises(RunError, match="no episode has ended whole within the 60 transitions"):
        HindsightReplay(rows=8, steps=6, capacity=60)(source)


def test_stable_baselines3_draws_alike(tmp_path: Path) -> None:
    """The same decisions in its buffer have the same chances of (decision, goal, reward)."""
    her = pytest.importorskip("stable_baselines3.her.her_replay_buffer")
    vectors = pytest.importorskip("stable_baselines3.common.vec_env")
    Reach.numbers = iter(range(10**6))
    env = vectors.DummyVecEnv([Reach])
    buffer = her.HerReplayBuffer(1000, env.observation_space, env.action_space, env, n_sampled_goal=3)
    seen = env.reset()
    for _ in range(9):  # episodes of 2, 3 and 4 decisions
        action = np.zeros((1, 1), np.float32)
        after, reward, done, info = env.step(action)
        last = {k: v[None] for k, v in info[0]["terminal_observation"].items()} if done[0] else after
        buffer.add(seen, last, action, reward, done, info)
        seen = after
    np.random.seed(0)
    theirs: Counter[tuple[int, ...]] = Counter()
    batch = buffer.sample(20_000)
    columns = (batch.observations["observation"], batch.observations["desired_goal"], batch.rewards, batch.dones)
    theirs.update(map(tuple, torch.cat([c.float() for c in columns], 1).long().tolist()))
    source = source_of(tmp_path, AutoresetMode.SAME_STEP)
    source.environments = SyncVectorEnv([Reach], autoreset_mode=AutoresetMode.SAME_STEP)
    source.rows = 1
    Reach.numbers = iter(range(10**6))
    found = HindsightReplay(rows=20_000, steps=10, relabelled=0.75)(source)
    own_columns = (found.extras["observation"][:, 0, :2], found.extras["observation"][:, 0, 3:], found.reward)
    ours = Counter(map(tuple, torch.cat([*own_columns, found.terminated.float()], 1).long().tolist()))
    assert ours.keys() == theirs.keys()
    table = np.array([[ours[key], theirs[key]] for key in ours])
    assert stats.chi2_contingency(table).pvalue > 1e-3
