"""A wrapper with planted verifier errors at known rates, to measure corrections for reward noise."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from polopt.worlds.answers import step_together
from polopt.worlds.protocol import LOST, Episode, Step, Task, Tasks
from polopt.worlds.wrapped import WrappedTasks


class NoisyTasks(WrappedTasks):
    """Tasks whose verifier has false negatives (rewards >= 1 become 0) and false positives (others become 1) at known
    rates.

    missed, fooled: P(reward 0 | right) and P(reward 1 | not right), one number or by kind of task, 0 for kinds not
        given. Errors are drawn by hashing task and answer with `seed`: the same answer to the same task always gets the
        same reward, as from a fixed faulty rule. In an episode of several turns errors are drawn at each turn.

    `signals["true"]` is the reward without errors, and `solved` is computed without them.

    Raises:
        ValueError: a rate is outside [0, 1], or is given for a kind that the tasks do not have.
    """

    def __init__(
        self,
        tasks: Tasks,
        *,
        missed: float | Mapping[str, float] = 0.0,
        fooled: float | Mapping[str, float] = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(tasks)
        self.seed = seed
        self.missed, self.fooled = self._rates("missed", missed), self._rates("fooled", fooled)

    def _rates(self, name: str, setting: float | Mapping[str, float]) -> dict[str, float]:
        kinds = self.tasks.kinds
        rates = dict(setting) if isinstance(setting, Mapping) else dict.fromkeys(kinds, setting)
        for kind, rate in rates.items():
            if kind not in kinds:
                raise ValueError(f"noisy: {name} names the kind {kind!r}, and the tasks have {', '.join(kinds)}")
            if not 0 <= rate <= 1:
                raise ValueError(f"noisy: {name} must be in [0, 1], found {rate} for {kind}")
        return rates

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().signals, "true")))

    def episode(self, task: Task) -> Episode:
        return NoisyEpisode(self, task, self.tasks.episode(task))

    def judged(self, task: Task, action: str, reward: float) -> float:
        """Returns the noisy reward of an answer whose true reward is `reward`."""
        right = reward >= 1
        rate = (self.missed if right else self.fooled).get(task.kind, 0.0)
        text = f"{self.seed}/{task.id}/{action}".encode()
        uniform = int.from_bytes(hashlib.sha256(text).digest()[:7], "big") / 2**56
        return float(not right) if uniform < rate else reward


class NoisyEpisode:
    """An episode with unchanged observations and noisy rewards."""

    def __init__(self, world: NoisyTasks, task: Task, inner: Episode) -> None:
        self.world, self.task, self.inner = world, task, inner

    def reset(self) -> str:
        return self.inner.reset()

    @property
    def together(self) -> Hashable | None:
        return getattr(self.inner, "together", None)

    def step(self, action: str) -> Step:
        return self._judged(action, self.inner.step(action))

    @classmethod
    def step_many(cls, episodes: Sequence[NoisyEpisode], actions: Sequence[str]) -> list[Step]:
        """Steps each episode, see `step_together`."""
        steps = step_together([episode.inner for episode in episodes], actions)
        return [e._judged(action, step) for e, action, step in zip(episodes, actions, steps, strict=True)]

    def _judged(self, action: str, step: Step) -> Step:
        if step is LOST:
            return LOST
        info: dict[str, Any] = {
            **step.info,
            "solved": step.info.get("solved", step.reward >= 1),
            "signals": {**step.info.get("signals", {}), "true": step.reward},
        }
        return step._replace(reward=self.world.judged(self.task, action, step.reward), info=info)

    def demonstrate(self) -> str | None:
        return self.inner.demonstrate()
