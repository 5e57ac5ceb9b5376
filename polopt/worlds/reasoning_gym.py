"""Tasks of reasoning_gym: a mix of its procedural datasets, scored by the library's scorers."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import random
import re
import sys
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pydantic

from polopt.config import Config, ConfigError, parse
from polopt.names import nearest
from polopt.worlds.answers import OneAnswer, TaskList
from polopt.worlds.protocol import Episode, Task, TaskSplit
from polopt.worlds.scoring.place import verdicts
from polopt.worlds.scoring.verdict import Request, Verdict

# Tasks per instance of a dataset; some instances generate all their tasks when they are built.
BLOCK = 5_000
# The most draws for a task whose prompt is not excluded; see `_distinct` for why one is always found.
PATIENCE = 2_000
# Datasets whose generators draw from Python's or numpy's global random state.
GLOBAL = frozenset({"codeio", "list_functions", "pool_matrix"})
# Datasets whose tasks depend on the iteration order of sets of text, which differs between Python processes.
UNSTABLE = frozenset({"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder"})


class ReasoningGym:
    """A weighted mix of reasoning_gym datasets, generated lazily: task i depends on `seed` and i alone.

    datasets: name -> its settings; besides the dataset's own, `weight` > 0 is its share of the mix (default 1). Shares
        are exact up to a few tasks for every prefix of the mix.
    size: number of tasks.
    partial: the reward is the scorer's own score in [0, 1]. By default the reward is 1 if the score reaches 1, else 0:
        many scorers give 0.01 to 0.5 for a wrong answer.
    answer_tag: score only the text inside the last <tag>...</tag>, and 0 without one. By default the whole completion,
        stripped, is the answer.
    exclude: prompts that must not be drawn.

    `Step.info` holds `answer`, the scorer's `score`, `solved` (score >= 1) and, where the scorer could not read the
    answer, `scorer_error`. An answer that the scorer would run as code scores 0 without being passed to it. Four
    datasets whose scorers accept one and the same answer to every task are scored by polopt's own comparison
    (`scorers.COMPARED`). Scorers run in worker processes with limits on time and memory, see `scoring`; an answer that
    is lost there scores 0, and `Step.info["lost"]` is the reason.

    Raises:
        ConfigError: an unknown dataset or setting (with the nearest valid one), a value of the wrong type or outside
            its range, or a dataset that is not reproducible in this process.
    """

    def __init__(
        self,
        datasets: Mapping[str, Mapping[str, Any] | None],
        size: int,
        seed: int = 0,
        *,
        partial: bool = False,
        answer_tag: str | None = None,
        exclude: Collection[str] = (),
    ) -> None:
        if size < 1:
            raise ConfigError(f"reasoning-gym.size must be >= 1, found {size}")
        settings, weights = _check(datasets)
        self._settings = settings
        self._names = list(weights)
        self._scorers: dict[str, dict[str, Any]] = {
            name: {"scorer": "reasoning-gym", "dataset": name, "settings": settings[name]} for name in weights
        }
        self._edges = [*itertools.accumulate(weights.values())]
        self._size, self._seed = size, seed
        self._partial, self._tag = partial, answer_tag
        self._exclude = frozenset(exclude)
        self._tasks: dict[int, Task] = {}
        self._block = functools.lru_cache(maxsize=64)(self._new_block)

    @classmethod
    def split(
        cls,
        datasets: Mapping[str, Mapping[str, Any] | None],
        *,
        train: int,
        heldout: int,
        seed: int,
        partial: bool = False,
        answer_tag: str | None = None,
    ) -> TaskSplit:
        """Returns training and held-out tasks without a prompt in common.

        The held-out tasks are generated from a seed of their own and are all different. Training tasks are drawn lazily
        and may repeat where a dataset has few prompts; held-out prompts are never among them.

        Raises:
            ConfigError: as for the class, or a dataset has too few prompts to hold out that many.
        """
        options: dict[str, Any] = {"partial": partial, "answer_tag": answer_tag}
        source = cls(datasets, heldout, _derived(seed, "heldout"), **options)
        heldout_tasks = _distinct(source)
        prompts = {task.prompt for task in heldout_tasks}
        train_tasks = cls(datasets, train, _derived(seed, "train"), exclude=prompts, **options)
        return TaskSplit(train_tasks, TaskList(heldout_tasks, source.score, score_many=source.score_many))

    @property
    def kinds(self) -> list[str]:
        return sorted(self._names)

    @property
    def turns(self) -> int:
        return 1

    @property
    def scorers(self) -> list[dict[str, Any]]:
        return list(self._scorers.values())

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self._size:
            raise IndexError(f"task {index} of {self._size}")
        if index not in self._tasks:
            self._tasks[index] = self._draw_task(index, self._exclude)[0]
        return self._tasks[index]

    def episode(self, task: Task) -> Episode:
        return OneAnswer(task, self.score, self.score_many)

    def score(self, completion: str, task: Task) -> tuple[float, dict[str, Any]]:
        """Returns the reward of one completion, and the step's info."""
        return self.score_many([(completion, task)])[0]

    def score_many(self, answered: Sequence[tuple[str, Task]]) -> list[tuple[float, dict[str, Any]]]:
        """Scores the completions in one batch, each as `score` does."""
        answers = [self._answer(completion) for completion, _ in answered]
        requests = [
            Request(self._scorers[task.kind], task.row, answer)
            for answer, (_, task) in zip(answers, answered, strict=True)
            if answer is not None
        ]
        results = iter(verdicts(requests))
        return [self._judged(answer, Verdict(0.0) if answer is None else next(results)) for answer in answers]

    def _judged(self, answer: str | None, verdict: Verdict) -> tuple[float, dict[str, Any]]:
        """Converts a verdict to reward and info; a score that is not finite and a scorer that raised count as a wrong
        answer."""
        score = verdict.value if math.isfinite(verdict.value) else 0.0
        info: dict[str, Any] = {"answer": answer, "score": score}
        if verdict.raised is not None:
            info["scorer_error"] = verdict.raised
        if verdict.lost is not None:
            info["lost"] = verdict.lost
        info["solved"] = score >= 1
        return (score if self._partial else float(info["solved"])), info

    def _answer(self, completion: str) -> str | None:
        if self._tag is None:
            return completion.strip()
        tag = re.escape(self._tag)
        found = re.findall(f"<{tag}>(.*?)</{tag}>", completion, flags=re.DOTALL)
        return found[-1].strip() if found else None

    def _name(self, index: int) -> str:
        """Returns the dataset of task `index`: multiples of the golden ratio fill every share of the mix evenly."""
        golden = 0x9E3779B97F4A7C15
        share = (index * golden + self._seed) % 2**64 / 2**64
        return self._names[min(bisect.bisect(self._edges, share * self._edges[-1]), len(self._names) - 1)]

    def _draw_task(self, index: int, exclude: Collection[str]) -> tuple[Task, int]:
        """Returns task `index`, and the number of draws until its prompt was not excluded."""
        name = self._name(index)
        for attempt in range(PATIENCE):
            # A step that shares no factor with BLOCK visits every task of the block before it repeats one.
            number = (index + attempt * 1_009) % BLOCK
            dataset, seed = self._block(name, index // BLOCK)
            try:
                with _sealed(name, seed + number):
                    entry = dataset[number]
            except Exception as error:  # a few generators fail at some numbers
                raise ConfigError(
                    f"reasoning-gym.datasets.{name} cannot make its task {number}: {type(error).__name__}: {error}; "
                    "leave it out, or set another seed"
                ) from error
            if entry["question"] not in exclude:
                return self._task(name, index, entry), attempt + 1
        raise ConfigError(f"reasoning-gym.datasets.{name}: nearly all of its prompts are excluded; hold out fewer")

    def _task(self, name: str, index: int, entry: dict[str, Any]) -> Task:
        answer = entry["answer"] if isinstance(entry["answer"], str) else None
        if answer is not None and self._tag is not None:
            answer = f"<{self._tag}>{answer}</{self._tag}>"
        return Task(f"{name}/{self._seed}/{index}", name, entry["question"], answer, entry)

    def _new_block(self, name: str, block: int) -> tuple[Any, int]:
        import reasoning_gym

        seed = _derived(self._seed, name, block)
        with _sealed(name, seed):
            return reasoning_gym.create_dataset(name, **self._settings[name], seed=seed, size=BLOCK), seed


def _distinct(source: ReasoningGym) -> list[Task]:
    """Returns all tasks of `source`, redrawn where necessary so that no prompt occurs twice.

    More than twice as many draws as tasks mean that the tasks cover about four fifths of a dataset's prompts. Raising
    an error in that case also guarantees every training task a prompt within `PATIENCE` draws.
    """
    prompts: set[str] = set()
    tasks: list[Task] = []
    draws: dict[str, int] = dict.fromkeys(source.kinds, 0)
    counts: dict[str, int] = dict.fromkeys(source.kinds, 0)
    for index in range(len(source)):
        task, tried = source._draw_task(index, prompts)
        prompts.add(task.prompt)
        tasks.append(task)
        draws[task.kind] += tried
        counts[task.kind] += 1
        if draws[task.kind] > 2 * counts[task.kind] + 20:
            raise ConfigError(
                f"reasoning-gym.datasets.{task.kind}: too few different prompts to hold {counts[task.kind]} "
                f"out and still learn from the rest; lower heldout = {len(source)}, or widen its settings"
            )
    return tasks


def _check(datasets: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
    """Returns each dataset's settings and weight, validated without generating a task."""
    registry = _registry()
    if not datasets:
        raise ConfigError("reasoning-gym.datasets is empty; name at least one, as in chain_sum: {max_terms: 2}")
    settings, weights = {}, {}
    for name, options in datasets.items():
        where = f"reasoning-gym.datasets.{name}"
        if name not in registry:
            hint = nearest(name, registry)
            raise ConfigError(f"{where} is not a dataset of reasoning_gym{hint}")
        if name in UNSTABLE and sys.flags.hash_randomization:
            raise ConfigError(
                f"{where} makes different tasks in every Python process; set the environment variable "
                f"PYTHONHASHSEED=0 before starting, or leave it out"
            )
        config = registry[name][1]
        parsed = parse(_model(config), options or {}, where)
        values = {key: getattr(parsed, key) for key in parsed.model_fields_set}
        weights[name] = values.pop("weight", 1.0)
        settings[name] = values
        try:
            dataset = config(**values)
            getattr(dataset, "validate", lambda: None)()  # two of them have nothing to check
        except (AssertionError, ValueError, TypeError) as error:
            raise ConfigError(f"{where}: {error}") from None
    return settings, weights


def _registry() -> dict[str, tuple[type, type]]:
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise ConfigError("reasoning-gym needs the package of that name: pip install reasoning-gym") from None
    # `composite` is a mix of datasets, which this class is already.
    return {name: value for name, value in DATASETS.items() if name != "composite"}


@functools.cache
def _model(config: type) -> type[Config]:
    """Returns a dataset's settings as a validated model, without seed and size, which this module sets."""
    hints = typing.get_type_hints(config)
    fields: dict[str, Any] = {
        field.name: (hints[field.name], pydantic.Field(default=None))
        for field in dataclasses.fields(config)
        if field.name not in ("seed", "size")
    }
    fields["weight"] = (float, pydantic.Field(default=1.0, gt=0, lt=math.inf))
    return pydantic.create_model(config.__name__, __base__=Config, **fields)


@contextlib.contextmanager
def _sealed(name: str, seed: int) -> Iterator[None]:
    """Seeds the global random states for datasets in `GLOBAL`, and restores them on exit."""
    if name not in GLOBAL:
        yield
        return
    state, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _derived(*parts: object) -> int:
    """Returns a 31-bit seed derived from names and numbers, the same in every process."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
