"""Predictions that are shrunk towards their mean: corrections from calibration pairs, and trials that are compared by
predictions.

Source: Debiasing Machine Learning Predictions for Causal Inference Without Additional Ground Truth Data,
arXiv:2508.01341.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.action_values import ActionValueModel, ActionValues, TabularValues
from polopt.metrics.logged import LoggedDataError, LoggedDecisions
from polopt.metrics.metric import MetricError
from polopt.metrics.row_format import MetricDataError, RowFormat, column_names, number_in
from polopt.part import Part

Numbers = NDArray[np.float64]
COLUMNS = ("prediction", "target", "arm")
# Fewer calibration pairs give a correction that is mostly noise; slopes below the second multiply noise by 5 or more.
FEW_PAIRS, LOW_SLOPE = 100, 0.2


class ShrinkageCorrection(Part):
    """`correction(predicted, target, new)` returns the predictions `new` [M] with their shrinkage undone, as it shows
    in calibration pairs `predicted` and `target`, [N] each.

    affine: the correction of a mean is the mean of the corrections. A subclass writes `corrected` and `summary`.
    """

    affine: ClassVar[bool] = False

    def forward(self, predicted: Numbers, target: Numbers, new: Numbers) -> Numbers:
        """Corrects predictions.

        Raises:
            MetricError: fewer than 3 pairs, or targets or predictions that do not vary.
        """
        self.check(predicted, target)
        return self.corrected(predicted, target, new)

    def check(self, predicted: Numbers, target: Numbers) -> None:
        """Refuses calibration pairs without a correction."""
        if len(predicted) < 3:
            raise MetricError(f"{type(self).__name__}: needs at least 3 calibration pairs, found {len(predicted)}")
        for name, x in (("predictions", predicted), ("targets", target)):
            if np.ptp(x) == 0:
                raise MetricError(f"{type(self).__name__}: the calibration {name} are all {x[0]:g}; they must vary")

    def corrected(self, predicted: Numbers, target: Numbers, new: Numbers) -> Numbers:
        """Returns the corrected predictions [M], of pairs that were checked."""
        raise NotImplementedError

    def summary(self, predicted: Numbers, target: Numbers) -> dict[str, float]:
        """Returns the numbers that the calibration fitted, by name."""
        raise NotImplementedError

    def doubts(self, predicted: Numbers, target: Numbers, new: Numbers) -> list[str]:
        """Returns sentences on why the correction of `new` may be unreliable."""
        found = []
        if len(predicted) < FEW_PAIRS:
            found.append(f"{len(predicted)} calibration rows are few for a correction; give {FEW_PAIRS} or more")
        outside = float(((new < predicted.min()) | (new > predicted.max())).mean())
        if outside > 0:
            found.append(
                f"{outside:.2%} of the trial's predictions are outside those of the calibration rows, "
                f"{predicted.min():.4g} to {predicted.max():.4g}, where the correction is an extrapolation"
            )
        return found


class LinearShrinkage(ShrinkageCorrection):
    """Linear calibration correction: (p - m) / k, with p = k y + m the regression of the prediction on the target.

    Usual calibration regresses the other way, y on p, and leaves differences of arms as small as they were. min_slope:
    of k, below which there is no correction: its noise is multiplied by 1 / k.

    Raises:
        MetricError: k below min_slope.
    """

    affine = True
    min_slope: float = 0.02

    def setup(self) -> None:
        if not self.min_slope > 0:
            raise ValueError(f"metrics.LinearShrinkage: min_slope must be > 0, found {self.min_slope}")

    def slope(self, predicted: Numbers, target: Numbers) -> float:
        """Returns k = Cov(p, y) / Var(y)."""
        centred = target - target.mean()
        with np.errstate(invalid="ignore", divide="ignore"):  # a resample of one target has no slope
            return float(centred @ predicted / (centred @ centred))

    def check(self, predicted: Numbers, target: Numbers) -> None:
        super().check(predicted, target)
        if (k := self.slope(predicted, target)) < self.min_slope:
            raise MetricError(
                f"LinearShrinkage: the slope of the predictions on the targets is {k:.4g}, below min_slope = "
                f"{self.min_slope:g}: the predictions hold too little of the target to be corrected; train a better "
                "model, or check that both have one unit and direction"
            )

    def corrected(self, predicted: Numbers, target: Numbers, new: Numbers) -> Numbers:
        k = self.slope(predicted, target)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Numbers = target.mean() + (new - predicted.mean()) / k  # m = mean(p) - k mean(y)
        return found

    def summary(self, predicted: Numbers, target: Numbers) -> dict[str, float]:
        return {"slope": self.slope(predicted, target)}

    def doubts(self, predicted: Numbers, target: Numbers, new: Numbers) -> list[str]:
        found = super().doubts(predicted, target, new)
        if (k := self.slope(predicted, target)) < LOW_SLOPE:
            found.append(f"the slope {k:.3g} is low: the correction multiplies noise by {1 / k:.3g}")
        return found


class TweedieShrinkage(ShrinkageCorrection):
    """Tweedie's correction: p - sigma^2 f'(p) / f(p), with sigma the standard deviation of p - y over the calibration
    pairs and f a Gaussian kernel density of their predictions, of Scott's bandwidth n^(-1/5) std(p).

    It moves predictions away from where many are, as far as the shrinkage has moved them there. The score f' / f is
    computed at `points` places over the calibration predictions and interpolated; beyond them it has the value of the
    nearest end, as the tails of a kernel density are those of the kernel.
    """

    points: int = 256

    def setup(self) -> None:
        if self.points < 2:
            raise ValueError(f"metrics.TweedieShrinkage: points must be >= 2, found {self.points}")

    def noise(self, predicted: Numbers, target: Numbers) -> float:
        """Returns sigma."""
        return float(np.std(predicted - target))

    def score(self, predicted: Numbers, new: Numbers) -> Numbers:
        """Returns the derivative of log f at `new` [M]."""
        if np.ptp(predicted) == 0:  # a resample of one prediction has no density
            return np.zeros_like(new)
        centres = np.sort(predicted)
        width = float(centres.std(ddof=1)) * len(centres) ** -0.2
        places = np.linspace(centres[0], centres[-1], self.points)
        after = np.searchsorted(centres, places).clip(1, len(centres) - 1)
        nearest = np.minimum(np.abs(places - centres[after - 1]), np.abs(places - centres[after])) / width
        mass, pull = np.zeros(self.points), np.zeros(self.points)
        for at in range(0, len(centres), 4096):  # bounds the memory
            z = (centres[at : at + 4096] - places[:, None]) / width
            weight = np.exp((nearest[:, None] ** 2 - z**2) / 2)  # relative to the nearest kernel: none underflows
            mass += weight.sum(1)
            pull += (weight * z).sum(1)
        found: Numbers = np.interp(new, places, pull / mass / width)
        return found

    def corrected(self, predicted: Numbers, target: Numbers, new: Numbers) -> Numbers:
        found: Numbers = new - self.noise(predicted, target) ** 2 * self.score(predicted, new)
        return found

    def summary(self, predicted: Numbers, target: Numbers) -> dict[str, float]:
        return {"noise": self.noise(predicted, target)}


class CorrectedValues(ActionValueModel):
    """A model's action values with their shrinkage undone, for `DirectMethod` and `DoublyRobust`.

    The calibration pairs are the model's value of each logged action and its reward, so episodes must have one
    decision. A model that is fitted is fitted to every second episode, and calibrated on the others. correction: an
    affine one, so that v stays the mean of q.

    It helps where q is k times the expected reward and an offset, and rewards have little noise given state and action.
    Noise makes the slope too small by the share of the rewards' variance that q* explains, and the correction too
    large: a model that is unbiased given state and action must not be corrected.

    Raises:
        LoggedDataError: an episode of more than one decision, or, of a fitted model, fewer than 6 episodes.
        MetricError: as the correction.
    """

    model: ActionValueModel = TabularValues()
    correction: ShrinkageCorrection = LinearShrinkage()

    def setup(self) -> None:
        if not self.correction.affine:
            raise ValueError(
                "metrics.CorrectedValues: correction must be affine, as LinearShrinkage is, for a state's corrected "
                f"value to be the mean of its actions' corrected values; found {self.correction!r}"
            )

    @property
    def columns(self) -> frozenset[str]:
        return self.model.columns

    def forward(self, train: LoggedDecisions, test: LoggedDecisions, gamma: float) -> ActionValues:
        if (train.lengths > 1).any() or (test.lengths > 1).any():
            longest = int(max(train.lengths.max(), test.lengths.max()))
            raise LoggedDataError(
                f"CorrectedValues: calibrates on rewards, so episodes must have one decision, found {longest}; leave "
                "the correction out"
            )
        fit = calibration = train
        if self.model.fitted:
            if len(train) < 6:
                raise LoggedDataError(f"CorrectedValues: needs 6 episodes or more to split, found {len(train)}")
            fit, calibration = train[np.arange(0, len(train), 2)], train[np.arange(1, len(train), 2)]
        pairs = self.model(fit, calibration, gamma).q[:, 0], calibration.reward[:, 0]
        found = self.model(fit, test, gamma)
        q, v = (self.correction(*pairs, x.ravel()).reshape(x.shape) for x in (found.q, found.v))
        return ActionValues(np.where(test.mask, q, 0.0), np.where(test.mask, v, 0.0), found.unseen)


@dataclasses.dataclass(frozen=True, eq=False)
class PredictedTrial:
    """N predictions of an outcome; arrays or lists, [N] each.

    prediction: of the model. target: the outcome itself in calibration rows, NaN or None in the trial's rows. arm: name
    of the trial's arm, a treatment or a policy; empty or None in calibration rows.

    Raises:
        MetricDataError: arrays of different lengths or without rows, predictions that are not finite, or a row with
            both a target and an arm, or neither.
    """

    prediction: Any
    target: Any
    arm: Any

    def __post_init__(self) -> None:
        arm = np.array(["" if x is None else str(x) for x in np.atleast_1d(np.asarray(self.arm, object))])
        target = np.asarray(self.target, float)
        found = {"prediction": np.asarray(self.prediction, float), "target": target, "arm": arm}
        shapes = {name: x.shape for name, x in found.items()}
        if not len(arm) or any(shape != arm.shape for shape in shapes.values()):
            raise MetricDataError(f"PredictedTrial: all must be [N] with N >= 1, found {shapes}")
        for name, x in found.items():
            object.__setattr__(self, name, x)
        if not np.isfinite(found["prediction"]).all() or np.isinf(target).any():
            raise MetricDataError("PredictedTrial: prediction and target must be finite numbers")
        if (wrong := (arm != "") == ~np.isnan(target)).any():
            raise MetricDataError(
                f"PredictedTrial: row {int(wrong.argmax())} must have either a target, for calibration, or an arm, of "
                "the trial"
            )

    def __len__(self) -> int:
        return len(self.prediction)

    def __getitem__(self, rows: Sequence[int] | NDArray[Any]) -> PredictedTrial:
        return PredictedTrial(self.prediction[rows], self.target[rows], self.arm[rows])

    def calibration(self) -> tuple[Numbers, Numbers]:
        """Returns the predictions and targets of the calibration rows, in one order whatever that of the rows."""
        rows = self.arm == ""
        predicted, target = self.prediction[rows], self.target[rows]
        order = np.lexsort([target, predicted])
        return predicted[order], target[order]

    def arms(self) -> dict[str, Numbers]:
        """Returns the predictions of each arm, by name, in rising order."""
        return {name: np.sort(self.prediction[self.arm == name]) for name in np.unique(self.arm).tolist() if name}


def trial_row(row: Mapping[str, Any], columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Checks one row of a trial or of its calibration.

    Raises:
        MetricDataError: no finite prediction or target, or a row with both a target and an arm, or neither.
    """
    names = column_names(COLUMNS, columns)
    prediction = number_in(row, names["prediction"])
    target = number_in(row, names["target"], required=False)
    arm = row.get(names["arm"])
    named = arm is not None and str(arm).strip() != ""
    if named == (target is not None):
        raise MetricDataError(
            f"a row has either {names['target']!r}, for calibration, or {names['arm']!r}, of the trial; this one has "
            f"{'both' if named else 'neither'}"
        )
    return {"prediction": prediction, "target": target, "arm": str(arm).strip() if named else ""}


def predicted_trial(rows: Iterable[tuple[int, Mapping[str, Any]]]) -> PredictedTrial:
    """Assembles a trial.

    Raises:
        MetricDataError: as `PredictedTrial`.
    """
    found = [row for _, row in rows]
    return PredictedTrial(**{name: [row[name] for row in found] for name in COLUMNS})


PREDICTED_TRIAL_ROWS = RowFormat("predictions of a trial and of its calibration", COLUMNS, trial_row, predicted_trial)
