"""Preference pairs that an objective can turn from a reference policy, before anything is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.metrics import Measured, MetricDataError, RankedPairs
from polopt.metrics.ranking import LOGPS, margin_at_loss, pair_row, ranked_pairs
from polopt.objectives import PairedObjective
from polopt.objectives.implicit import Decisions
from polopt.objectives.paired import PairLink
from polopt.sampling import PreferencePairs
from polopt.training.preferences import evaluate_pairs
from polopt.training.replayer import EpisodeReplayer
from polopt.training.trained import load_policy
from polopt.worlds import PairReader
from polopt.worlds.protocol import Task
from polopt.worlds.rated import RatedTasks

# Longest answer that the player of given answers plans for; given answers are never cut off.
LIMIT = 1


@dataclasses.dataclass(frozen=True, eq=False)
class FlipCriterion:
    """When a pair loss ranks a pair right.

    The margin z of an objective's implicit rewards and the difference m of the policy's log-probabilities, by
    `ranks_by`, order a pair's answers alike about a threshold: m >= 0 exactly where z >= -k c, with c the reference's
    difference and k `reference_scale`. Where the link falls in z, the pair is ranked right exactly if its loss is at
    most the link's value there, for margins up to that of the least loss.

    method: name of the objective's method. link: the loss of a margin. other_terms: the objective adds other losses, so
    that the criterion is on the pair loss alone.
    """

    method: str
    ranks_by: Decisions
    reference_scale: float
    link: PairLink
    other_terms: bool

    def measure(self, pairs: RankedPairs, target_loss: float) -> Measured:
        """Returns the metric `ranking-accuracy` of the reference's log-probabilities with this loss.

        Raises:
            MetricDataError: the objective ranks by means over tokens, and the pairs have no lengths.
        """
        logps = [pairs.ref_chosen_logps, pairs.ref_rejected_logps]
        if self.ranks_by == "mean":
            lengths = [pairs.chosen_length, pairs.rejected_length]
            if lengths[0] is None:
                raise MetricDataError(
                    f"{self.method} compares means over tokens: add the columns chosen_length and rejected_length, or "
                    "give the reference's folder by --model"
                )
            logps = [logp / length for logp, length in zip(logps, lengths, strict=True)]
        by_loss = RankedPairs(ref_chosen_logps=logps[0], ref_rejected_logps=logps[1])
        # Without a reference every pair turns at the margin 0, whatever the scale.
        scale = {"beta": self.reference_scale or 1.0, "attenuation": 1.0 if self.reference_scale else 0.0}
        found: Measured = catalogue.metric("ranking-accuracy", link=self.link, target_loss=target_loss, **scale)(
            by_loss
        )
        return found


def flip_criterion(method: str, settings: Mapping[str, Any] | None = None) -> FlipCriterion:
    """Returns the criterion of a method that learns from given pairs.

    Raises:
        ConfigError: a method without one: it has no loss of a pair's margin, or a margin that depends on more than the
            policy's and the reference's log-probabilities.
    """
    algorithm = catalogue.sentence({"name": method, **(settings or {})})
    losses = [part for part in algorithm.objective.parts() if isinstance(part, PairedObjective)]
    where = f"--objective {method}"
    if not losses or losses[0].by != "outcome" or not _learns_from_pairs(algorithm):
        raise ConfigError(f"{where} has no loss of given preference pairs, so no pair is turned at a known loss")
    if len(losses) > 1:
        raise ConfigError(f"{where} has {len(losses)} losses of pairs, so no single loss decides which pair turns")
    (loss,) = losses
    ranks_by = loss.implicit.ranks_by
    if ranks_by is None:
        raise ConfigError(
            f"{where} compares pairs by {loss.implicit}, which depends on more than the log-probabilities of policy "
            "and reference: no loss decides which pair turns"
        )
    whole = algorithm.objective is loss and not len(loss.regularise)
    return FlipCriterion(method, ranks_by, loss.implicit.reference_scale, loss.link, other_terms=not whole)


def _learns_from_pairs(algorithm: Algorithm) -> bool:
    return any(isinstance(part, PreferencePairs) for part in algorithm.sampling.parts())


@dataclasses.dataclass(frozen=True, eq=False)
class Flips:
    """The pairs that an objective leaves ranked wrong, at a target loss a pair.

    lines: [N] of the pairs. measured: the metric `ranking-accuracy` with the objective's loss. source: the folder that
    computed the reference's log-probabilities, None: the file's own. target_loss, target_margin: the loss, and the
    least margin with it; the margin of the least loss where no margin has it.
    """

    criterion: FlipCriterion
    lines: tuple[int, ...]
    measured: Measured
    target_loss: float
    target_margin: float
    source: str | None

    @property
    def wrong(self) -> tuple[int, ...]:
        """Returns the lines of the pairs that the reference ranks wrong."""
        return self._lines(self.measured.rows["reference_margin"] < 0)

    @property
    def left_wrong(self) -> tuple[int, ...]:
        """Returns the lines of the pairs that the policy ranks wrong where every pair has the target loss."""
        needed = -self.criterion.reference_scale * self.measured.rows["reference_margin"]
        return self._lines(needed > self.target_margin)

    def _lines(self, chosen: np.ndarray) -> tuple[int, ...]:
        return tuple(line for line, here in zip(self.lines, chosen.tolist(), strict=True) if here)

    def record(self) -> dict[str, Any]:
        """Returns plain data; a flip loss of None is of a pair that no loss turns."""
        rows = self.measured.rows
        each = zip(self.lines, rows["reference_margin"].tolist(), rows["flip_loss"].tolist(), strict=True)
        return {
            "objective": self.criterion.method,
            "ranks_by": self.criterion.ranks_by,
            "other_terms": self.criterion.other_terms,
            "reference": self.source,
            "target_loss": self.target_loss,
            "wrong": list(self.wrong),
            "left_wrong": list(self.left_wrong),
            "pairs": [
                {"line": line, "reference_margin": margin, "flip_loss": None if np.isnan(loss) else loss}
                for line, margin, loss in each
            ],
        }

    def cautions(self) -> list[str]:
        """Returns sentences on what limits the criterion here."""
        more = (
            [f"{self.criterion.method} adds other terms: its pairs are counted at the pair loss alone"]
            if self.criterion.other_terms
            else []
        )
        return [*more, *self.measured.cautions]


def flips_of(
    criterion: FlipCriterion, pairs: RankedPairs, lines: Sequence[int], target_loss: float, source: str | None
) -> Flips:
    """Returns which of the pairs an objective leaves ranked wrong.

    Raises:
        MetricDataError: as `FlipCriterion.measure`.
    """
    measured = criterion.measure(pairs, target_loss)
    margin, _ = margin_at_loss(lambda z: criterion.link(z, z.new_ones(z.shape)), target_loss)
    return Flips(criterion, tuple(lines), measured, target_loss, margin, source)


def columns_of(rows: Mapping[int, Mapping[str, Any]]) -> RankedPairs | None:
    """Returns the reference's log-probabilities of rows by line, TRL's columns, None where a row lacks one.

    Raises:
        MetricDataError: a value that is no log-probability or length, with its line.
    """
    if not all(row.get(name) not in (None, "") for row in rows.values() for name in LOGPS[2:]):
        return None
    found = []
    for line, row in rows.items():
        try:
            found.append((line, pair_row(row)))
        except MetricDataError as error:
            raise MetricDataError(f"line {line}: {error}") from None
    return ranked_pairs(found)


def logps_under(folder: Path, tasks: Mapping[int, Task], file: Path) -> RankedPairs:
    """Computes the log-probabilities of each pair's answers under the policy in a folder, a run's or a model's, with
    their numbers of tokens, the stop token among them.

    tasks: by line.

    Raises:
        ConfigError: there is no such policy.
        ContextError: a prompt and its answer do not fit in the model's context, with the line.
    """
    named = [
        dataclasses.replace(task, id=f"{file.stem}:{line}", kind=task.kind or file.stem) for line, task in tasks.items()
    ]
    player = EpisodeReplayer(load_policy(folder), RatedTasks(named, PairReader().score), LIMIT)
    found = evaluate_pairs(player, named).pairs
    return RankedPairs(
        ref_chosen_logps=found.chosen_logps,
        ref_rejected_logps=found.rejected_logps,
        chosen_length=found.chosen_length,
        rejected_length=found.rejected_length,
    )
