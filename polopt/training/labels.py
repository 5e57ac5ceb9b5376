"""Held-out accuracy of labels: whether the policy finds good answers likelier than bad ones, of whatever prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from polopt.config import ConfigError
from polopt.metrics import Interval, concordance, rate_interval
from polopt.training.answer_logp import summed_logp
from polopt.training.episode_record import EpisodeRecord
from polopt.training.estimates import LABELS
from polopt.training.process_group import ProcessGroup
from polopt.training.replayer import EpisodeReplayer
from polopt.worlds.protocol import Task


@dataclasses.dataclass(frozen=True)
class LabelScore:
    """A policy's ordering of held-out answers with labels or scores.

    auc: the share of pairs of answers with different labels of which the better one has the higher mean
        log-probability of a token, ties counting half: the area under the ROC curve. The answers are of any prompts,
        so that even the best policy need not reach 1; compare it with the value before training.
    kinds: of each kind of task the mean placement of its answers among all of other labels, and their number.
    placements: by kind, of each answer. rows: of each task its best answer.
    """

    problems: int
    auc: Interval
    kinds: dict[str, tuple[Interval, int]]
    placements: dict[str, list[float]] = dataclasses.field(repr=False)
    rows: list[EpisodeRecord] = dataclasses.field(repr=False)
    samples: int = 1

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl; `solved` are the answers' placements."""
        shown = lambda i: {"estimate": i.estimate, "low": i.low, "high": i.high}  # noqa: E731
        return {
            "problems": self.problems,
            "samples": self.samples,
            LABELS[0]: shown(self.auc),
            "kinds": {
                kind: {**shown(i), "problems": n, "solved": self.placements[kind]}
                for kind, (i, n) in self.kinds.items()
            },
        }


def evaluate_labels(player: EpisodeReplayer, tasks: Sequence[Task], *, team: ProcessGroup | None = None) -> LabelScore:
    """Orders the answers of all tasks by the policy's probabilities at temperature 1; nothing is sampled. The processes
    of a team share the tasks, and each returns the whole result.

    Raises:
        ConfigError: all answers have the same label.
    """
    labels = [answer.score for task in tasks for answer in task.rated]
    if len(set(labels)) < 2:
        raise ConfigError(
            f"the {len(labels)} held-out answers all have the label {labels[0]:g}; hold out more of them, or a file "
            "with good and bad ones"
        )
    found = summed_logp(player, tasks, [task.rated for task in tasks], team=team)
    means = [answer.logp / max(1, answer.length) for its in found for answer in its]
    ordered = concordance(means, labels)
    placements: dict[str, list[float]] = {kind: [] for kind in sorted({task.kind for task in tasks})}
    kinds = (task.kind for task in tasks for _ in task.rated)
    for kind, placement in zip(kinds, ordered.placements.tolist(), strict=True):
        placements[kind].append(placement)
    return LabelScore(
        problems=len(labels),
        auc=ordered.overall,
        kinds={kind: (rate_interval(rates), len(rates)) for kind, rates in placements.items()},
        placements=placements,
        rows=[its[0].row for its in found],
    )
