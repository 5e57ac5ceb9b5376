"""A multi-turn world with a known optimal strategy: guess a number from the hints 'higher' and 'lower'."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, TaskSplit

KIND = "guess-number"
# One number in STRIPES is reserved for the held-out tasks.
STRIPES = 5


class GuessNumber:
    """Tasks of guessing a hidden whole number from `low` to `high` in at most `turns` turns.

    A right guess has reward 1 and terminates the episode. Any other answer has reward 0 and uses up a turn: the
    observation after a wrong guess is 'higher' or 'lower', after any other text an instruction on the format. The
    episode is truncated when no turns are left. Bisection wins within ceil(log2(high - low + 2)) turns; no strategy
    needs fewer on every number.

    size: number of tasks.
    seed: task i hides the same number for the same seed, on every machine.
    hidden: the numbers that may be hidden; all from `low` to `high` by default.

    Raises:
        ValueError: low > high, turns < 1, size < 1, or `hidden` is empty or outside [low, high].
    """

    def __init__(
        self,
        low: int = 1,
        high: int = 100,
        turns: int = 7,
        *,
        size: int,
        seed: int = 0,
        hidden: Sequence[int] | None = None,
    ) -> None:
        if low > high:
            raise ValueError(f"GuessNumber: low must be at most high, found low={low}, high={high}")
        if turns < 1 or size < 1:
            raise ValueError(f"GuessNumber: turns and size must be >= 1, found turns={turns}, size={size}")
        self.low, self.high, self.turns, self.seed = low, high, turns, seed
        self.hidden = range(low, high + 1) if hidden is None else hidden
        if not self.hidden or min(self.hidden) < low or max(self.hidden) > high:
            raise ValueError(f"GuessNumber: hidden must lie in [{low}, {high}], found {self.hidden}")
        self._size = size

    @classmethod
    def split(cls, low: int, high: int, turns: int, *, train: int, heldout: int, seed: int) -> TaskSplit:
        """Returns training and held-out tasks without a hidden number in common; every fifth number is held out.

        Raises:
            ValueError: fewer than two numbers to hide, or as for the class.
        """
        if high - low < 1:
            raise ValueError(f"GuessNumber: two numbers are needed to hold one out, found low={low}, high={high}")
        heldout_numbers = range(low, high + 1, STRIPES)
        train_numbers = [number for number in range(low, high + 1) if number not in heldout_numbers]
        return TaskSplit(
            cls(low, high, turns, size=train, seed=seed, hidden=train_numbers),
            cls(low, high, turns, size=heldout, seed=seed, hidden=heldout_numbers),
        )

    @property
    def kinds(self) -> list[str]:
        return [KIND]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self._size:
            raise IndexError(f"task {index} of {self._size}")
        number = random.Random(f"{self.seed}/{index}").choice(self.hidden)
        return Task(f"{KIND}/{number}/{self.seed}/{index}", KIND, self.prompt, None, {"number": number})

    @property
    def prompt(self) -> str:
        return (
            f"I am thinking of a whole number from {self.low} to {self.high}. "
            f"Guess it in at most {self.turns} turns, writing one number per turn."
        )

    def episode(self, task: Task) -> Episode:
        return GuessEpisode(task, self.low, self.high, self.turns)


class GuessEpisode:
    """An episode of at most `turns` guesses at `task.row["number"]`."""

    def __init__(self, task: Task, low: int, high: int, turns: int) -> None:
        self.task = task
        self.low, self.high, self.turns = low, high, turns
        self._turns_left = 0

    def reset(self) -> str:
        self._turns_left = self.turns
        # The interval that the hints so far leave possible, used by `demonstrate` alone.
        self._from, self._to = self.low, self.high
        return self.task.prompt

    def step(self, action: str) -> Step:
        if not self._turns_left:
            raise EpisodeError(f"task {self.task.id} has no turns left; call reset() first")
        self._turns_left -= 1
        number, guess = self.task.row["number"], self._read(action)
        info = {"guess": guess, "solved": guess == number}
        if guess == number:
            self._turns_left = 0
            return Step("", 1.0, terminated=True, truncated=False, info=info)
        hint = self._hint(guess, number)
        over = not self._turns_left
        return Step("" if over else hint, 0.0, terminated=False, truncated=over, info=info)

    def _hint(self, guess: int | None, number: int) -> str:
        if guess is None:
            return f"write one whole number from {self.low} to {self.high}"
        if guess < number:
            self._from = max(self._from, guess + 1)
            return "higher"
        self._to = min(self._to, guess - 1)
        return "lower"

    def _read(self, action: str) -> int | None:
        text = action.strip()
        if not re.fullmatch(r"[-+]?[0-9]{1,18}", text) or not self.low <= int(text) <= self.high:
            return None
        return int(text)

    def demonstrate(self) -> str | None:
        """Returns the midpoint of the interval that is still possible."""
        return str((self._from + self._to) // 2) if self._turns_left else None
