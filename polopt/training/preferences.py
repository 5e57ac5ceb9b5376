"""Held-out accuracy of preferences: whether the policy gives the preferred answer the higher probability."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from polopt.metrics import Interval, RankedPairs, rate_interval, t_interval
from polopt.support import PLAIN
from polopt.training.episode_record import EpisodeRecord, to_experience
from polopt.training.estimates import PREFERENCES
from polopt.training.partition import shares
from polopt.training.process_group import ProcessGroup
from polopt.training.replayer import EpisodeReplayer
from polopt.worlds.protocol import Task

# Pairs per pass of the policy.
BATCH = 32


@dataclasses.dataclass(frozen=True)
class PreferenceScore:
    """A policy's ranking of held-out pairs of answers.

    accuracy: the share of pairs of which the preferred answer has a higher probability than the rejected one, all
        tokens and the stop token together; ties count as wrong. It needs no reference policy and is defined before
        training, where the accuracy of DPO's implicit reward is 0 (all rewards are 0).
    margin: the mean of log pi(preferred) - log pi(rejected) in nats. beta times its change over a stage is the mean
        margin of DPO's implicit reward.
    kinds: the accuracy of each kind of task, and its number of pairs. ranked: of each kind's pairs, in their order, 1
        where the ranking is right and 0 elsewhere. rows: of each pair the likelier answer. pairs: sums and lengths of
        both answers of each pair, for the metric `ranking-accuracy`; `with_reference` adds another policy's.
    """

    problems: int
    accuracy: Interval
    margin: Interval
    kinds: dict[str, tuple[Interval, int]]
    ranked: dict[str, list[int]] = dataclasses.field(repr=False)
    rows: list[EpisodeRecord] = dataclasses.field(repr=False)
    pairs: RankedPairs = dataclasses.field(repr=False)
    samples: int = 1

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl; `solved` counts right rankings."""
        shown = lambda i: {"estimate": i.estimate, "low": i.low, "high": i.high}  # noqa: E731
        return {
            "problems": self.problems,
            "samples": self.samples,
            PREFERENCES[0]: shown(self.accuracy),
            PREFERENCES[1]: {**shown(self.margin), "unit": "nats"},
            "kinds": {
                kind: {**shown(i), "problems": n, "solved": self.ranked[kind]} for kind, (i, n) in self.kinds.items()
            },
        }


def evaluate_pairs(
    player: EpisodeReplayer, tasks: Sequence[Task], *, team: ProcessGroup | None = None
) -> PreferenceScore:
    """Ranks the two answers of each task by the policy's probabilities at temperature 1; nothing is sampled. The
    processes of a team share the tasks, and each returns the whole result; the policy's mode stays as it was."""
    team = ProcessGroup() if team is None else team
    mode = player.policy.training
    player.policy.eval()
    own_indices = shares([1] * len(tasks), team.size)[team.rank].tolist()
    # Pairs of like length share a pass.
    order = sorted(own_indices, key=lambda i: len(tasks[i].prompt) + len(tasks[i].solution or ""))
    found: dict[int, tuple[list[float], EpisodeRecord]] = {}
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        found |= dict(zip(chosen, _ranked(player, [tasks[i] for i in chosen]), strict=True))
    player.policy.train(mode)
    found = {i: pair for part in team.gather(found) for i, pair in part.items()}
    columns = list(zip(*(found[i][0] for i in range(len(tasks))), strict=True))
    pairs = RankedPairs(columns[0], columns[1], chosen_length=columns[2], rejected_length=columns[3])
    margins = pairs.margin().tolist()
    ranked: dict[str, list[int]] = {kind: [] for kind in sorted({task.kind for task in tasks})}
    for task, margin in zip(tasks, margins, strict=True):
        ranked[task.kind].append(int(margin > 0))
    return PreferenceScore(
        problems=len(tasks),
        accuracy=rate_interval([float(margin > 0) for margin in margins]),
        margin=t_interval(margins),
        kinds={kind: (rate_interval(list(map(float, right))), len(right)) for kind, right in ranked.items()},
        ranked=ranked,
        rows=[found[i][1] for i in range(len(tasks))],
        pairs=pairs,
    )


@torch.no_grad()
def _ranked(player: EpisodeReplayer, tasks: Sequence[Task]) -> list[tuple[list[float], EpisodeRecord]]:
    """Returns, of each task, log pi(preferred), log pi(rejected) and their numbers of tokens, and the likelier answer
    with its log-probabilities."""
    rows = player.pairs(tasks)
    batch = to_experience(rows, PLAIN, horizon=None, policy=player.policy)
    logp = torch.where(batch.mask, player.policy.evaluate(batch).logp, 0).double()
    for row, values in zip(rows, logp.tolist(), strict=True):
        row.logp = values[: len(row.ids)]
        row.episode = None  # it need not be sent
    pairs = torch.cat([logp.sum(1).view(-1, 2), batch.mask.sum(1).double().view(-1, 2)], 1).tolist()
    return [(pair, rows[2 * i + int(pair[0] <= pair[1])]) for i, pair in enumerate(pairs)]
