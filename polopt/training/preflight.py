"""Checks of a run's tasks before anything is spent: are reference answers rewarded, and do they fit the limit?"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from polopt.errors import PoloptWarning
from polopt.training.player import Player
from polopt.worlds.protocol import Task, Tasks

# Tasks whose reference answer is scored, and tasks whose reference answer is measured.
SCORED, MEASURED = 8, 200
# Tasks that a sentence names.
NAMED = 3


def check_tasks(players: Mapping[str, Player]) -> None:
    """Runs all checks on each stage's training tasks. players: by the name of their stage.

    Raises:
        UserError: a verifier fails on a reference answer.

    Warns:
        PoloptWarning: no reference answer is rewarded, or some are longer than the limit.
    """
    seen = set()
    for stage, player in reversed(players.items()):  # of stages that share their tasks, the last names them
        key = (id(player.tasks), player.limit)
        if key not in seen:
            seen.add(key)
            check_reference_rewards(stage, player)
            check_reference_lengths(stage, player)


def check_reference_rewards(stage: str, player: Player) -> None:
    """Scores the reference answers of a few tasks, spread evenly; warns if none gets a positive reward."""
    tasks = with_solutions(player.tasks, SCORED)
    plays = player.grounds.open(player.tasks, tasks)
    player.grounds.reset(plays)
    steps = player.grounds.step(plays, [task.solution or "" for task in tasks])
    scored = [(task, step.reward) for task, step in zip(tasks, steps, strict=True) if not step.info.get("lost")]
    if not scored or any(reward > 0 for _, reward in scored):
        return
    found = ", ".join(f"{task.id} gets {reward:g}" for task, reward in scored[:NAMED])
    warnings.warn(
        f"stages.{stage}: none of the {len(scored)} reference answers that were scored has a positive reward ({found}), "
        f"so no answer of the policy may ever have one; check that the tasks' verifier accepts answers as the data "
        f"writes them, as in {scored[0][0].solution!r:.80}",
        PoloptWarning,
        stacklevel=3,
    )


def check_reference_lengths(stage: str, player: Player) -> None:
    """Measures reference answers in tokens, the stop token included; warns if some are longer than the limit."""
    tasks = with_solutions(player.tasks, MEASURED)
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


def with_solutions(tasks: Tasks, count: int) -> Sequence[Task]:
    """Up to `count` tasks, spread evenly over all; those without a solution are left out."""
    size = len(tasks)
    chosen = [tasks[i * size // min(count, size)] for i in range(min(count, size))]
    return [task for task in chosen if task.solution is not None]
