"""Checks of a run's tasks before anything is spent: that reference answers are rewarded, and fit the limit."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Mapping, Sequence

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.training.episode_player import EpisodePlayer
from polopt.worlds.protocol import Task, Tasks, are_verified

# Tasks whose reference answer is scored, and tasks whose reference answer is measured.
SCORED, MEASURED = 8, 200
# Tasks that a sentence names.
NAMED = 3


def check_tasks(players: Mapping[str, EpisodePlayer]) -> None:
    """Runs all checks on each stage's training tasks. players: by the name of their stage.

    Raises:
        ConfigError: the prompts are messages, or the chat template gets arguments, that it cannot use.
        UserError: a verifier fails on a reference answer.

    Warns:
        PoloptWarning: no reference answer is rewarded, or some are longer than the limit.
    """
    checked = set()
    for stage, player in reversed(list(players.items())):  # of stages that share their tasks, the last names them
        key = (id(player.tasks), player.limit)
        if key not in checked:
            checked.add(key)
            check_chat_template(stage, player)
            if are_verified(player.tasks):
                check_reference_rewards(stage, player)
                check_reference_lengths(stage, player)


def check_chat_template(stage: str, player: EpisodePlayer) -> None:
    """Refuses messages without a chat template, and arguments that the template does not read.

    Raises:
        ConfigError: one of the two.
    """
    template, arguments = player.dialogue.tokenizer.chat_template, player.dialogue.chat_template_kwargs
    if template is None:
        chats = [task for task in spread(player.tasks, MEASURED) if is_chat(task)]
        if chats:
            raise ConfigError(
                f"stages.{stage}: the prompt of task {chats[0].id} is a list of messages or has a system prompt, and "
                "the policy's tokenizer has no chat template to write it; take a chat model as policy.model, set "
                "tokenizer.chat_template and save the tokenizer into that folder, or write the prompts as plain text"
            )
        if arguments:
            raise ConfigError("policy.chat_template_kwargs: the tokenizer has no chat template; leave them out")
        return
    read = set(re.findall(r"[^\W\d]\w*", str(template)))
    for name in arguments:
        if name not in read:
            close = difflib.get_close_matches(name, read, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "leave it out, or take a model whose template does"
            raise ConfigError(f"policy.chat_template_kwargs.{name} is not read by the chat template; {hint}")


def is_chat(task: Task) -> bool:
    """Returns whether a task's prompt was written as messages, or has some before it."""
    return bool(task.history) or isinstance(task.row.get("prompt"), list)


def check_reference_rewards(stage: str, player: EpisodePlayer) -> None:
    """Scores the reference answers of a few tasks, spread evenly; warns if none gets a positive reward."""
    tasks = [task for task in spread(player.tasks, SCORED) if task.solution is not None]
    handles = player.executor.open(player.tasks, tasks)
    player.executor.reset(handles)
    steps = player.executor.step(handles, [task.solution or "" for task in tasks])
    scored = [(task, step.reward) for task, step in zip(tasks, steps, strict=True) if not step.info.get("lost")]
    if not scored or any(reward > 0 for _, reward in scored):
        return
    found = ", ".join(f"{task.id} gets {reward:g}" for task, reward in scored[:NAMED])
    warnings.warn(
        f"stages.{stage}: none of the {len(scored)} reference answers that were scored has a positive reward "
        f"({found}), so no answer of the policy may ever have one; check that the tasks' verifier accepts "
        f"answers as the data writes them, as in {scored[0][0].solution!r:.80}",
        PoloptWarning,
        stacklevel=3,
    )


def check_reference_lengths(stage: str, player: EpisodePlayer) -> None:
    """Measures reference answers in tokens, the stop token included; warns if some are longer than the limit."""
    tasks = [task for task in spread(player.tasks, MEASURED) if task.solution is not None]
    lengths = [len(player.dialogue.answer(task.solution or "")) for task in tasks]
    beyond = sum(length > player.limit for length in lengths)
    if beyond:
        warnings.warn(
            f"stages.{stage}: {beyond} of {len(tasks)} reference answers that were measured are longer than the limit "
            f"of {player.limit} tokens, the longest has {max(lengths)}; answers are cut off there and not rewarded, so "
            "raise limit, unless shorter answers are right as well",
            PoloptWarning,
            stacklevel=3,
        )


def spread(tasks: Tasks, count: int) -> Sequence[Task]:
    """Returns up to `count` tasks, spread evenly over all."""
    size = len(tasks)
    return [tasks[i * size // min(count, size)] for i in range(min(count, size))]
