"""Kitchen-R: success of planner and controller alone and of both together, beside what their product predicts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, ResultTable, wilson
from polopt.metrics.hierarchy_episodes import EPISODE_ROWS, MODES, HierarchyEpisodes

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="Mind and Motion Aligned: A Joint Evaluation IsaacSim Benchmark for Task Planning and Low-Level Policies "
        "in Mobile Manipulation",
        authors="Kachaev, Nikita and Spiridonov, Andrei and Gorodetsky, Andrey and Muravyev, Kirill and "
        "Oskolkov, Nikita and Narendra, Aditya and Shakhuro, Vlad and Makarov, Dmitry and Panov, Aleksandr I. and "
        "Fedotova, Polina and Kovalev, Alexey K.",
        year=2025,
        arxiv="2508.15663",
    ),
    changes="Measures a planner alone, a controller alone and both together, and which of the two the failures are of.",
    room="metrics",
    tier="reading",
)
def kitchen_r(*, resamples: int = 1000, level: float = 0.95) -> HierarchyEvaluation:
    """Of the planner's rate of right plans q, the rate c with which a skill succeeds, and plans of L skills, whose
    failures are independent, the joint rate of right plans that are carried out is

        J = q mean(c^L),    joint failures = wrong plans + right plans that the controller failed,    J <= q

    with the mean over the joint episodes. A measured rate that differs from the product by its interval is flagged:
    failures are correlated, as where hard scenes spoil plans and skills alike. Two quotients part it, that of the
    controller's own success in whole plans to c^L, of skills that fail together, and the measured rate's to q times
    it, of planner and controller. An episode whose plan is wrong and whose goal is reached is lucky, and counted apart.

    resamples, level: of the intervals, a bootstrap over episodes, which draws rows of one episode together; shares of
    the joint episodes have Wilson's.

    An exact match with a reference punishes other plans that are as good: give `plan_correct` by carrying the plan out
    with skills that never fail, where that can be done.

    Deviations. The paper has the three modes; the product, the attribution, the flag and the intervals are ours. Its
    error of trajectories is left out, as it is of one representation of motion. Of its metrics of planning the exact
    match alone was known to us.
    """
    return HierarchyEvaluation(resamples=resamples, level=level)


class HierarchyEvaluation(Metric):
    """Rates of both levels, their product, and attribution of failures; settings as those of the method `kitchen-r`.

    Values: `plan`, `skill`, `whole plan` (all skills of an episode), `joint` (the goal is reached), `joint, right plan`
    (it is, by a right plan); `product`; `joint, right plan - product`, `whole plan / skills`, `joint / levels`; and
    counts, which add up to the joint episodes: `succeeded`, `plan wrong`, `control failed`, `lucky`.
    """

    resamples: int = 1000
    level: float = 0.95

    rows = EPISODE_ROWS

    def setup(self) -> None:
        where = "methods.kitchen_r.HierarchyEvaluation"
        if self.resamples < 20:
            raise ValueError(f"{where}: resamples must be 20 or more, found {self.resamples}")
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")

    def measure(self, data: HierarchyEpisodes) -> Measured:
        """Measures all modes.

        Raises:
            MetricError: a mode without episodes.
        """
        missing = [mode for mode in MODES if not (data.mode == mode).any()]
        if missing:
            raise MetricError(f"kitchen-r: no episodes of mode {', '.join(missing)}; it compares all three")
        samples = self.rates(data, data.resampled(self.resamples, 0))
        counts = {mode: int((data.mode == mode).sum()) for mode in MODES}
        size = {"plan": counts["planner"], "skill": counts["controller"], "whole plan": counts["controller"]}
        intervals = {name: self._interval(x, size.get(name, counts["joint"])) for name, x in samples.items()}
        joint = data.mode == "joint"
        plan, success = data.plan_correct[joint] == 1, data.success[joint] == 1
        kinds = self.attribution(plan, success)
        n = counts["joint"]
        shares = {f"share {name}": wilson(count, n, self.level) for name, count in kinds.items()}
        exact = {
            "plan": data.plan_correct[data.mode == "planner"],
            "joint": success,
            "joint, right plan": plan & success,
        }
        intervals |= {name: wilson(float(x.sum()), len(x), self.level) for name, x in exact.items()}
        intervals |= shares
        values = {name: x.estimate for name, x in intervals.items()}
        values |= {name: float(count) for name, count in kinds.items()}
        rows = {"right plan": plan.astype(float), "success": success.astype(float)}
        return Measured(
            values, intervals, rows, tuple(_cautions(intervals)), tuple(self._tables(intervals, kinds, counts))
        )

    def rates(self, data: HierarchyEpisodes, counts: Numbers) -> dict[str, Numbers]:
        """Returns rates and what is computed from them, [R] each, from how often each row counts, [R, N]."""

        def mean(values: Numbers, rows: NDArray[np.bool_]) -> Numbers:
            weights = counts[:, rows]
            found: Numbers = weights @ values[rows] / weights.sum(-1)
            return found

        planner, controller, joint = (data.mode == mode for mode in MODES)
        q = mean(data.plan_correct, planner)
        skill = mean(data.skills, controller) / mean(data.steps, controller)
        whole = mean((data.skills == data.steps).astype(float), controller)
        right = mean(data.plan_correct * data.success, joint)
        chained, own = (self.chain(skill, data.steps[rows], counts[:, rows]) for rows in (joint, controller))
        with np.errstate(divide="ignore", invalid="ignore"):
            together = whole / own
            return {
                "plan": q,
                "skill": skill,
                "whole plan": whole,
                "joint": mean(data.success, joint),
                "joint, right plan": right,
                "product": q * chained,
                "joint, right plan - product": right - q * chained,
                "whole plan / skills": together,
                "joint / levels": right / (q * chained * together),
            }

    @staticmethod
    def chain(skill: Numbers, steps: Numbers, counts: Numbers) -> Numbers:
        """Returns the mean of c^L over episodes of L skills [n], for rates c [R] and counts of the episodes [R, n]."""
        found: Numbers = (counts * skill[:, None] ** steps).sum(-1) / counts.sum(-1)
        return found

    @staticmethod
    def attribution(plan: NDArray[np.bool_], success: NDArray[np.bool_]) -> dict[str, int]:
        """Returns how many joint episodes, of right plans [n] and goals that were reached [n], are of each kind."""
        return {
            "succeeded": int((plan & success).sum()),
            "plan wrong": int((~plan & ~success).sum()),
            "control failed": int((plan & ~success).sum()),
            "lucky": int((~plan & success).sum()),
        }

    def _interval(self, samples: Numbers, n: int) -> Interval:
        known = samples[np.isfinite(samples)]
        low, high = np.quantile(known, [(1 - self.level) / 2, (1 + self.level) / 2]) if len(known) else (np.nan, np.nan)
        return Interval(float(samples[0]), float(low), float(high), self.level, n)

    def _tables(
        self, intervals: dict[str, Interval], kinds: dict[str, int], counts: dict[str, int]
    ) -> tuple[ResultTable, ResultTable]:
        lines = (
            ("planner alone, right plan", "plan", "planner"),
            ("controller alone, a skill", "skill", "controller"),
            ("controller alone, whole plans", "whole plan", "controller"),
            ("together, goal reached", "joint", "joint"),
            ("together, by a right plan", "joint, right plan", "joint"),
            ("product of the levels", "product", ""),
            ("together, by a right plan, less the product", "joint, right plan - product", ""),
        )
        levels = tuple(
            (label, str(counts[mode]) if mode else "", f"{x.estimate:.1%}", f"{x.low:.1%} to {x.high:.1%}")
            for label, name, mode in lines
            for x in [intervals[name]]
        )
        shares = tuple(
            (name, str(count), f"{x.estimate:.1%}", f"{x.low:.1%} to {x.high:.1%}")
            for name, count in kinds.items()
            for x in [intervals[f"share {name}"]]
        )
        worst = max(("plan wrong", "control failed"), key=lambda name: kinds[name])
        end = f"{self.level:.0%} interval"
        said = f"Most failures: {worst}." if kinds["plan wrong"] != kinds["control failed"] else ""
        return (
            ResultTable("Levels", ("", "episodes", "rate", end), levels),
            ResultTable("Joint episodes", ("", "episodes", "share", end), shares, said),
        )


def _cautions(intervals: dict[str, Interval]) -> list[str]:
    """Returns sentences on correlated failures and on luck."""
    found = []
    off = intervals["joint, right plan - product"]
    if not off.low <= 0 <= off.high:
        more = "more" if off.estimate > 0 else "less"
        found.append(
            f"failures are correlated: right plans are carried out {more} often than the product of the levels "
            f"predicts, by {abs(off.estimate):.1%} ({off.low:+.1%} to {off.high:+.1%}), so that the levels' own "
            "rates do not predict the whole"
        )
    for name, what in (
        ("whole plan / skills", "skills of an episode"),
        ("joint / levels", "planner and controller"),
    ):
        ratio = intervals[name]
        if ratio.low > 1 or ratio.high < 1:
            found.append(f"{what} fail together" if ratio.low > 1 else f"{what} succeed together less than by chance")
    if intervals["share lucky"].low > 0.02:
        found.append("many goals are reached by plans that are called wrong: the reference may not be the only one")
    return found
