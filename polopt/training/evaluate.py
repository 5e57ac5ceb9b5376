"""Held-out accuracy of a policy, with intervals. An evaluation has no effect on training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from polopt.metrics import Interval, pass_at_k, rate_change, rate_interval
from polopt.support import PLAIN, Support
from polopt.training.episode_player import EpisodePlayer
from polopt.training.episode_record import EpisodeRecord
from polopt.training.partition import shares
from polopt.training.process_group import ProcessGroup
from polopt.worlds.protocol import Task

# Rows per batch of episodes.
BATCH = 512


@dataclasses.dataclass(frozen=True)
class HeldOutScore:
    """A policy's pass@k over held-out problems, `overall[k]` and `kinds[kind]` (pass@1), and the episodes behind it.

    solved: of each kind's problems, in their order, how many of the samples solved it. wrong: how many episodes were
    given up or cut short, by the names of `EpisodeExecutor.counts`; where they were not solved before, they count as
    unsolved.
    """

    problems: int
    samples: int
    overall: dict[int, Interval]
    kinds: dict[str, tuple[Interval, int]]
    solved: dict[str, list[int]] = dataclasses.field(repr=False)
    rows: list[EpisodeRecord] = dataclasses.field(repr=False)
    wrong: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Returns the score as written to evaluations.jsonl."""
        shown = lambda i: {"estimate": i.estimate, "low": i.low, "high": i.high}  # noqa: E731
        lengths = [sum(row.decided) for row in self.rows]
        return {
            "problems": self.problems,
            "samples": self.samples,
            **{f"pass@{k}": shown(interval) for k, interval in self.overall.items()},
            "kinds": {
                kind: {**shown(i), "problems": n, "solved": self.solved[kind]} for kind, (i, n) in self.kinds.items()
            },
            "length/mean": sum(lengths) / len(lengths),
            **{f"episodes/{name}": count for name, count in self.wrong.items() if count},
        }


def evaluate(
    player: EpisodePlayer,
    tasks: Sequence[Task],
    *,
    samples: int = 1,
    k: Sequence[int] = (),
    support: Support = PLAIN,
    seed: int = 0,
    team: ProcessGroup | None = None,
) -> HeldOutScore:
    """Plays `samples` episodes of each task and measures how many are solved, by the world's own criterion.

    Uses a random generator of its own and leaves the policy's mode as it was. Problems are the unit of every interval,
    however many samples each has. The processes of a team share the tasks, and each returns the whole result.
    """
    team = ProcessGroup() if team is None else team
    generator = torch.Generator().manual_seed(seed + team.rank)
    mode, clock, sampled = player.policy.training, dict(player.seconds), player.sampled
    before = player.executor.counts
    player.policy.eval()
    size = max(1, BATCH // samples)
    # Prompts of like length share a batch; batches put back in order afterwards.
    own_indices = shares([1] * len(tasks), team.size)[team.rank].tolist()
    order = sorted(own_indices, key=lambda i: len(tasks[i].prompt))
    rows: dict[int, list[EpisodeRecord]] = {}
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        records = player.play([tasks[i] for i in chosen], samples, support, generator)
        for row in records:
            row.episode = None  # the episode is over, and need not be sent
        rows |= {i: records[j * samples : (j + 1) * samples] for j, i in enumerate(chosen)}
    rows = {i: found for part in team.gather(rows) for i, found in part.items()}
    wrong = team.gather({name: count - before[name] for name, count in player.executor.counts.items()})
    player.policy.train(mode)
    player.seconds, player.sampled = clock, sampled
    solved = [sum(row.solved for row in rows[i]) for i in range(len(tasks))]
    kinds: dict[str, list[int]] = {kind: [] for kind in sorted({task.kind for task in tasks})}
    for task, count in zip(tasks, solved, strict=True):
        kinds[task.kind].append(count)
    return HeldOutScore(
        problems=len(tasks),
        samples=samples,
        overall={n: _interval(solved, samples, n) for n in (1, *(n for n in k if n != 1))},
        kinds={kind: (_interval(counts, samples, 1), len(counts)) for kind, counts in kinds.items()},
        solved=kinds,
        rows=[row for i in range(len(tasks)) for row in rows[i]],
        wrong={name: sum(part[name] for part in wrong) for name in before},
    )


def change(before: Mapping[str, Any], after: Mapping[str, Any], kind: str | None = None) -> Interval | None:
    """Returns the change of pass@1 from one record of evaluations.jsonl to another, over all problems or those of one
    kind; None where a record lacks the counts of its problems, or the two cannot be of the same problems."""
    try:
        first, last = ({name: of["solved"] for name, of in record["kinds"].items()} for record in (before, after))
        names = sorted(first) if kind is None else [kind]
        x, y = (
            [count / record["samples"] for name in names for count in solved[name]]
            for record, solved in ((before, first), (after, last))
        )
    except (KeyError, TypeError, AttributeError):
        return None
    sizes = [[len(solved[name]) for name in names] for solved in (first, last)]
    other = kind is None and (first.keys() != last.keys() or (sum(sizes[0]) == sum(sizes[1]) and sizes[0] != sizes[1]))
    return rate_change(x, y) if x and y and not other else None


def _interval(solved: Sequence[int], samples: int, k: int) -> Interval:
    return rate_interval(pass_at_k([samples] * len(solved), solved, k))
