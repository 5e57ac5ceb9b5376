"""Apps of nested menus: a goal that is reached over several screens, and screens from which one must go back."""

from __future__ import annotations

import itertools
import random
import re

from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, TaskSplit

LETTERS = "abcdefgh"


class Apps:
    """Tasks on screens of an app. A screen is a menu of buttons in a random order, each labelled with a letter; the
    goal is the screen behind the buttons of its name's letters, from the first screen on:

        goal cab; at c; 1 b 2 a 3 c        the way so far is c, and button 2 leads on

    An answer is `<think>...</think><action>press 2</action>`, or `<action>back</action>`, which leads to the screen
    before; the thought may be left out. The reward is 1 for the goal; the signal `format` is the share of answers that
    have this form, and others change nothing.

    size: number of tasks. depth: letters of a goal. buttons: of a screen, 2 to 8. turns: the most actions.
    midway: the share of tasks that begin on any screen of the way, in place of the first.
    lost: the share of tasks that begin on a wrong screen, so that the first right action is to go back.
    single: whether a task is one action on one screen of the way, with reward 1 if it is the right one.
    seed: task i is the same for the same seed, on every machine.

    Raises:
        ValueError: settings out of their range.
    """

    signals = ("format",)

    def __init__(
        self,
        *,
        size: int,
        depth: int = 3,
        buttons: int = 3,
        turns: int = 6,
        midway: float = 0.0,
        lost: float = 0.0,
        single: bool = False,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        shares = 0 <= lost <= 1 and 0 <= midway <= 1
        if min(size, depth, turns) < 1 or not 2 <= buttons <= len(LETTERS) or not shares:
            raise ValueError(
                f"apps: need size, depth and turns >= 1, 2 to {len(LETTERS)} buttons, and lost and midway in [0, 1], "
                f"found {size}, {depth}, {turns}, {buttons}, {lost} and {midway}"
            )
        self.midway = 1.0 if single else midway
        self.size, self.depth, self.buttons, self.lost, self.single = size, depth, buttons, lost, single
        self.seed, self.heldout = seed, heldout
        self.turns = 1 if single else turns
        self.kinds = ["begun", "lost"] if lost else ["begun"]
        # Every fourth goal is held out.
        goals = ["".join(word) for word in itertools.product(LETTERS[:buttons], repeat=depth)]
        random.Random(f"apps/{seed}").shuffle(goals)
        self.goals = goals[::4] if heldout else [goal for i, goal in enumerate(goals) if i % 4]

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, **settings: object) -> TaskSplit:
        """Returns training and held-out tasks, whose goals are other ones."""
        first, second = (
            cls(size=n, seed=seed, heldout=held, **settings)  # type: ignore[arg-type]
            for n, held in ((train, False), (heldout, True))
        )
        return TaskSplit(first, second)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        where = "heldout" if self.heldout else "train"
        draw = random.Random(f"apps/{self.seed}/{where}/{index}")
        goal = draw.choice(self.goals)
        at = goal[: draw.randrange(self.depth)] if draw.random() < self.midway else ""
        lost = draw.random() < self.lost
        if lost:
            at += draw.choice([letter for letter in LETTERS[: self.buttons] if letter != goal[len(at)]])
        row = {"goal": goal, "at": at, "draw": draw.random()}
        action = self.written(self.right(goal, at), self.menu(row["draw"], at))
        return Task(
            id=f"apps/{self.seed}/{where}/{index}",
            kind="lost" if lost else "begun",
            prompt=self.shown(row, at),
            solution=action if self.single else None,
            row=row,
            answer=action if self.single else goal,
        )

    def episode(self, task: Task) -> Episode:
        return AppEpisode(self, task)

    def menu(self, draw: object, at: str) -> list[str]:
        """Returns the labels of a screen's buttons, in their order; the screen of a goal's length has none."""
        letters = list(LETTERS[: self.buttons]) if len(at) < self.depth else []
        random.Random(f"{draw}/{at}").shuffle(letters)
        return letters

    def shown(self, row: dict[str, object], at: str) -> str:
        """Returns what a screen says."""
        buttons = " ".join(f"{i} {letter}" for i, letter in enumerate(self.menu(row["draw"], at), 1))
        return f"goal {row['goal']}; at {at or 'home'}; {buttons or 'no buttons'}"

    @staticmethod
    def right(goal: str, at: str) -> str:
        """Returns the letter of the right button on a screen, "" to go back."""
        return goal[len(at)] if goal.startswith(at) and len(at) < len(goal) else ""

    @staticmethod
    def written(letter: str, menu: list[str]) -> str:
        """Returns the answer that presses the button of a letter, or goes back for ""."""
        action = f"press {menu.index(letter) + 1}" if letter else "back"
        return f"<action>{action}</action>"

    def pressed(self, answer: str, menu: list[str]) -> str | None:
        """Returns the letter of the button that an answer presses, "" to go back, None for an answer of another
        form."""
        found = re.fullmatch(r"\s*(?:<think>.*</think>)?\s*<action>\s*(.*?)\s*</action>\s*", answer, re.DOTALL)
        if found is None:
            return None
        if found[1] == "back":
            return ""
        number = re.fullmatch(r"press ([0-9])", found[1])
        return menu[int(number[1]) - 1] if number and 1 <= int(number[1]) <= len(menu) else None


class AppEpisode:
    """An episode on an app's screens."""

    def __init__(self, world: Apps, task: Task) -> None:
        self.world, self.task = world, task
        self.at, self.taken, self.formed = "", 0, 0
        self.open = False

    def reset(self) -> str:
        self.at, self.taken, self.formed, self.open = self.task.row["at"], 0, 0, True
        return self.task.prompt

    def step(self, action: str) -> Step:
        if not self.open:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        goal = self.task.row["goal"]
        right = self.world.right(goal, self.at)
        letter = self.world.pressed(action, self.world.menu(self.task.row["draw"], self.at))
        self.taken += 1
        self.formed += letter is not None
        if letter is not None:
            self.at = self.at + letter if letter else self.at[:-1]
        solved = letter == right if self.world.single else self.at == goal
        over = self.world.single or solved
        self.open = not over
        said = "" if over else self.world.shown(self.task.row, self.at)
        signals = {"format": self.formed / self.taken}
        return Step(said, float(solved), over, False, {"solved": solved, "signals": signals})

    def demonstrate(self) -> str | None:
        """Returns the right action on the screen."""
        if not self.open:
            return None
        letter = self.world.right(self.task.row["goal"], self.at)
        return self.world.written(letter, self.world.menu(self.task.row["draw"], self.at))
