"""Revision over several rounds, of free answers and of choices: what drifts, what is repaired, and when to stop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, t_interval
from polopt.metrics.resampling import percentile_interval, resampled_means, share_interval, unit_means
from polopt.metrics.revision_rounds import ROUND_ROWS, RevisionChains, RevisionRounds

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="Self-Correcting Large Language Models: Generation vs. Multiple Choice",
        authors="Rahmani, Hossein A. and Krishna, Satyapriya and Wang, Xi and Naghiaei, Mohammadmehdi and "
        "Yilmaz, Emine",
        year=2025,
        arxiv="2511.09381",
    ),
    changes="Follows answers over rounds of revision, free ones and choices apart: accuracy, right answers that drift "
    "away, wrong ones that are repaired, and how much moves at all.",
    room="metrics",
    tier="reading",
)
def selfcorrect_gen_vs_mc(
    *, stop: int = 2, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> RevisionDynamics:
    """With r_k, 1 if the answer of round k is right and 0 if not, y_k the answer and s_k the options' probabilities,

        D_k = E[(1 - r_k) r_{k-1}] / E[r_{k-1}],    R_k = E[r_k (1 - r_{k-1})] / E[1 - r_{k-1}]
        A_k = E[r_k] = A_{k-1} (1 - D_k) + (1 - A_{k-1}) R_k
        S_k = P(y_k = y_{k-1}),    I_k = E[KL(s_k, s_{k-1})]
        F = CS / (1 - CL + CS)

    D is drift, R repair, A accuracy, S stability and I inertia; CL = 1 - D and CS = R over all rounds together. If they
    do not change from round to round, accuracy moves to the fixed point F, whatever it was at first, and its distance
    from there shrinks by the factor CL - CS in each round; where they change, the fixed point is no forecast.

    `ever correct` counts answers that were right in some round so far: nobody could choose them without the key.
    `stopped accuracy` is that of a rule that needs none: stop at the first answer that is the one before, or at round
    `stop`. Modes are compared on the items that both answer, and of these on those where both are right at first, or
    both wrong, as a mode that begins better has less to repair.

    The paper compares the modes by curves of these; a small I is our reading of its logit inertia, and the
    stopping rule and the fixed point are ours. Intervals are bootstrap ones over items; chains of one item are samples
    of it. A chain that ends early counts in its own rounds only.

    stop: the last round of the rule. level, resamples, seed: of the intervals.
    """
    return RevisionDynamics(stop=stop, level=level, resamples=resamples, seed=seed)


class RevisionDynamics(Metric):
    """Accuracy, drift and repair by round; settings as those of the method `selfcorrect-gen-vs-mc`.

    Values are named `MODE, accuracy@k` and so on, and `MODE less MODE, CL` of matched items. Rows: `MODE, correct`, of
    each chain's last answer.
    """

    stop: int = 2
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    rows = ROUND_ROWS

    def setup(self) -> None:
        if self.stop < 1 or not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                "methods.selfcorrect_gen_vs_mc.RevisionDynamics: need stop >= 1, level in (0, 1) and resamples >= 1, "
                f"found {self.stop}, {self.level} and {self.resamples}"
            )

    def measure(self, data: RevisionRounds) -> Measured:
        modes = data.modes()
        intervals: dict[str, Interval] = {}
        rows: dict[str, Numbers] = {}
        for mode, chains in modes.items():
            intervals |= {f"{mode}, {name}": found for name, found in self.of_mode(chains)}
            rows[f"{mode}, correct"] = last_of(chains.correct)
        for one, other in itertools.combinations(modes, 2):
            intervals |= {f"{one} less {other}, {n}": x for n, x in self.matched(modes[one], modes[other])}
        values = {name: found.estimate for name, found in intervals.items()}
        lengths = {mode: (~np.isnan(c.correct)).sum(1) for mode, c in modes.items()}
        cautions = [
            f"{mode}: chains of {x.min()} to {x.max()} rounds; those that went on differ from those that ended"
            for mode, x in lengths.items()
            if x.min() < x.max()
        ]
        return Measured(values, intervals, rows, tuple(cautions))

    def of_mode(self, chains: RevisionChains) -> Iterator[tuple[str, Interval]]:
        """Yields the numbers of one mode by name."""
        right, length = chains.correct, chains.correct.shape[1]
        ever = np.fmax.accumulate(right, 1)
        for k in range(length):
            there = ~np.isnan(right[:, k])
            found = {
                "accuracy": self.share(chains, right[:, k], there),
                "ever correct": self.share(chains, ever[:, k], there),
            }
            if k:
                found |= {
                    "drift": self.share(chains, 1 - right[:, k], there & (right[:, k - 1] == 1)),
                    "repair": self.share(chains, right[:, k], there & (right[:, k - 1] == 0)),
                    "stability": self.share(chains, chains.same[:, k], ~np.isnan(chains.same[:, k])),
                    "inertia": self.mean(chains, chains.divergence[:, k]),
                }
            found["margin"] = self.mean(chains, chains.margin[:, k])
            yield from ((f"{name}@{k}", interval) for name, interval in found.items() if interval is not None)
        if length > 1:
            yield from self.pooled(chains)
        if not np.isnan(chains.same).all():
            at = stop_rounds(chains, self.stop)
            chosen = right[np.arange(len(at)), at]
            yield "stopped accuracy", self.share(chains, chosen, np.ones(len(at), bool))  # type: ignore[misc]
            yield "stopped rounds", self.mean(chains, at.astype(float))  # type: ignore[misc]

    def pooled(self, chains: RevisionChains) -> Iterator[tuple[str, Interval]]:
        """Yields CL, CS and the fixed point of all rounds together."""
        each = masses(chains)
        for name, part, whole in (("CL", 0, 1), ("CS", 2, 3)):
            found = share_interval(each[:, part], each[:, whole], self.level, self.resamples, self.seed)
            if found is not None:
                yield name, found
        estimate, drawn = (fixed_point(x) for x in (each.mean(0), resampled_means(each, self.resamples, self.seed)))
        if np.isfinite(estimate):
            yield "fixed point", percentile_interval(float(estimate), drawn, self.level, len(each))

    def matched(self, one: RevisionChains, other: RevisionChains) -> Iterator[tuple[str, Interval]]:
        """Yields the differences of CL and of CS on the items where both modes begin alike."""
        first = [dict(zip(*_units(c.item, c.correct[:, 0]), strict=True)) for c in (one, other)]
        alike = sorted(item for item, a in first[0].items() if a in (0.0, 1.0) and first[1].get(item) == a)
        if not alike:
            return
        each = np.concatenate([masses(c, alike) for c in (one, other)], 1)
        drawn = resampled_means(each, self.resamples, self.seed)
        for name, at in (("CL", 0), ("CS", 2)):
            with np.errstate(divide="ignore", invalid="ignore"):
                found, again = (
                    x[..., at] / x[..., at + 1] - x[..., at + 4] / x[..., at + 5] for x in (each.mean(0), drawn)
                )
            if np.isfinite(found):
                yield f"{name} on matched items", percentile_interval(float(found), again, self.level, len(alike))

    def share(self, chains: RevisionChains, x: Numbers, among: NDArray[np.bool_]) -> Interval | None:
        """Returns the mean of x, 0 or 1, among some chains, by items."""
        table = np.stack([np.where(among, x, 0.0), among.astype(float)], 1)
        _, each = unit_means(chains.item, table)
        return share_interval(each[:, 0], each[:, 1], self.level, self.resamples, self.seed)

    def mean(self, chains: RevisionChains, x: Numbers) -> Interval | None:
        """Returns the mean of x over items where it is known."""
        known = ~np.isnan(x)
        return t_interval(_units(chains.item[known], x[known])[1], self.level) if known.any() else None


def _units(item: NDArray[np.str_], x: Numbers) -> tuple[list[str], list[float]]:
    names, each = unit_means(item, x[:, None])
    return names.tolist(), each[:, 0].tolist()


def masses(chains: RevisionChains, items: list[str] | None = None) -> Numbers:
    """Returns, for each item, the mean over its chains of the numbers of kept, right, repaired and wrong answers that
    were revised, [P, 4]. items: those to return, all of them in the order of their names if None."""
    before, after = chains.correct[:, :-1], chains.correct[:, 1:]
    revised = ~np.isnan(after)
    kinds = [
        (before == 1) & (after == 1),
        (before == 1) & revised,
        (before == 0) & (after == 1),
        (before == 0) & revised,
    ]
    names, each = unit_means(chains.item, np.stack([kind.sum(1) for kind in kinds], 1))
    return each if items is None else each[np.searchsorted(names, items)]


def fixed_point(each: Numbers) -> Numbers:
    """Returns CS / (1 - CL + CS) of kept, right, repaired and wrong answers [..., 4]; NaN where nothing moves."""
    with np.errstate(divide="ignore", invalid="ignore"):
        confidence, critique = each[..., 0] / each[..., 1], each[..., 2] / each[..., 3]
        found: Numbers = critique / (1 - confidence + critique)
    return found


def last_of(correct: Numbers) -> Numbers:
    """Returns the last known value of each chain, [n]."""
    at = (~np.isnan(correct)).sum(1) - 1
    found: Numbers = correct[np.arange(len(at)), at]
    return found


def stop_rounds(chains: RevisionChains, most: int) -> NDArray[np.int64]:
    """Returns the round at which each chain is stopped, [n]: the first whose answer is that of the round before, or
    `most`, or the chain's last one."""
    end = np.minimum((~np.isnan(chains.correct)).sum(1) - 1, most)
    same = chains.same == 1
    first = np.where(same.any(1), same.argmax(1), same.shape[1])
    found: NDArray[np.int64] = np.minimum(first, end)
    return found
