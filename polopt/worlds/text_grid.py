"""A grid that an agent walks in words, to fetch things and bring them to the door; the shortest way is known."""

from __future__ import annotations

import functools
import itertools
import random
from collections import deque
from collections.abc import Sequence

from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, TaskSplit

KIND = "text-grid"
Cell = tuple[int, int]
MOVES: dict[str, Cell] = {"north": (0, -1), "east": (1, 0), "south": (0, 1), "west": (-1, 0)}
THINGS = ("lamp", "rope", "key", "book", "cup")


@functools.lru_cache(maxsize=4096)
def distances(free: frozenset[Cell], origin: Cell) -> dict[Cell, int]:
    """Returns the number of moves from every cell that can be reached to the origin."""
    found, queue = {origin: 0}, deque([origin])
    while queue:
        at = queue.popleft()
        for dx, dy in MOVES.values():
            cell = (at[0] + dx, at[1] + dy)
            if cell in free and cell not in found:
                found[cell] = found[at] + 1
                queue.append(cell)
    return found


def commands_left(free: frozenset[Cell], at: Cell, places: Sequence[Cell], door: Cell) -> tuple[int, Cell]:
    """Returns how many commands the rest of an errand takes at least, and the cell to go to first.

    places: of the things that are to be fetched, at most five: all orders are compared. A command takes each, and one
    leaves by the door.
    """
    best: tuple[int, Cell] | None = None
    for order in itertools.permutations(places):
        stops = (at, *order, door)
        moves = sum(distances(free, b)[a] for a, b in itertools.pairwise(stops))
        if best is None or moves < best[0]:
            best = (moves, stops[1])
    assert best is not None
    return best[0] + len(places) + 1, best[1]


class TextGrid:
    """Tasks of fetching things from a grid with walls, in at most `turns` commands.

    Commands are `go north`, `east`, `south` or `west`, `take THING`, `look` and `leave`. Leaving ends the episode: with
    all things, at the door, its reward is 1, else 0. Beside each thing lies a broken one, which is not wanted.
    `info["event"]` of each step is `closer`, `away`, `wall`, `took`, `decoy`, `looked`, `left` or `unknown`; of the
    last, `signals["excess"]` is how many commands there were beyond the fewest.

    size: number of tasks. width: cells of each side. things: how many to fetch, 1 to 5. walls: share of cells.
    seed: task i is the same for the same seed, on every machine.

    Raises:
        ValueError: settings out of their range, or turns too few for the longest of the shortest ways.
    """

    signals = ("excess",)

    def __init__(
        self,
        *,
        size: int,
        width: int = 5,
        things: int = 2,
        walls: float = 0.2,
        turns: int = 60,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        if size < 1 or not 3 <= width <= 20 or not 1 <= things <= len(THINGS) or not 0 <= walls <= 0.4:
            raise ValueError(
                "text-grid: need size >= 1, width 3 to 20, things 1 to 5 and walls 0 to 0.4, found "
                f"{size}, {width}, {things} and {walls:g}"
            )
        if turns < (least := 2 * width * (things + 1)):
            raise ValueError(f"text-grid: turns must be at least 2 x width x (things + 1) = {least}, found {turns}")
        self.size, self.width, self.things, self.walls = size, width, things, walls
        self.turns, self.seed, self.heldout = turns, seed, heldout

    @classmethod
    def split(
        cls, *, train: int, heldout: int, seed: int, width: int, things: int, walls: float, turns: int
    ) -> TaskSplit:
        """Returns training and held-out tasks; the doors of held-out ones are on the east side, of others on the west
        side, so that no grid is in both."""
        first, second = (
            cls(size=n, width=width, things=things, walls=walls, turns=turns, seed=seed, heldout=apart)
            for n, apart in ((train, False), (heldout, True))
        )
        return TaskSplit(first, second)

    @property
    def kinds(self) -> list[str]:
        return [KIND]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"{self.seed}/{int(self.heldout)}/{index}")
        cells: list[Cell] = [(x, y) for x in range(self.width) for y in range(self.width)]
        while True:
            free = frozenset(cell for cell in cells if draw.random() >= self.walls)
            side = self.width - 1 if self.heldout else 0
            doors = [cell for cell in sorted(free) if cell[0] == side]
            if not doors:
                continue
            door = draw.choice(doors)
            reached = distances(free, door)
            rest = sorted(set(reached) - {door})
            # A tree of corridors may be longer than the turns that are sure to be enough on an open grid.
            if len(rest) > self.things and max(reached.values()) <= 2 * (self.width - 1):
                break
        start, *places = draw.sample(rest, self.things + 1)
        names = draw.sample(THINGS, self.things)
        fewest, _ = commands_left(free, start, places, door)
        row = {
            "free": sorted(map(list, free)),
            "start": list(start),
            "door": list(door),
            "things": {name: list(place) for name, place in zip(names, places, strict=True)},
            "fewest": fewest,
        }
        wanted = " and the ".join(names)
        where = "; ".join(f"the {name} at column {x}, row {y}" for name, (x, y) in zip(names, places, strict=True))
        prompt = (
            f"Fetch the {wanted}, and leave by the door at column {door[0]}, row {door[1]}. There are {where}. "
            f"Commands: go {', '.join(MOVES)}; take THING; look; leave. Columns count to the east, rows to the south. "
        )
        name = f"{KIND}/{self.seed}/{int(self.heldout)}/{index}"
        task = Task(name, KIND, prompt, None, row)
        return Task(name, KIND, prompt + TextGridEpisode(task, self.turns).described(), None, row)

    def episode(self, task: Task) -> Episode:
        return TextGridEpisode(task, self.turns)


