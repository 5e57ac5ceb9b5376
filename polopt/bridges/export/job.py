"""The common part of every export: checks of the recipe, and the files that do not depend on the trainer."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polopt.algorithm import Algorithm
from polopt.bridges.export.reward import moved
from polopt.config import ConfigError
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.provided import check_split
from polopt.training.recipe import name_of_method
from polopt.training.run import Run
from polopt.training.specs import StageSpec
from polopt.training.trained import load_policy
from polopt.worlds import build_tasks
from polopt.worlds.protocol import Task, Tasks
from polopt.yaml_data import write_yaml


@dataclasses.dataclass(frozen=True)
class Exported:
    """A finished export.

    folder: where it is.
    command: runs it.
    notes: settings that were left out or differ, a sentence each.
    """

    folder: Path
    command: str
    notes: list[str]


@dataclasses.dataclass(frozen=True)
class ExportedStage:
    """One stage during its export to another trainer.

    name: of the method.
    model: a hub name or a folder; None for `policy` in the export's own.
    limit: the most tokens of an answer.
    stops: ids that end an answer.
    notes: settings that were left out or differ, a sentence each.
    """

    recipe: LanguageRecipe
    folder: Path
    name: str
    stage: StageSpec
    algorithm: Algorithm
    limit: int
    model: str | None
    tokenizer: Any
    stops: list[int]
    train: Tasks
    heldout: Tasks
    notes: list[str]

    @property
    def chat(self) -> bool:
        """True if the tokenizer has a chat template."""
        return self.tokenizer.chat_template is not None

    @property
    def group(self) -> int:
        """Rollouts per prompt."""
        return self.algorithm.sampling.group_size

    @property
    def updates(self) -> int:
        """Optimiser steps per batch of rollouts."""
        return self.stage.epochs * self.stage.minibatches

    @property
    def micro_rows(self) -> int:
        """Rows of one forward pass: the largest divisor of an optimiser batch up to the stage's setting."""
        batch = self.stage.rows // self.stage.minibatches
        most = min(self.stage.micro_rows or batch, batch)
        return next(rows for rows in range(most, 0, -1) if batch % rows == 0)

    @property
    def sentence(self) -> dict[str, Any]:
        """The algorithm as plain data. Paths of the user's own part files are absolute."""
        return moved(self.algorithm.to_dict(), lambda file: str(Path(file).resolve()) if Path(file).is_file() else file)

    def rows(self, split: str) -> Iterator[dict[str, Any]]:
        """Yields the tasks of a split as plain data."""
        for index, task in enumerate(self.tasks(split)):
            yield {
                "prompt": self.prompt_of(task),
                "answer": task.reference or "",
                "kind": task.kind,
                "id": task.id,
                "split": split,
                "index": index,
            }

    def tasks(self, split: str) -> Iterator[Task]:
        """Yields the tasks of a split."""
        tasks = {"train": self.train, "heldout": self.heldout}[split]
        return (tasks[index] for index in range(len(tasks)))

    def prompt_of(self, task: Task) -> str | list[dict[str, str]]:
        """Returns a task's prompt as TRL reads it: messages if the tokenizer has a chat template, else text.

        Raises:
            ConfigError: messages before the prompt, and no template.
        """
        if task.history and not self.chat:
            raise ConfigError(
                f"task {task.id} has messages before its prompt, and the tokenizer of {self.model} has no chat "
                "template to write them; export with a chat model"
            )
        return [*task.history, {"role": "user", "content": task.prompt}] if self.chat else task.prompt

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")


