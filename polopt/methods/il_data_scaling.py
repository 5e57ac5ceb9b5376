"""Data scaling laws of imitation learning: how success on unseen environments grows, and what to collect next."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, ResultTable
from polopt.metrics.collected_data import DATA_ROWS, CollectedData
from polopt.metrics.power_law import PowerLaw, fit_power_law, log_correlation

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="Data Scaling Laws in Imitation Learning for Robotic Manipulation",
        authors="Hu, Yingdong and Lin, Fanqi and Sheng, Pingyue and Wen, Chuan and You, Jiacheng and Gao, Yang",
        year=2024,
        arxiv="2410.18647",
    ),
    changes="Fits power laws of the gap to perfect success over environments, objects and demonstrations, and compares "
    "what doubling each of them would gain.",
    room="metrics",
    tier="reading",
)
def il_data_scaling(
    *,
    floor: bool = False,
    target: float = 0.9,
    least_gain: float = 0.02,
    resamples: int = 500,
    level: float = 0.95,
) -> DataScaling:
    """Of policies trained on N environments, objects, or demonstrations of each, the rest being equal, and tried where
    the data are not from, the gap to perfect success

        1 - S(N) = c + b N^a,    a < 0,    c = 0 unless floor

    fitted by the likelihood of binomial successes. Beside it Pearson's r of log N and log(1 - S). Where environments
    and objects grow together, each with an object of its own, N is the number of pairs.

    What to collect next: doubling the environments, the objects or the demonstrations of each doubles the
    demonstrations, so that the gains S(2N) - S(N), at the largest N of each curve, can be compared; curves that end at
    different data answer for those. Where the gain is below least_gain by its interval, the data are saturated.

    floor: whether a part c of the gap stays; then curves need 4 sizes.
    target: the success rate of whose N the estimate is printed.
    least_gain: of a doubling that is worth its demonstrations.
    resamples, level: of the intervals, a parametric bootstrap: successes are drawn anew from the fitted rates.

    The interval holds if trials are independent and the law is right; whether it goes on beyond the largest N no
    interval has. With the same environments in all trials their luck is shared, and intervals are too short.

    Deviations. The paper fits a straight line to the logarithms, which points of success 0 or 1 break, and has no
    intervals; the likelihood, the intervals, the floor and the comparison of doublings are ours. The paper's
    recommendation, many environments with one object and some 50 demonstrations each, is a result and no formula.
    """
    return DataScaling(floor=floor, target=target, least_gain=least_gain, resamples=resamples, level=level)


class DataScaling(Metric):
    """Power laws of the success gap; settings as those of the method `il-data-scaling`.

    Values, of each curve C of the data: `C, exponent`, `C, factor`, `C, correlation`, `C, success` at its largest size,
    `C, gain` of a doubling, `C, size for TARGET` if the law reaches it, and `C, floor`.
    """

    floor: bool = False
    target: float = 0.9
    least_gain: float = 0.02
    resamples: int = 500
    level: float = 0.95

    rows = DATA_ROWS

    def setup(self) -> None:
        where = "methods.il_data_scaling.DataScaling"
        for name in ("target", "level"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{where}: {name} must be in (0, 1), found {getattr(self, name)}")
        if self.resamples < 20:
            raise ValueError(f"{where}: resamples must be 20 or more, found {self.resamples}")

    def measure(self, data: CollectedData) -> Measured:
        """Measures every curve.

        Raises:
            MetricError: no curve has enough sizes, or all its trials ended alike.
        """
        least = 4 if self.floor else 3
        curves = data.curves(least)
        if not curves:
            raise MetricError(
                f"il-data-scaling: needs {least} sizes of environments, objects or demonstrations while the others "
                "stay the same; train on more subsets of the data"
            )
        values: dict[str, float] = {}
        intervals: dict[str, Interval] = {}
        gains: dict[str, Numbers] = {}
        for stream, (name, (size, rows)) in enumerate(curves.items()):
            failed = data.trials[rows] - data.successes[rows]
            if failed.sum() in (0, data.trials[rows].sum()):
                ended = "failed" if failed.any() else "succeeded"
                raise MetricError(f"il-data-scaling: all trials of {name} {ended}, so that no law can be fitted")
            found = self.curve(size, failed, data.trials[rows], stream)
            gains[name] = found["gain"]
            for key, samples in found.items():
                if np.isfinite(samples[0]):
                    intervals[f"{name}, {key}"] = self._interval(samples, int(data.trials[rows].sum()))
                    values[f"{name}, {key}"] = float(samples[0])
        table, cautions = self._advice(curves, intervals, gains)
        return Measured(values, intervals, {}, tuple(cautions), (table,))

    def curve(self, size: Numbers, failures: Numbers, trials: Numbers, stream: int = 0) -> dict[str, Numbers]:
        """Returns the numbers of a curve, [1 + resamples] each, the first of the data and the others of the bootstrap.

        size, failures, trials: [n]. stream: of the bootstrap; those of different streams are independent.
        """
        law = fit_power_law(size, failures, trials, floor=self.floor)
        draw = np.random.default_rng(stream)
        drawn = draw.binomial(trials.astype(int), law.gap(size), (self.resamples, len(size)))
        drawn[drawn.sum(-1) == 0, 0] = 1  # a law of no failures at all has no exponent
        laws = fit_power_law(size, drawn, trials, floor=self.floor)
        both = PowerLaw(*(np.append(getattr(law, x), getattr(laws, x)) for x in ("factor", "exponent", "floor")))
        gap, doubled = both.gap(size.max()), both.gap(2 * size.max())
        with np.errstate(all="ignore"):
            reaching = ((1 - self.target - both.floor) / both.factor) ** (1 / both.exponent)
        found = {
            "exponent": both.exponent,
            "factor": both.factor,
            "correlation": log_correlation(size, np.concatenate([failures[None], drawn]) / trials),
            "success": 1 - gap,
            "gain": gap - doubled,
            f"size for {self.target:g}": np.where(both.exponent < 0, np.nan_to_num(reaching, nan=np.inf), np.inf),
        }
        return found | ({"floor": both.floor} if self.floor else {})

    def _interval(self, samples: Numbers, n: int) -> Interval:
        known = samples[1:][~np.isnan(samples[1:])]
        low, high = np.quantile(known, [(1 - self.level) / 2, (1 + self.level) / 2], method="closest_observation")
        return Interval(float(samples[0]), float(low), float(high), self.level, n)

    def _advice(
        self,
        curves: Mapping[str, tuple[Numbers, NDArray[np.int_]]],
        intervals: Mapping[str, Interval],
        gains: Mapping[str, Numbers],
    ) -> tuple[ResultTable, list[str]]:
        """Returns the table of the curves, whose caption has what to collect next, and cautions."""
        rows, cautions = [], []
        for name, (size, _) in curves.items():
            of = {key.removeprefix(f"{name}, "): x for key, x in intervals.items() if key.startswith(f"{name}, ")}
            exponent, reach = of["exponent"], of.get(f"size for {self.target:g}")
            rows.append(
                (
                    name,
                    f"{size.min():g} to {size.max():g}",
                    f"{exponent.estimate:.2f} [{exponent.low:.2f}, {exponent.high:.2f}]",
                    f"{of['correlation'].estimate:.2f}" if "correlation" in of else "",
                    _share(of["success"]),
                    _share(of["gain"], "+"),
                    "out of reach" if reach is None else f"{reach.estimate:.3g} [{reach.low:.3g}, {reach.high:.3g}]",
                )
            )
            if exponent.high >= 0 and of["gain"].high >= self.least_gain:
                cautions.append(f"whether {name} matter is not clear from these trials; run more of them")
        columns = (
            "what grows",
            "sizes",
            "exponent",
            "r",
            "success, %",
            "a doubling adds",
            f"size for {self.target:.0%}",
        )
        return ResultTable("Scaling laws", columns, tuple(rows), self.advice(intervals, gains)), cautions

    def advice(self, intervals: Mapping[str, Interval], gains: Mapping[str, Numbers]) -> str:
        """Returns what to collect next, in sentences, from the gains of doublings [1 + resamples] by curve."""
        saturated = [name for name in gains if intervals[f"{name}, gain"].high < self.least_gain]
        order = sorted(gains, key=lambda name: -gains[name][0])
        said = [f"Saturated: {', '.join(saturated)}."] if saturated else []
        if order[0] in saturated:
            return " ".join([*said, "More of these data will not help much; change the policy or the data's kind."])
        ahead = [x for x in order[1:] if self._interval(gains[order[0]] - gains[x], 1).low > 0]
        rivals = [x for x in order[1:] if x not in ahead]
        if rivals:
            said.append(f"Collect more {order[0]}, or {', or '.join(rivals)}: their gains were not separated.")
        else:
            said.append(f"Collect more {order[0]}" + (f" before {', '.join(ahead)}." if ahead else "."))
        return " ".join(said)


def _share(x: Interval, sign: str = "") -> str:
    return f"{100 * x.estimate:{sign}.1f} [{100 * x.low:{sign}.1f}, {100 * x.high:{sign}.1f}]"
