"""Rewards of a recipe's world inside another trainer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from polopt.worlds import build_tasks
from polopt.worlds.protocol import Tasks, signals_of
from polopt.yaml_data import read_yaml_file


class WorldReward:
    """Computes rewards by the tasks of an exported recipe, identified by their split and number.

    tasks: the world as a recipe describes it.
    seed: of its tasks.
    stops: ids that end an answer.
    """

    def __init__(self, tasks: Mapping[str, Any], seed: int, stops: Collection[int] = ()) -> None:
        split = build_tasks(tasks, seed=seed)
        self.tasks: dict[str, Tasks] = {"train": split.train, "heldout": split.heldout}
        self.stops = frozenset(stops)

    @classmethod
    def of(cls, folder: Path | str) -> WorldReward:
        """Returns the rewards of `world.yaml` in an exported folder, which also holds the files that it names."""
        folder = Path(folder)
        data = read_yaml_file(folder / "world.yaml")
        located = moved(data["tasks"], lambda file: str(folder / file) if (folder / file).is_file() else file)
        return cls(located, data["seed"], data["stops"])

    def __call__(self, answer: str, split: str, index: int) -> dict[str, float]:
        """Returns the world's reward of one answer as "score", and its further signals by name."""
        tasks = self.tasks[split]
        episode = tasks.episode(tasks[index])
        episode.reset()
        step = episode.step(answer)
        return {"score": step.reward, **{name: float(step.info["signals"][name]) for name in self.signals}}

    @property
    def signals(self) -> tuple[str, ...]:
        return signals_of(self.tasks["train"])

    def trl(self) -> list[Callable[..., list[float]]]:
        """Returns reward functions for TRL: the score, and each signal under its name, to have weight 0.

        A truncated answer has reward 0, as in polopt's own loop.
        """
        return [self._function("score", "world"), *(self._function(name, f"signal_{name}") for name in self.signals)]

    def _function(self, what: str, name: str) -> Callable[..., list[float]]:
        def function(
            completions: Sequence[Any],
            completion_ids: Sequence[Sequence[int]],
            split: Sequence[str],
            index: Sequence[int],
            **others: Any,
        ) -> list[float]:
            return [
                self(_text(completion), *where)[what] if ids and ids[-1] in self.stops else 0.0
                for completion, ids, where in zip(
                    completions, completion_ids, zip(split, index, strict=True), strict=True
                )
            ]

        function.__name__ = name
        return function

    def verl(self, solution_str: str, extra_info: Mapping[str, Any]) -> dict[str, float]:
        """Computes a custom reward function of verl, which does not mark truncated answers."""
        return self(solution_str, str(extra_info["split"]), int(extra_info["index"]))


def _text(completion: Any) -> str:
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def moved(spec: Any, place: Callable[[str], str]) -> Any:
    """Returns a world's settings with each file path replaced by `place`, including Python files followed by a name."""
    if isinstance(spec, Mapping):
        return {key: moved(value, place) for key, value in spec.items()}
    if isinstance(spec, list):
        return [moved(value, place) for value in spec]
    if not isinstance(spec, str):
        return spec
    file, colon, name = spec.rpartition(":")
    return place(file) + colon + name if colon and file.endswith(".py") else place(spec)