def vacant(folder: Path) -> Path:
    """Returns the folder if it is empty or does not exist.

    Raises:
        ConfigError: the folder is not empty.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{folder} holds something already: name another folder")
    return folder


def prepare(recipe: LanguageRecipe, folder: Path, run: Run | None) -> ExportedStage:
    """Checks the recipe, and writes the recipe, the world with its files, and a model that has no other source.

    Raises:
        ConfigError: as in `export`.
    """
    main = recipe.main_stage
    stage, before = recipe.stages[main], [name for name in recipe.stages if name != main]
    split = build_tasks(recipe.tasks_of(main), seed=recipe.seed)
    _check(recipe, main, split.train, before, run)
    check_split(main, recipe.algorithms[main], split)
    notes = [f"only the last stage, {main}, is carried; left out: {', '.join(before)}"] if before else []
    notes += [f"stages.{main}.start: training starts from policy.model"] if stage.start is not None else []
    notes += [f"rounds: one of {recipe.rounds} is carried"] if recipe.rounds > 1 else []
    notes += [f"stages.{main}.until: training goes on to its last step"] if stage.until else []
    if recipe.policy.chat_template_kwargs:
        notes.append("policy.chat_template_kwargs: not carried; set them in the trainer's own configuration")
    notes += ["rollout.engine: the trainer has its own"] if recipe.rollout.engine != "native" else []
    folder.mkdir(parents=True, exist_ok=True)
    model, tokenizer, stops = _model(recipe, folder, run)
    (folder / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    world = {"seed": recipe.seed, "stops": stops, "tasks": _with_copied_files(recipe.tasks_of(main), folder)}
    (folder / "world.yaml").write_text(write_yaml(world), encoding="utf-8")
    return ExportedStage(
        recipe=recipe,
        folder=folder,
        name=name_of_method(stage.method),
        stage=stage,
        algorithm=recipe.algorithms[main],
        limit=recipe.limit_of(main),
        model=model,
        tokenizer=tokenizer,
        stops=stops,
        train=split.train,
        heldout=split.heldout,
        notes=notes,
    )


def _check(recipe: LanguageRecipe, main: str, tasks: Tasks, before: list[str], run: Run | None) -> None:
    stage = recipe.stages[main]
    if tasks.turns > 1:
        raise ConfigError(f"its tasks take up to {tasks.turns} turns, and only tasks of one answer can be exported")
    world = recipe.tasks_of(main)
    for key in ("path", "heldout"):
        if world.get("kind") == "dataset" and Path(str(world.get(key))).is_dir():
            raise ConfigError(
                f"tasks.{key} = {world[key]!r} is a folder, and only files can be carried; write it as one with "
                "to_parquet of datasets"
            )
    if stage.train is not None:
        raise ConfigError(f"stages.{main}.train = {stage.train!r}: the other parameters would learn, too; leave it out")
    if (
        stage.rows % stage.minibatches
        or (stage.rows // stage.minibatches) % recipe.algorithms[main].sampling.group_size
    ):
        raise ConfigError(
            f"stages.{main}: {stage.rows} rows cannot be dealt to {stage.minibatches} minibatches of whole groups; "
            "set rows or minibatches"
        )
    if before and run is None and recipe.policy.model is None:
        raise ConfigError(
            f"the model is new, and {', '.join(before)}, which it begins with, would be left out: train it here and "
            "export the run, or set policy.model"
        )


def _model(recipe: LanguageRecipe, folder: Path, run: Run | None) -> tuple[str | None, Any, list[int]]:
    """Returns the model's place, None for the folder's own, its tokenizer, and the ids that end an answer."""
    from transformers import AutoTokenizer, GenerationConfig

    name = None if run is not None else recipe.policy.model
    if name is not None and Path(name).is_dir():
        name = str(Path(name).resolve())
    elif run is not None:
        load_policy(run.folder)
        shutil.copytree(run.folder / "policy", folder / "policy")
    elif name is None:
        LanguageDomain(recipe).policy.save(folder / "policy")
    source = str(folder / "policy") if name is None else name
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"policy.model = {name!r} cannot be loaded: {reason}") from error
    try:
        ids = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:
        ids = None
    ids = tokenizer.eos_token_id if ids is None else ids
    return name, tokenizer, [i for i in (ids if isinstance(ids, list) else [ids]) if i is not None]


def _with_copied_files(spec: Any, folder: Path) -> Any:
    """Returns a world's settings after copying the files that they name into the folder."""
    taken: dict[str, str] = {}

    def place(file: str) -> str:
        if file not in taken and Path(file).is_file():
            name = Path(file).name
            taken[file] = name if name not in taken.values() else f"{len(taken)}-{name}"
            shutil.copyfile(file, folder / taken[file])
        return taken.get(file, file)

    return moved(spec, place)