class TextGridEpisode:
    """One errand of at most `turns` commands."""

    def __init__(self, task: Task, turns: int) -> None:
        self.task, self.turns = task, turns
        self.free: frozenset[Cell] = frozenset((x, y) for x, y in task.row["free"])
        self.door: Cell = tuple(task.row["door"])
        self._begin()
        self.over = True

    def _begin(self) -> None:
        self.at: Cell = tuple(self.task.row["start"])
        self.left: dict[str, Cell] = {name: (x, y) for name, (x, y) in self.task.row["things"].items()}
        self.done, self.over = 0, False

    def reset(self) -> str:
        self._begin()
        return self.task.prompt

    def described(self) -> str:
        """Returns what the agent sees."""
        here = [name for name, place in self.left.items() if place == self.at]
        lying = "".join(f" The {name} and a broken {name} are here." for name in here)
        ways = [name for name, (dx, dy) in MOVES.items() if (self.at[0] + dx, self.at[1] + dy) in self.free]
        door = " The door is here." if self.at == self.door else ""
        return f"You are at column {self.at[0]}, row {self.at[1]}.{lying}{door} Ways lead {' and '.join(ways)}."

    def commands_left(self) -> tuple[int, Cell]:
        """Returns the fewest commands that the rest takes, and the cell to go to first."""
        return commands_left(self.free, self.at, list(self.left.values()), self.door)

    def step(self, action: str) -> Step:
        if self.over:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        self.done += 1
        event, observation = self._act(" ".join(action.lower().split()))
        solved = event == "left" and self.at == self.door and not self.left
        self.over = event == "left" or self.done >= self.turns
        excess = float(max(self.done - self.task.row["fewest"], 0))
        info = {"event": event, "solved": solved, "signals": {"excess": excess}}
        truncated = self.over and event != "left"
        return Step("" if self.over else observation, float(solved), event == "left", truncated, info)

    def _act(self, command: str) -> tuple[str, str]:
        """Carries a command out and returns its event and the observation after it."""
        word, _, rest = command.partition(" ")
        if word == "go" and rest in MOVES:
            return self._go((self.at[0] + MOVES[rest][0], self.at[1] + MOVES[rest][1]))
        if word == "take" and self.left.get(rest) == self.at:
            del self.left[rest]
            return "took", f"You have the {rest}. {self.described()}"
        if word == "take" and self.left.get(rest.removeprefix("broken ")) == self.at:
            return "decoy", f"It falls to pieces. {self.described()}"
        if command == "look":
            return "looked", self.described()
        if command == "leave":
            return "left", ""
        return "unknown", f"You cannot do that. {self.described()}"

    def _go(self, cell: Cell) -> tuple[str, str]:
        if cell not in self.free:
            return "wall", f"There is a wall. {self.described()}"
        before, _ = self.commands_left()
        self.at = cell
        after, _ = self.commands_left()
        return "closer" if after < before else "away", self.described()

    def demonstrate(self) -> str | None:
        """Returns a command of a shortest way to the end."""
        if self.over:
            return None
        _, goal = self.commands_left()
        for name, place in self.left.items():
            if place == self.at == goal:
                return f"take {name}"
        if self.at == goal:
            return "leave"
        far = distances(self.free, goal)
        ways = {name: (self.at[0] + dx, self.at[1] + dy) for name, (dx, dy) in MOVES.items()}
        return "go " + next(name for name, cell in ways.items() if far.get(cell, far[self.at]) < far[self.at])
