"""Text adventures that TextWorld makes here, with its own tools: the world of its quests."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import random
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import filelock

from polopt.config import ConfigError
from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, TaskSplit

KIND = "textworld"
# Games of one draw that may fail to be made, before the next seed is taken.
TRIES = 20
# The version of what is stored of a game: part of its name.
FORMAT = 1
# Interpreters that wait for the next episode of their game.
KEPT = 64
END = "*** The End ***"
REFUSED = "That is not possible here."


def textworld() -> Any:
    """Returns the package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module("textworld")
    except ImportError:
        raise ConfigError("worlds of kind textworld need TextWorld; run pip install 'polopt[textworld]'") from None


def default_folder() -> Path:
    """Returns the folder of this user in which games are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "polopt" / "textworld"


class TextWorldGames:
    """Tasks of finishing quests in text adventures, in at most `turns` commands.

    Each task is a game of its own, which TextWorld makes and compiles on this machine when it is first looked at, in
    about a second, and which is kept in `folder`. An answer is one command, of those that are possible there; any other
    text is lost. What is read after it is what the game says, and, with `commands`, what may be done. Finishing the
    quest has reward 1 and ends the episode, as does losing.

    size: number of tasks.
    quest: the least and the most commands of the shortest way to finish.
    rooms, objects: the least and the most of each.
    instructions: "last" tells the quest's last command alone, so that what leads there has to be found; "all" tells
        every one of them.
    commands: whether the commands that are possible are told.
    theme: TextWorld's, "house" for things with names of English, "basic" for names of letters and numbers.
    folder: where games are kept; None for `default_folder()`. Programs may share it.
    seed: task i is the same for the same seed and version of TextWorld, on every machine.

    Signals: `malformed`, turns that were lost; `score`, the share of the game's points.

    Raises:
        ValueError: settings out of their range.
        ConfigError: TextWorld is not installed.
    """

    signals = ("malformed", "score")

    def __init__(
        self,
        *,
        size: int,
        quest: tuple[int, int] = (1, 3),
        rooms: tuple[int, int] = (2, 3),
        objects: tuple[int, int] = (2, 4),
        turns: int = 10,
        instructions: Literal["last", "all"] = "last",
        commands: bool = True,
        theme: Literal["house", "basic"] = "house",
        folder: str | None = None,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        ranges = {"quest": quest, "rooms": rooms, "objects": objects}
        wrong = [name for name, (least, most) in ranges.items() if not 1 <= least <= most]
        if wrong or size < 1 or turns < quest[1]:
            raise ValueError(
                "textworld: needs size >= 1, 1 <= least <= most of quest, rooms and objects, and as many turns as the "
                f"longest quest, found {size}, {quest}, {rooms}, {objects} and {turns}"
            )
        textworld()
        self.size, self.quest, self.rooms, self.objects, self.turns = size, quest, rooms, objects, turns
        self.instructions, self.commands, self.theme = instructions, commands, theme
        self.seed, self.heldout = seed, heldout
        self.folder = default_folder() if folder is None else Path(folder)

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, **settings: Any) -> TaskSplit:
        """Returns training and held-out tasks, with no game in common."""
        first, second = (
            cls(size=n, seed=seed, heldout=apart, **settings) for n, apart in ((train, False), (heldout, True))
        )
        return TaskSplit(first, second)

    @property
    def kinds(self) -> list[str]:
        return [f"{n} command{'s' * (n > 1)}" for n in range(self.quest[0], self.quest[1] + 1)]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        length = self.quest[0] + index % (self.quest[1] - self.quest[0] + 1)
        spec = self._spec(index, length)
        game = made(self.folder, json.dumps(spec, sort_keys=True))
        told = f"{game['objective']}\n{game['opening']}" + (_possible(game["commands"]) if self.commands else "")
        name = f"{KIND}/{self.seed}/{int(self.heldout)}/{index}"
        row = {"game": game["file"], "walkthrough": game["walkthrough"]}
        return Task(name, self.kinds[length - self.quest[0]], told, None, row)

    def _spec(self, index: int, length: int) -> dict[str, Any]:
        draw = random.Random(f"{self.seed}/{int(self.heldout)}/{index}")
        # Held-out games have odd seeds, so that no seed shares one between the two sets.
        return {
            "seed": 2 * draw.randrange(2**30) + int(self.heldout),
            "quest": length,
            "rooms": draw.randint(*self.rooms),
            "objects": draw.randint(*self.objects),
            "instructions": self.instructions,
            "theme": self.theme,
            "format": FORMAT,
        }

    def episode(self, task: Task) -> Episode:
        return TextWorldEpisode(task, self)


@functools.lru_cache(maxsize=4096)
def made(folder: Path, spec: str) -> dict[str, Any]:
    """Returns what is known of the game of a specification, which is made if the folder does not have it: `file`, its
    `objective`, `opening`, `commands` that it begins with, and `walkthrough`."""
    package = textworld()
    name = hashlib.sha256(f"{package.__version__} {spec}".encode()).hexdigest()[:24]
    folder.mkdir(parents=True, exist_ok=True)
    card, file = folder / f"{name}.about.json", folder / f"{name}.z8"
    with filelock.FileLock(folder / f"{name}.lock"):
        if not card.is_file():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                about = _make(package, json.loads(spec), Path(place) / file.name)
                # The card comes last, so that a game without one is made again.
                for made_file in (Path(place) / f"{name}.json", Path(place) / file.name):
                    os.replace(made_file, folder / made_file.name)
            part = card.with_suffix(".part")
            part.write_text(json.dumps(about), encoding="utf-8")
            os.replace(part, card)
    found: dict[str, Any] = json.loads(card.read_text(encoding="utf-8"))
    return {**found, "file": str(file)}


def _make(package: Any, spec: dict[str, Any], path: Path) -> dict[str, Any]:
    """Makes and compiles a game into a file, and plays its beginning."""
    failure: object = "the quests that were found are of other lengths"
    for attempt in range(TRIES):
        options = package.GameOptions()
        options.seeds = spec["seed"] + 2 * attempt
        options.nb_rooms, options.nb_objects = spec["rooms"], spec["objects"]
        options.quest_length = spec["quest"]
        options.grammar.theme = spec["theme"]
        options.grammar.only_last_action = spec["instructions"] == "last"
        options.path, options.file_ext = str(path), path.suffix
        try:
            game = package.generator.make_game(options)
        except Exception as error:  # the package raises its own, and others, where a quest does not fit
            failure = error
            continue
        if len(game.walkthrough) != spec["quest"]:
            continue
        package.generator.compile_game(game, options)
        with _playing(str(path)) as (_, state):
            about = {
                "objective": " ".join(game.objective.split()),
                "opening": told(state.description),
                "commands": list(state.admissible_commands),
                "walkthrough": list(state.policy_commands),
            }
        _close(str(path))
        return about
    raise ConfigError(
        f"textworld: no quest of {spec['quest']} commands was found in {spec['rooms']} rooms with {spec['objects']} "
        f"objects in {TRIES} tries ({failure}); allow more of them"
    )


# File of a game -> interpreters that wait for its next episode, and how many there are of all games.
_waiting: dict[str, list[Any]] = {}


def _interpreter(file: str) -> Any:
    with contextlib.suppress(KeyError, IndexError):  # another thread may have taken the last one
        return _waiting[file].pop()
    package = textworld()
    names = ("description", "admissible_commands", "policy_commands", "won", "lost", "score", "max_score")
    with warnings.catch_warnings():
        # Its interpreter does not know the games that TextWorld makes, whose scores TextWorld itself counts.
        warnings.filterwarnings("ignore", message=".*is not fully supported.*")
        return package.start(file, package.EnvInfos(**dict.fromkeys(names, True)))


def _put_back(file: str, engine: Any) -> None:
    if sum(map(len, _waiting.values())) < KEPT:
        _waiting.setdefault(file, []).append(engine)
    else:
        engine.close()


def _close(file: str) -> None:
    for engine in _waiting.pop(file, []):
        engine.close()


@contextlib.contextmanager
def _playing(file: str) -> Iterator[tuple[Any, Any]]:
    engine = _interpreter(file)
    try:
        yield engine, engine.reset()
    finally:
        _put_back(file, engine)


def told(text: str) -> str:
    """Returns what a game says, without its prompt, status line and empty lines."""
    body = text.partition("\n>")[0].partition(END)[0]
    lines = (re.sub(r"\s+", " ", line).strip() for line in body.splitlines())
    return "\n".join(line for line in lines if line)


def _possible(commands: Sequence[str]) -> str:
    return f"\nYou can: {', '.join(commands)}." if commands else ""


class TextWorldEpisode:
    """One game that is played."""

    def __init__(self, task: Task, world: TextWorldGames) -> None:
        self.task, self.world = task, world
        self.file: str = task.row["game"]
        self.engine: Any = None
        self.over, self.done, self.lost = True, 0, 0

    def reset(self) -> str:
        if self.engine is None:
            self.engine = _interpreter(self.file)
        self.state = self.engine.reset()
        self.over, self.done, self.lost = False, 0, 0
        return self.task.prompt

    def step(self, action: str) -> Step:
        if self.over:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        self.done += 1
        before = float(self.state.score or 0)
        # Other texts never reach the interpreter: some of its own commands write files.
        allowed = {command.lower(): command for command in self.state.admissible_commands}
        command = allowed.get(" ".join(action.split()).lower())
        ended = False
        if command is None:
            self.lost += 1
        else:
            self.state, _, ended = self.engine.step(command)
        score, most = float(self.state.score or 0), float(self.state.max_score or 1)
        truncated = not ended and self.done >= self.world.turns
        self.over = ended or truncated
        observation = "" if self.over else self._observation(command is not None)
        info = {
            "solved": bool(self.state.won),
            "signals": {"malformed": float(self.lost), "score": score / most},
        }
        if self.over:
            _put_back(self.file, self.engine)
            self.engine = None
        reward = max(0.0, score - before) / most
        return Step(observation, reward, terminated=ended, truncated=truncated, info=info)

    def _observation(self, done: bool) -> str:
        possible = _possible(self.state.admissible_commands) if self.world.commands else ""
        return (told(self.state.feedback) if done else REFUSED) + possible

    def demonstrate(self) -> str | None:
        """Returns the next command of the shortest way to finish, None where there is none."""
        commands = None if self.over else self.state.policy_commands
        return commands[0] if commands else None
