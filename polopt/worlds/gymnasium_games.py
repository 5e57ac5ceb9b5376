"""Any environment of gymnasium whose actions are texts or a few choices, as a world of turns."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polopt.config import ConfigError
from polopt.part_names import locate
from polopt.worlds.contract import own_code
from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, TaskSplit

KIND = "gymnasium"


def gymnasium() -> Any:
    """Returns the package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module("gymnasium")
    except ImportError:
        raise ConfigError("worlds of kind gymnasium need it; run pip install 'polopt[control]'") from None


class GymnasiumTasks:
    """Tasks of an environment of gymnasium, one for each seed, whose actions are a `Discrete` or a `Text` space.

    A prompt is `ask` and the first observation in words: texts as they are, numbers with `digits` digits after the
    point, and named parts as `name: ...`. An answer is an action: the name of a choice, or a text of the space; any
    other one is lost, and what was read before is read again. Rewards are the environment's; a task is
    solved if they add up to `solved`.

    id, settings: as in `gymnasium.make`. actions: names of the choices, in their order; None for their numbers.
    describe: a Python function from an observation to a text, as my_words.py:describe, in place of the words.
    size: number of tasks. turns: the most answers of an episode. seed: task i is the same for the same seed.

    Signals: `malformed`, turns that were lost.

    Raises:
        ConfigError: gymnasium is not installed; there is no such environment; its actions are of another kind.
        ValueError: settings out of their range.
    """

    signals = ("malformed",)

    def __init__(
        self,
        *,
        id: str,
        settings: Mapping[str, Any] | None = None,
        actions: Sequence[str] | None = None,
        describe: str | None = None,
        ask: str = "",
        digits: int = 2,
        solved: float = 1.0,
        turns: int = 20,
        size: int,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        if size < 1 or turns < 1 or digits < 0:
            raise ValueError(
                f"gymnasium: need size >= 1, turns >= 1 and digits >= 0, found {size}, {turns} and {digits}"
            )
        self.id, self.settings, self.describe, self.ask = id, dict(settings or {}), describe, ask
        self.digits, self.solved, self.turns, self.size = digits, solved, turns, size
        self.seed, self.heldout = seed, heldout
        self.kinds = [id]
        self.choices = self._choices(actions)

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, **settings: Any) -> TaskSplit:
        """Returns training and held-out tasks, which begin with other seeds."""
        first, second = (cls(size=n, seed=seed, heldout=h, **settings) for n, h in ((train, False), (heldout, True)))
        return TaskSplit(first, second)

    def _choices(self, actions: Sequence[str] | None) -> list[str] | None:
        """Returns the names of the choices, None for an environment whose actions are texts."""
        spaces = gymnasium().spaces
        env = self.make()
        space = env.action_space
        env.close()
        if isinstance(space, spaces.Text):
            if actions is not None:
                raise ConfigError(f"{KIND}: the actions of {self.id} are texts, which have no names; leave actions out")
            return None
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(
                f"{KIND}: an answer can be one of a few choices or a text, and the actions of {self.id} are a "
                f"{type(space).__name__}; train a control policy on it, as environment: {{id: {self.id}}}"
            )
        names = [str(i) for i in range(int(space.n))] if actions is None else list(actions)
        if len(names) != space.n or len(set(names)) < len(names) or not all(name.strip() == name for name in names):
            raise ConfigError(
                f"{KIND}: {self.id} has {space.n} actions, which need as many different names, found {names}"
            )
        return names

    def make(self) -> Any:
        """Returns a new environment.

        Raises:
            ConfigError: there is none of that id, or not with these settings.
        """
        package = gymnasium()
        try:
            return package.make(self.id, **self.settings)
        except (package.error.Error, TypeError, ValueError, ImportError) as error:
            raise ConfigError(f"{KIND}: {self.id} cannot be made with {self.settings}: {error}") from None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        row = {"seed": 1_000_003 * self.seed + 2 * index + self.heldout}
        env = self.make()
        first = self.words(env.reset(seed=row["seed"])[0])
        env.close()
        where = "heldout" if self.heldout else "train"
        return Task(f"{self.id}/{self.seed}/{where}/{index}", self.id, f"{self.ask}{first}", None, row)

    def episode(self, task: Task) -> Episode:
        return GymnasiumEpisode(self, task)

    def words(self, observation: Any) -> str:
        """Returns an observation in words."""
        if self.describe is None:
            return told(observation, self.digits)
        with own_code(f"{KIND}.describe = {self.describe!r}"):
            return str(locate(self.describe)(observation))

    def action(self, answer: str, space: Any) -> Any:
        """Returns the action of an answer, None for one that is no action of the space."""
        text = answer.strip()
        if self.choices is None:
            return text if space.contains(text) else None
        if text in self.choices:
            return int(space.start) + self.choices.index(text)
        return None


def told(observation: Any, digits: int) -> str:
    """Returns an observation in words; parts of tuples in parentheses, and lines of tables one by one."""
    if isinstance(observation, Mapping):
        return "; ".join(f"{name}: {told(part, digits)}" for name, part in observation.items())
    if isinstance(observation, tuple):
        return "; ".join(told(part, digits) for part in observation)
    if isinstance(observation, str):
        return observation
    array = np.asarray(observation)
    if array.ndim > 1:
        return "\n".join(told(part, digits) for part in array)
    whole = not np.issubdtype(array.dtype, np.floating)
    return " ".join(str(int(x)) if whole else f"{float(x):.{digits}f}" for x in array.reshape(-1))


class GymnasiumEpisode:
    """An episode of an environment of gymnasium. `reset` begins the same one again."""

    def __init__(self, world: GymnasiumTasks, task: Task) -> None:
        self.world, self.task = world, task
        self.env: Any = None
        self.seen, self.earned, self.malformed = "", 0.0, 0

    def reset(self) -> str:
        self._close()
        self.env = self.world.make()
        self.seen = self.world.words(self.env.reset(seed=self.task.row["seed"])[0])
        self.earned, self.malformed = 0.0, 0
        return self.task.prompt

    def step(self, action: str) -> Step:
        if self.env is None:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        chosen = self.world.action(action, self.env.action_space)
        reward, terminated, truncated = 0.0, False, False
        if chosen is None:
            self.malformed += 1
        else:
            observation, earned, terminated, truncated, _ = self.env.step(chosen)
            reward, self.seen = float(earned), self.world.words(observation)
        self.earned += reward
        if terminated or truncated:
            self._close()
        info = {"solved": self.earned >= self.world.solved, "signals": {"malformed": float(self.malformed)}}
        said = "" if terminated or truncated else self.seen
        return Step(said, reward, bool(terminated), bool(truncated) and not terminated, info)

    def demonstrate(self) -> str | None:
        return None

    def _close(self) -> None:
        if self.env is not None:
            self.env.close()
            self.env = None
