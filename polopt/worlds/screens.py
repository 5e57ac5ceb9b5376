"""Screens of buttons, fields and lists, and what to do on them: one action each."""

from __future__ import annotations

import random
from typing import Any

from polopt.worlds.answers import OneAnswer
from polopt.worlds.gui_actions import NO_TEXT, GUIAction, is_right, is_well_formed, read_action
from polopt.worlds.protocol import Episode, Task, TaskSplit

WIDTH, HEIGHT, CELL = 360, 640, 40
BUTTONS = ("Save", "Send", "Cancel", "Share", "Delete", "Next", "Search", "Print")
FIELDS = ("Name", "Street", "City", "Phone", "Note")
LISTS = ("Colour", "Size", "Day")
CHOICES = {"Colour": ("red", "green", "blue"), "Size": ("small", "large"), "Day": ("Monday", "Friday")}
WORDS = ("anna", "oak", "river", "seven", "tea", "north")
APPS = ("Mail", "Clock", "Maps")
KINDS = ("click", "type", "select", "scroll", "open_app", "press_back")


class Screens:
    """Tasks of one action on a screen, which is told in words: its widgets, and where their boxes begin and end.

    The answer is `<think>...</think><answer>[{'action': ..., 'point': [x, y], 'input_text': ...}]</answer>`; its reward
    is 1 if the action is the right one, see `gui_actions.is_right`, and the signal `format` is 1 if it has this form.
    Actions are `click`, `type`, `select`, `scroll`, `open_app` and `press_back`.

    size: number of tasks. widgets: of a screen, 2 to 8. seed: task i is the same for the same seed, on every machine.

    Raises:
        ValueError: settings out of their range.
    """

    signals = ("format",)
    turns = 1
    kinds = sorted(KINDS)

    def __init__(self, *, size: int, widgets: int = 4, seed: int = 0, heldout: bool = False) -> None:
        if size < 1 or not 2 <= widgets <= 8:
            raise ValueError(f"screens: need size >= 1 and 2 to 8 widgets, found {size} and {widgets}")
        self.size, self.widgets, self.seed, self.heldout = size, widgets, seed, heldout

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, widgets: int) -> TaskSplit:
        """Returns training and held-out tasks: the first widget of held-out screens is in an even row, of others in an
        odd one."""
        first, second = (
            cls(size=n, widgets=widgets, seed=seed, heldout=h) for n, h in ((train, False), (heldout, True))
        )
        return TaskSplit(first, second)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"screens/{self.seed}/{int(self.heldout)}/{index}")
        rows = range(HEIGHT // CELL)
        first = draw.choice([row for row in rows if row % 2 == int(not self.heldout)])
        others = draw.sample([row for row in rows if row != first], self.widgets - 1)
        names = [draw.choice(FIELDS), draw.choice(LISTS), *draw.sample(BUTTONS, self.widgets - 2)]
        boxes = [self._box(row, draw) for row in (first, *others)]
        told = "; ".join(f"{name} {' '.join(map(str, box))}" for name, box in zip(names, boxes, strict=True))
        kind = KINDS[index % len(KINDS)]
        goal, target, action = self._goal(kind, names, boxes, draw)
        prompt = f"Screen {WIDTH} {HEIGHT}: {told}. {goal} Write a thought and one action."
        solution = f"<think>{kind}</think><answer>{action.written()}</answer>"
        where = "heldout" if self.heldout else "train"
        return Task(f"screens/{self.seed}/{where}/{index}", kind, prompt, solution, {"target": target})

    def _box(self, row: int, draw: random.Random) -> tuple[int, int, int, int]:
        left = CELL * draw.randrange(WIDTH // CELL - 2)
        return left, CELL * row, left + 2 * CELL, CELL * (row + 1)

    def _goal(
        self, kind: str, names: list[str], boxes: list[tuple[int, int, int, int]], draw: random.Random
    ) -> tuple[str, dict[str, Any], GUIAction]:
        at = {"type": 0, "select": 1}.get(kind, draw.randrange(len(names)))
        left, top, right, bottom = boxes[at]
        middle = ((left + right) // 2, (top + bottom) // 2)
        text = {
            "type": draw.choice(WORDS),
            "select": draw.choice(CHOICES[names[1]]),
            "scroll": draw.choice(("left", "right", "up", "down")),
            "open_app": draw.choice(APPS),
        }.get(kind, NO_TEXT)
        goal = {
            "click": f"Press {names[at]}.",
            "type": f"Enter {text} as {names[at]}.",
            "select": f"Choose {text} as {names[at]}.",
            "scroll": f"Scroll {text}.",
            "open_app": f"Open {text}.",
            "press_back": "Go back.",
        }[kind]
        placed = kind in ("click", "type", "select")
        action = GUIAction(kind, middle if placed else (0, 0), text)
        target: dict[str, Any] = {"action": kind, "text": text}
        return goal, target | ({"box": list(boxes[at])} if kind == "click" else {}), action

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self.score)

    def score(self, text: str, task: Task) -> tuple[float, dict[str, Any]]:
        """Returns 1 for the right action, else 0, and whether the answer has the form of one."""
        action = read_action(text)
        right = action is not None and is_right(action, task.row["target"])
        return float(right), {"solved": right, "signals": {"format": float(is_well_formed(text))}}
