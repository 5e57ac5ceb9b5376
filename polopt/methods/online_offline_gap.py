"""The gap between online and offline preference optimisation: win rates at equal KL, by the source of the pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import FrontierCurves, Interval, Measured, Metric, MetricError, frontier, t_interval
from polopt.metrics.frontier import FRONTIER_ROWS

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="Understanding the Performance Gap between Online and Offline Alignment Algorithms",
        authors="Tang, Yunhao and Guo, Daniel Zhaohan and Zheng, Zeyu and Calandriello, Daniele and Cao, Yuan and "
        "Tarassov, Eugene and Munos, Rémi and Pires, Bernardo Ávila and Valko, Michal and Cheng, Yong and Dabney, Will",
        year=2024,
        arxiv="2405.08448",
    ),
    changes="Compares sources of preference pairs, under one loss, by the win rates that they reach within equal KLs.",
    room="metrics",
    tier="reading",
)
def online_offline_gap(
    *, versus: str = "offline", budgets: Sequence[float] = (1.0, 2.0, 4.0), level: float = 0.95
) -> FrontierGap:
    """Each source of pairs s has a frontier over the evaluations of a run,

        W_s(k) = max { win rate : KL(policy || reference) <= k },    G_s(k) = W_s(k) - W_versus(k)

    with straight lines between the points of the envelope, so that sources are compared at equal KL and not at equal
    steps. Beside the gaps at the budgets it measures their mean over the KLs that both reach, and each source's peak.

    versus: the source that the others are compared with.
    budgets: KLs in nats, for G_s(k).
    level: of the intervals over runs, of runs of one name paired.

    The paper's sources, all with the loss of `ipo`: pairs of a fixed data set (offline); pairs of the policy itself,
    labelled by a preference model that was fitted to that data set (online); the online run's pairs, shuffled and
    replayed; pairs of the best online policy as a data set; and imitation of the better one of two answers. The win
    rate is by a golden preference model, which labels the data set and is not the one that online training reads.
    `lab.pair_sources` is this protocol on problems whose KL and win rates are exact. With the KL from the policy's own
    answers and the win rate from a judge apart, the curves of any trainer can be measured.

    Deviations. The paper compares by eye, on scatter plots over settings and steps, fitted by curves; the envelope and
    its intervals are ours. The paper's text beyond summaries was not available to us.
    """
    return FrontierGap(versus=versus, budgets=tuple(budgets), level=level)


class FrontierGap(Metric):
    """Differences of frontiers; settings as those of the method `online-offline-gap`.

    Values, of each source s and the source v to compare with: `s - v at KL k`, `s - v, mean`; `s, peak` and `s, KL of
    the peak`; where the data have it, `s, accuracy at the peak`. With two runs or more they have intervals. Rows: the
    mean gap of each run.
    """

    versus: str = "offline"
    budgets: tuple[float, ...] = (1.0, 2.0, 4.0)
    level: float = 0.95

    rows = FRONTIER_ROWS

    def setup(self) -> None:
        where = "methods.online_offline_gap.FrontierGap"
        if not self.budgets or min(self.budgets) <= 0 or not np.isfinite(self.budgets).all():
            raise ValueError(f"{where}: budgets must be KLs above 0, found {self.budgets}")
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")

    def measure(self, curves: FrontierCurves) -> Measured:
        sources = sorted(set(curves.source.tolist()))
        if self.versus not in sources or len(sources) < 2:
            raise MetricError(
                f"online-offline-gap: needs the source {self.versus!r} and another one, found {', '.join(sources)}; "
                "set versus to the one to compare with"
            )
        each: dict[str, Numbers] = {}
        rows: dict[str, Numbers] = {}
        cautions: list[str] = []
        runs = {source: curves.runs(source) for source in sources}
        for source in sources:
            each |= self._peaks(source, runs[source].values())
            if source != self.versus:
                found, more = self._gaps(source, runs[source], runs[self.versus])
                each |= found
                cautions += more
                rows[f"{source} - {self.versus}, mean"] = found[f"{source} - {self.versus}, mean"]
        intervals: dict[str, Interval] = {
            name: t_interval(x, self.level) for name, x in each.items() if len(x) > 1 and np.isfinite(x).all()
        }
        if min(len(x) for x in runs.values()) < 2:
            cautions.append("a source has one run, so that nothing tells a gap from chance; train others and name runs")
        values = {name: float(x.mean()) for name, x in each.items() if np.isfinite(x).all()}
        return Measured(values, intervals, rows, tuple(dict.fromkeys(cautions)))

    def _gaps(
        self, source: str, ours: Mapping[str, FrontierCurves], theirs: Mapping[str, FrontierCurves]
    ) -> tuple[dict[str, Numbers], list[str]]:
        """Returns the gaps [runs] by name, and cautions; runs are paired by name if both have the same ones."""
        name, cautions = f"{source} - {self.versus}", []
        if ours.keys() != theirs.keys():
            cautions.append(f"the runs of {source} and {self.versus} differ; runs of {self.versus} were averaged")
        found: dict[str, list[float]] = {
            key: [] for key in (*(f"{name} at KL {k:g}" for k in self.budgets), f"{name}, mean")
        }
        for run, own in ours.items():
            others = [theirs[run]] if ours.keys() == theirs.keys() else list(theirs.values())
            short = min(own.kl.max(), *(x.kl.max() for x in others))
            begin = max(own.kl.min(), *(x.kl.min() for x in others))
            for k in self.budgets:
                found[f"{name} at KL {k:g}"].append(float(self._gap(own, others, np.array([k]))[0]))
                if short < k:
                    cautions.append(f"KL {k:g} was not reached by all of {source} and {self.versus}")
                if begin > k:
                    cautions.append(f"no policy of {source} or {self.versus} has a KL as small as {k:g}")
            if begin >= short:
                raise MetricError(f"online-offline-gap: the KLs of {source} and {self.versus} have no range in common")
            grid = np.linspace(begin, short, 1001)
            found[f"{name}, mean"].append(float(np.trapezoid(self._gap(own, others, grid), grid) / (short - begin)))
        return {key: np.array(values) for key, values in found.items()}, cautions

    @staticmethod
    def _gap(own: FrontierCurves, others: Sequence[FrontierCurves], at: Numbers) -> Numbers:
        theirs = np.mean([frontier(x.kl, x.win_rate, at) for x in others], axis=0)
        result: Numbers = frontier(own.kl, own.win_rate, at) - theirs
        return result

    @staticmethod
    def _peaks(source: str, runs: Collection[FrontierCurves]) -> dict[str, Numbers]:
        """Returns where each run's win rate is largest, [runs]: at the least KL of several."""
        best = [(x, int(x.win_rate.argmax())) for x in runs]
        found = {
            f"{source}, peak": np.array([x.win_rate[i] for x, i in best]),
            f"{source}, KL of the peak": np.array([x.kl[i] for x, i in best]),
        }
        accuracy = np.array([x.accuracy[i] for x, i in best])
        return found if np.isnan(accuracy).any() else found | {f"{source}, accuracy at the peak": accuracy}
