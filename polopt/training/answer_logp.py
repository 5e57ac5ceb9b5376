"""Log-probabilities of given answers under a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from polopt.support import PLAIN
from polopt.training.episode_record import EpisodeRecord, to_experience
from polopt.training.partition import shares
from polopt.training.process_group import ProcessGroup
from polopt.training.replayer import EpisodeReplayer
from polopt.worlds.protocol import RatedAnswer, Task

# Answers per pass of the policy.
BATCH = 64


class AnswerLogp(NamedTuple):
    """An answer's log-probability: the sum over its tokens, and their number. row: its episode."""

    logp: float
    length: int
    row: EpisodeRecord


def summed_logp(
    player: EpisodeReplayer,
    tasks: Sequence[Task],
    answers: Sequence[Sequence[RatedAnswer]],
    *,
    team: ProcessGroup | None = None,
) -> list[list[AnswerLogp]]:
    """Returns, of each task and each of its answers, the sum of the log-probabilities of its tokens, the stop token
    among them, at temperature 1. The processes of a team share the tasks; the policy's mode stays as it was."""
    team = ProcessGroup() if team is None else team
    mode = player.policy.training
    player.policy.eval()
    own = shares([1] * len(tasks), team.size)[team.rank].tolist()
    # Answers of like length share a pass.
    order = sorted(own, key=lambda i: len(tasks[i].prompt) + max(len(answer.text) for answer in answers[i]))
    found: dict[int, list[AnswerLogp]] = {}
    chosen: list[int] = []
    for i in order:
        if chosen and sum(len(answers[j]) for j in (*chosen, i)) > BATCH:
            found |= _summed(player, tasks, answers, chosen)
            chosen = []
        chosen.append(i)
    found |= _summed(player, tasks, answers, chosen) if chosen else {}
    player.policy.train(mode)
    found = {i: its for part in team.gather(found) for i, its in part.items()}
    return [found[i] for i in range(len(tasks))]


@torch.no_grad()
def _summed(
    player: EpisodeReplayer, tasks: Sequence[Task], answers: Sequence[Sequence[RatedAnswer]], chosen: Sequence[int]
) -> dict[int, list[AnswerLogp]]:
    rows = player.rated([tasks[i] for i in chosen], [answers[i] for i in chosen])
    batch = to_experience(rows, PLAIN, horizon=None, policy=player.policy)
    logp = torch.where(batch.mask, player.policy.evaluate(batch).logp, 0).double()
    for row, values in zip(rows, logp.tolist(), strict=True):
        row.logp = values[: len(row.ids)]
        row.episode = None  # it need not be sent
    each = map(AnswerLogp, logp.sum(1).tolist(), batch.mask.sum(1).tolist(), rows)
    return {i: [next(each) for _ in answers[i]] for i in chosen}
