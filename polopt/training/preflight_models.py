"""Checks of prompts against the model's context, before anything is trained."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.errors import PoloptWarning, UserError
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import check_turns
from polopt.training.language_recipe import LanguageRecipe
from polopt.worlds.protocol import Task, Tasks, TaskSplit, held_in_memory
from polopt.worlds.subset import SubsetTasks

# Prompts that are measured where tasks are generated on demand; of tasks held in memory all are.
MEASURED = 2000
# Capability that a part needs of its source -> the answers of a task that it imitates.
IMITATED: Mapping[str, Callable[[Task], Sequence[str]]] = {
    "demonstrations": lambda task: [] if task.solution is None else [task.solution],
    "pairs": lambda task: [answer.text for answer in task.rated],
    "rated": lambda task: [answer.text for answer in task.rated],
}


class ContextError(UserError, ValueError):
    """Raised where a prompt and its answer do not fit in the model's context."""


def check_room(task: Task, prompt: int, answer: int, context: int | None) -> None:
    """Refuses a prompt that leaves no room for an answer. prompt, answer: tokens of each. context: of the model, None
    for one without a bound.

    Raises:
        ContextError: the sum is above the context.
    """
    if context is not None and prompt + answer > context:
        raise ContextError(_too_long(f"the prompt of task {task.id}", prompt, answer, context))


def fitted_splits(
    recipe: LanguageRecipe, splits: Mapping[str, TaskSplit], algorithms: Mapping[str, Algorithm], policy: LanguagePolicy
) -> dict[str, TaskSplit]:
    """Returns each stage's tasks, without the prompts that are longer than the recipe's `max_prompt_length`.

    Raises:
        ConfigError: a prompt and the longest answer, or a demonstration, are longer than the model's context; all
            prompts are left out; or tasks of several turns, and a chat template that has none.
    """
    found: dict[str, TaskSplit] = {}
    known: dict[tuple[int, int], Tasks] = {}  # stages share their tasks
    for name, split in splits.items():
        limit, parts = recipe.limit_of(name), {"training": split.train, "held-out": split.heldout}
        if split.train.turns > 1 or split.heldout.turns > 1:
            check_turns(policy, _model(recipe))
        for part, tasks in parts.items():
            key = (id(tasks), limit)
            if key not in known:
                where = f"stages.{name}: {part} tasks"
                known[key] = fitted(tasks, policy, limit, recipe.max_prompt_length, where)
            parts[part] = known[key]
        for kind, answers_of in IMITATED.items():
            if any(kind in p.source_capabilities for p in algorithms[name].parts()):
                _check_imitated(parts["training"], policy, f"stages.{name}", answers_of)
        found[name] = dataclasses.replace(split, train=parts["training"], heldout=parts["held-out"])
    return found


def fitted_others(recipe: LanguageRecipe, others: Mapping[str, Tasks], policy: LanguagePolicy) -> dict[str, Tasks]:
    """Returns the tasks of the worlds that are measured and not trained on, by name, without the prompts that are too
    long.

    Raises:
        ConfigError: as `fitted`.
    """
    return {
        name: fitted(tasks, policy, recipe.limit_of_other(name), recipe.max_prompt_length, f"evaluation.others.{name}")
        for name, tasks in others.items()
    }


def fitted(tasks: Tasks, policy: LanguagePolicy, limit: int, max_prompt_length: int | None, where: str) -> Tasks:
    """Returns the tasks whose prompts have at most `max_prompt_length` tokens; a warning counts the others. None keeps
    all.

    limit: tokens of the longest answer. where: for messages.

    Raises:
        ConfigError: one of them and an answer do not fit in the model's context, or none is left.
    """
    context = policy.context_length
    if max_prompt_length is not None:
        if context is not None and max_prompt_length + limit > context:
            raise ConfigError(
                f"max_prompt_length = {max_prompt_length} and limit = {limit} are more than the model's context of "
                f"{context} tokens; lower one of them"
            )
    elif context is None:
        return tasks
    lengths = _lengths(tasks, policy, len(tasks) if max_prompt_length is not None else measured(tasks))
    longest = max(lengths)
    if max_prompt_length is None:
        if context is not None and longest + limit > context:
            task = tasks[lengths.index(longest)]
            raise ConfigError(_too_long(f"{where}: the longest prompt, of task {task.id},", longest, limit, context))
        return tasks
    kept = [i for i, length in enumerate(lengths) if length <= max_prompt_length]
    if len(kept) == len(lengths):
        return tasks
    if not kept:
        raise ConfigError(
            f"{where}: all {len(lengths)} prompts are longer than max_prompt_length = {max_prompt_length} tokens, the "
            f"shortest has {min(lengths)}; raise it"
        )
    warnings.warn(
        f"{where}: {len(lengths) - len(kept)} of {len(lengths)} prompts are longer than max_prompt_length = "
        f"{max_prompt_length} tokens and are left out; the longest has {longest}",
        PoloptWarning,
        stacklevel=2,
    )
    return SubsetTasks(tasks, kept)


def _lengths(tasks: Tasks, policy: LanguagePolicy, count: int) -> list[int]:
    """Returns the tokens of the first prompts, with the messages before them."""
    dialogue = Dialogue(policy.tokenizer, policy.chat_template_kwargs)
    return [*map(len, dialogue.openings([(task.prompt, task.history) for task in (tasks[i] for i in range(count))]))]


def measured(tasks: Tasks) -> int:
    """Returns how many tasks are looked at before training: all that exist already, the first of others."""
    return len(tasks) if held_in_memory(tasks) else min(MEASURED, len(tasks))


def _check_imitated(
    tasks: Tasks, policy: LanguagePolicy, where: str, answers_of: Callable[[Task], Sequence[str]]
) -> None:
    context = policy.context_length
    if context is None or tasks.turns > 1:
        return
    dialogue = Dialogue(policy.tokenizer, policy.chat_template_kwargs)
    shown = [(task, text) for task in (tasks[i] for i in range(measured(tasks))) for text in answers_of(task)]
    openings = dialogue.openings([(task.prompt, task.history) for task, _ in shown])
    answers = dialogue.answers([text for _, text in shown])
    for (task, _), prompt, answer in zip(shown, map(len, openings), map(len, answers), strict=True):
        if prompt + answer > context:
            raise ConfigError(
                f"{where}: task {task.id} has a prompt of {prompt} tokens and an answer of {answer} to learn from, and "
                f"the model's context is {context}; leave the task out, or take a model with a longer context"
            )


def _model(recipe: LanguageRecipe) -> str:
    return "policy.config" if recipe.policy.model is None else f"policy.model = {recipe.policy.model!r}"


def _too_long(what: str, prompt: int, answer: int, context: int) -> str:
    fix = "lower limit"
    if context > answer:
        fix += f", set max_prompt_length: {context - answer} to leave longer prompts out"
    return (
        f"{what} has {prompt} tokens and an answer up to limit = {answer}, together more than the model's context of "
        f"{context}; {fix}, or take a model with a longer context"
    )
