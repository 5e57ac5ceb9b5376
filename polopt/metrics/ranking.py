"""Preference pairs by their log-probabilities, and how policies rank them.

Source: Preference Learning Algorithms Do Not Learn Preference Rankings, arXiv:2405.19534.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in

Numbers = NDArray[np.float64]

LOGPS = ("chosen_logps", "rejected_logps", "ref_chosen_logps", "ref_rejected_logps")
COLUMNS = (*LOGPS, "chosen_length", "rejected_length", "agreement")


@dataclasses.dataclass(frozen=True, eq=False)
class RankedPairs:
    """N pairs of a preferred and a rejected answer to one prompt; numpy arrays, tensors or lists, [N] each.

    chosen_logps, rejected_logps: sums of the answer's log-probabilities under the policy, None where there is none yet.
    ref_chosen_logps, ref_rejected_logps: those under the reference policy. chosen_length, rejected_length: the numbers
    of tokens that the sums are over. agreement: the fraction of raters who prefer the preferred answer, in [0, 1].

    Raises:
        MetricDataError: arrays of different lengths or without pairs, one side alone, numbers that are not finite, sums
            above 0, lengths below 1, or agreements outside [0, 1].
    """

    chosen_logps: Any = None
    rejected_logps: Any = None
    ref_chosen_logps: Any = None
    ref_rejected_logps: Any = None
    chosen_length: Any = None
    rejected_length: Any = None
    agreement: Any = None

    def __post_init__(self) -> None:
        found = {name: _array(getattr(self, name)) for name in COLUMNS}
        given = {name: x for name, x in found.items() if x is not None}
        for one, other in zip(COLUMNS[:6:2], COLUMNS[1:6:2], strict=True):
            if (one in given) != (other in given):
                raise MetricDataError(f"RankedPairs: {one} and {other} come together; give both or none")
        if "chosen_logps" not in given and "ref_chosen_logps" not in given:
            raise MetricDataError("RankedPairs: give the log-probabilities of the policy, of the reference, or of both")
        shapes = {name: x.shape for name, x in given.items()}
        first = next(iter(shapes.values()))
        if len(first) != 1 or not first[0] or set(shapes.values()) != {first}:
            told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise MetricDataError(f"RankedPairs: all must be [N], N >= 1, found {told}")
        for name, x in given.items():
            _check_values(name, x)
            object.__setattr__(self, name, x)

    def __len__(self) -> int:
        return len(next(x for name in COLUMNS if (x := getattr(self, name)) is not None))

    def __getitem__(self, rows: Sequence[int] | NDArray[np.int64]) -> RankedPairs:
        found = {name: getattr(self, name) for name in COLUMNS}
        return RankedPairs(**{name: None if x is None else x[rows] for name, x in found.items()})

    @classmethod
    def of_experience(cls, experience: Experience, evaluation: Evaluation) -> RankedPairs:
        """Returns the pairs of a batch of `sampling.PreferencePairs`: groups of two rows with different outcomes.

        evaluation: of the policy; the reference's log-probabilities are the batch's, where it has them.

        Raises:
            MetricDataError: a group that is no pair.
        """
        experience.require({"outcome", "group"}, by="RankedPairs")
        order = torch.argsort(experience.group, stable=True).view(-1)
        index, _ = ops.group_index(experience.group)
        counts = index.bincount()
        if not len(counts) or (counts != 2).any():
            raise MetricDataError(
                f"RankedPairs: every group must be a pair, found groups of {sorted(set(counts.tolist()))}"
            )
        pairs = order.view(-1, 2)
        outcome = experience.outcome[pairs]
        if (outcome[:, 0] == outcome[:, 1]).any():
            raise MetricDataError("RankedPairs: the two rows of a pair must have different outcomes")
        best = outcome.argmax(1, keepdim=True)
        chosen, rejected = pairs.gather(1, best)[:, 0], pairs.gather(1, 1 - best)[:, 0]

        def both(x: Tensor) -> tuple[Numbers, Numbers]:
            return _numbers(x[chosen]), _numbers(x[rejected])

        mask = experience.mask
        logps = both(torch.where(mask, evaluation.logp.detach(), 0).double().sum(1))
        lengths = both(mask.sum(1))
        ref = experience.ref_logp
        refs = (None, None) if ref is None else both(torch.where(mask, ref, 0).double().sum(1))
        return cls(*logps, *refs, *lengths)

    def with_reference(self, reference: RankedPairs) -> RankedPairs:
        """Returns these pairs with the policy's log-probabilities of `reference` as those of the reference policy.

        Raises:
            MetricDataError: `reference` has no such, or other pairs, by their number or lengths.
        """
        for one, other in (
            (self.chosen_length, reference.chosen_length),
            (self.rejected_length, reference.rejected_length),
        ):
            same = one is None or other is None or np.array_equal(one, other)
            if len(self) != len(reference) or not same:
                raise MetricDataError("RankedPairs: the reference's pairs are others; evaluate both on the same pairs")
        if reference.chosen_logps is None:
            raise MetricDataError("RankedPairs: chosen_logps of the reference's pairs is missing")
        return dataclasses.replace(
            self, ref_chosen_logps=reference.chosen_logps, ref_rejected_logps=reference.rejected_logps
        )

    def margin(self, *, reference: bool = False, per_token: bool = False) -> Numbers:
        """Returns log pi(chosen) - log pi(rejected), [N]; per_token: of their means over tokens.

        Raises:
            MetricDataError: the policy's log-probabilities, or the lengths, are missing.
        """
        names = LOGPS[2:] if reference else LOGPS[:2]
        logps = [getattr(self, name) for name in names]
        lengths = [self.chosen_length, self.rejected_length] if per_token else [1.0, 1.0]
        for name, x in zip((*names, "chosen_length", "rejected_length"), (*logps, *lengths), strict=True):
            if x is None:
                raise MetricDataError(f"RankedPairs: {name} is missing, which this measure reads")
        result: Numbers = logps[0] / lengths[0] - logps[1] / lengths[1]
        return result


def _numbers(x: Tensor) -> Numbers:
    found: Numbers = x.detach().double().cpu().numpy()
    return found


def _array(x: Any) -> Numbers | None:
    if x is None:
        return None
    return _numbers(x) if isinstance(x, Tensor) else np.asarray(x, dtype=np.float64)


def _check_values(name: str, x: Numbers) -> None:
    if not np.isfinite(x).all():
        raise MetricDataError(f"RankedPairs: {name} must be finite, found {x[~np.isfinite(x)][0]}")
    if name in LOGPS and (x > 0).any():
        raise MetricDataError(f"RankedPairs: {name} must be sums of log-probabilities, <= 0, found {x.max():g}")
    if name.endswith("length") and (x < 1).any():
        raise MetricDataError(f"RankedPairs: {name} must be >= 1, found {x.min():g}")
    if name == "agreement" and ((x < 0) | (x > 1)).any():
        raise MetricDataError(f"RankedPairs: agreement must be in [0, 1], found {x[(x < 0) | (x > 1)][0]:g}")


def idealised_margin(reference_margin: ArrayLike, agreement: ArrayLike, beta: float, clip: float = 1e-3) -> Numbers:
    """Returns log pi*(chosen) / pi*(rejected), [N], of the optimum of the reward that Bradley-Terry raters have, with a
    KL of strength beta to the reference:

        log ref(chosen) / ref(rejected) + log(a / (1 - a)) / beta

    agreement: a [N], or one for all, in [clip, 1 - clip] at most: at 1 the optimum is infinite.

    Raises:
        ValueError: beta that is not positive, or clip outside (0, 0.5).
    """
    if not beta > 0 or not 0 < clip < 0.5:
        raise ValueError(f"idealised_margin: need beta > 0 and clip in (0, 0.5), found {beta} and {clip}")
    a = np.clip(np.asarray(agreement, float), clip, 1 - clip)
    found: Numbers = np.asarray(reference_margin, float) + (np.log(a) - np.log1p(-a)) / beta
    return found


def margin_at_loss(loss_of: Callable[[Tensor], Tensor], loss: float, largest: float = 1e4) -> tuple[float, float]:
    """Returns the least margin at which a convex pair loss is at most `loss`, and the margin of its minimum.

    Where the loss never falls so far, both are the margin of the minimum. The minimum of a loss that never rises is
    where it is least first, in float64; margins are searched in [-largest, largest].
    """

    ends, bottom = (-largest, largest), 0.0
    for _ in range(6):  # a thousandth of the range each time
        z = torch.linspace(*ends, 2001, dtype=torch.double)
        i = int(loss_of(z).argmin())
        bottom, ends = float(z[i]), (float(z[max(i - 1, 0)]), float(z[min(i + 1, 2000)]))
    if float(loss_of(torch.tensor(bottom, dtype=torch.double))) >= loss:
        return bottom, bottom
    ends = (-largest, bottom)
    for _ in range(6):
        z = torch.linspace(*ends, 2001, dtype=torch.double)
        i = int((loss_of(z) <= loss).int().argmax())
        ends = (float(z[max(i - 1, 0)]), float(z[i]))
    return ends[1], bottom


def pair_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, float]:
    """Checks a pair of a file: columns as the fields of `RankedPairs`, those of the reference as TRL writes them.

    Raises:
        MetricDataError: a value that is no number, or of no log-probability, length or agreement.
    """
    names = column_names(COLUMNS, columns)
    known = {name: number_in(row, names[name], required=False) for name in COLUMNS}
    found = {name: value for name, value in known.items() if value is not None}
    for name, value in found.items():
        _check_values(name, np.array([value]))
    if not found.keys() & set(LOGPS):
        raise MetricDataError(
            f"needs {names[LOGPS[0]]} and {names[LOGPS[1]]}, or {names[LOGPS[2]]} and {names[LOGPS[3]]}"
        )
    return found


def ranked_pairs(rows: Iterable[tuple[int, Mapping[str, float]]]) -> RankedPairs:
    """Assembles pairs from rows that have the same columns.

    Raises:
        MetricDataError: a column that only some rows have.
    """
    ordered = list(rows)
    if not ordered:
        raise MetricDataError("there are no pairs; give one a row")
    for name in COLUMNS:
        without = [number for number, row in ordered if name not in row]
        if without and len(without) < len(ordered):
            raise MetricDataError(f"row {min(without)}: {name} is empty; give it in every row or in none")
    names = [name for name in COLUMNS if name in ordered[0][1]]
    return RankedPairs(**{name: np.array([row[name] for _, row in ordered]) for name in names})


PAIR_ROWS = RowFormat("preference pairs with log-probabilities", COLUMNS, pair_row, ranked_pairs)
