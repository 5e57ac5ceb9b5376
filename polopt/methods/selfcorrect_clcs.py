"""Self-correction apart into confidence and critique: right answers that stay, and wrong ones that are fixed."""

from __future__ import annotations

import numpy as np

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric
from polopt.metrics.resampling import percentile_interval, resampled_means, share_interval
from polopt.metrics.revisions import REVISED_ROWS, RevisedAnswers, decompose


@method(
    paper=Paper(
        title="Confidence v.s. Critique: A Decomposition of Self-Correction Capability for LLMs",
        authors="Yang, Zhe and Zhang, Yichang and Wang, Yudong and Xu, Ziyao and Lin, Junyang and Sui, Zhifang",
        year=2024,
        arxiv="2412.19513",
    ),
    changes="Splits the accuracy after self-correction into how often a right answer stays right and how often a wrong "
    "one becomes right, and places it between two lines that depend on the first accuracy alone.",
    room="metrics",
    tier="proven",
)
def selfcorrect_clcs(*, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> SelfCorrection:
    """Of each question i, a_i is the probability that the first answer is right, k_i that it and the revised one are,
    and f_i that the revised one alone is. With means over questions,

        CL = mean(k) / mean(a),    CS = mean(f) / (1 - mean(a))
        A_1 = mean(a),    A_2 = mean(k) + mean(f) = A_1 CL + (1 - A_1) CS
        RSS = (A_2 - A_1^2) / (2 A_1 (1 - A_1))

    A_1 and A_2, the accuracies Acc1 and Acc2, are those before and after; CL is the confidence level and CS the
    critique score. The reference lines of a first accuracy are Acc1^2, of answers
    that are right only if two independent tries are, and 2 Acc1 - Acc1^2, if one of two is; RSS is the place of Acc2
    between them, 1/2 where nothing is gained. The upper line is no bound: a perfect reviser is above it.

    CL and CS are ratios of means, not means of ratios: a question counts for CL as often as it is answered right. Of
    sampled answers they are the authors' numbers, of ten samples a question; of choices whose probabilities are known
    all is exact. CL is undefined at Acc1 = 0, CS at 1, RSS at both. Intervals are bootstrap ones over questions, which
    the paper does not have; a share of 0 or 1 gets Wilson's.

    level, resamples, seed: of the intervals.

    The paper's training data for both abilities are made by `worlds.revision_dialogues`.
    """
    return SelfCorrection(level=level, resamples=resamples, seed=seed)


class SelfCorrection(Metric):
    """Acc1, Acc2, CL, CS and RSS of answers and their revisions; settings as those of the method `selfcorrect-clcs`.

    Values: these, `gain` = Acc2 - Acc1, `lower line` and `upper line`. Rows: `first` and `revised`, by question,
    in the order of their names.
    """

    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    rows = REVISED_ROWS

    def setup(self) -> None:
        if not 0 < self.level < 1 or self.resamples < 1:
            raise ValueError(
                "methods.selfcorrect_clcs.SelfCorrection: need level in (0, 1) and resamples >= 1, found "
                f"{self.level} and {self.resamples}"
            )

    def measure(self, data: RevisedAnswers) -> Measured:
        _, each = data.by_question()
        a, k, f = each.T
        found = decompose(*each.mean(0))
        drawn = resampled_means(each, self.resamples, self.seed)
        again = decompose(*drawn.T)
        shares = {
            "Acc1": share_interval(a, np.ones_like(a), self.level, self.resamples, self.seed),
            "Acc2": share_interval(k + f, np.ones_like(a), self.level, self.resamples, self.seed),
            "CL": share_interval(k, a, self.level, self.resamples, self.seed),
            "CS": share_interval(f, 1 - a, self.level, self.resamples, self.seed),
        }
        intervals: dict[str, Interval] = {name: x for name, x in shares.items() if x is not None}
        gain, rss = again.second - again.first, self.score(again.first, again.second)
        intervals["gain"] = percentile_interval(float(found.second - found.first), gain, self.level, len(a))
        score = float(self.score(found.first, found.second))
        if np.isfinite(score):
            intervals["RSS"] = percentile_interval(score, rss, self.level, len(a))
        values = {name: interval.estimate for name, interval in intervals.items()}
        first = float(found.first)
        values |= {"lower line": first**2, "upper line": 2 * first - first**2}
        return Measured(values, intervals, {"first": a, "revised": k + f}, self.doubts(first, len(a)))

    def score(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Returns RSS, not a number where the first accuracy is 0 or 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = 2 * first * (1 - first)
            return np.where(spread > 0, (second - first**2) / spread, np.nan)

    def doubts(self, first: float, questions: int) -> tuple[str, ...]:
        found = []
        if first in (0.0, 1.0):
            found.append(f"Acc1 is {first:g}: {'CL' if first == 0 else 'CS'} and RSS are undefined, and left out")
        if questions < 30:
            found.append(f"{questions} questions: bootstrap intervals are too narrow below about 30")
        return tuple(found)
