"""Held-out accuracy of preferences: whether the policy gives the preferred answer the higher probability."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from polopt.metrics import Interval, RankedPairs, rate_interval, t_interval
from polopt.training.answer_logp import summed_logp
from polopt.training.episode_record import EpisodeRecord
from polopt.training.estimates import PREFERENCES
from polopt.training.labels import LabelScore, evaluate_labels
from polopt.training.process_group import ProcessGroup
from polopt.training.replayer import EpisodeReplayer
from polopt.worlds.protocol import Task


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


RatedScore = PreferenceScore | LabelScore


def evaluate_rated(player: EpisodeReplayer, tasks: Sequence[Task], *, team: ProcessGroup | None = None) -> RatedScore:
    """Evaluates answers of known quality: pairs where every task has answers of different quality, labels elsewhere."""
    return (evaluate_pairs if all(task.is_ranked for task in tasks) else evaluate_labels)(player, tasks, team=team)


def evaluate_pairs(
    player: EpisodeReplayer, tasks: Sequence[Task], *, team: ProcessGroup | None = None
) -> PreferenceScore:
    """Ranks the best and the worst answer of each task by the policy's probabilities at temperature 1; nothing is
    sampled. The processes of a team share the tasks, and each returns the whole result; the policy's mode stays as it
    was."""
    found = summed_logp(player, tasks, [(task.rated[0], task.rated[-1]) for task in tasks], team=team)
    best, worst = ([pair[side] for pair in found] for side in (0, 1))
    pairs = RankedPairs(
        [answer.logp for answer in best],
        [answer.logp for answer in worst],
        chosen_length=[answer.length for answer in best],
        rejected_length=[answer.length for answer in worst],
    )
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
        rows=[(one if one.logp > other.logp else other).row for one, other in zip(best, worst, strict=True)],
        pairs=pairs,
    )
