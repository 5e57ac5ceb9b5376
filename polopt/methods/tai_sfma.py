"""Set-Formalize-Measure-Act: a policy is released if the bounds of its measured scores meet stated requirements."""

from __future__ import annotations

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric
from polopt.metrics.requirements import REQUIREMENT_ROWS, GatedRequirements


@method(
    paper=Paper(
        title="The Journey to Trustworthy AI- Part 1: Pursuit of Pragmatic Frameworks",
        authors="Nasr-Azadani, Mohamad M and Chatelain, Jean-Luc",
        year=2024,
        arxiv="2403.15457",
    ),
    changes="Turns the attributes that a policy must have into thresholds on measured scores, and releases it only if "
    "the bounds of the scores meet them.",
    room="metrics",
    tier="reading",
)
def tai_sfma(*, corrected: bool = True) -> RequirementGate:
    """Requirement i: score m_i, threshold t_i, confidence level c_i. A score that must be at least t_i passes if

        L_i(1 - (1 - c_i) / (n - k + 1)) >= t_i

    with L_i(c) its lower bound of one-sided confidence c, and k the step of requirement i among the n whose scores are
    known, in the order of p_i / (1 - c_i): Holm's procedure, so that a score that misses its threshold is called a pass
    with probability at most max (1 - c_i), however many requirements there are. Of a score that must be at most t_i the
    upper bound is compared. Bounds of counts are Clopper and Pearson's, exact for independent trials; an interval is
    taken for Student's, or for the normal one where the number of units is unknown.

    A score that is missing, or has no interval, is unknown. A severity of high blocks the release unless it is a pass,
    medium blocks unless it is a pass or unknown, low never blocks. No requirements at all ship, with a warning.

    corrected: False compares each bound at its own level c_i, which keeps the probability of releasing a policy that
    misses a threshold of high severity, but not that of a wrong pass among several.

    The paper is a review: it proposes to set attributes and their thresholds, formalise them as metrics, measure and
    act. Bounds instead of means, Holm's procedure and severities are ours, and so is all of the formula. A policy whose
    score is above the threshold by less than the bound's width is blocked too: more trials, not a lower level, is the
    remedy. An interval whose own coverage is poor (few, skewed units; a rate near 0 or 1 without its counts) makes the
    gate as poor. Nothing here is a legal assessment: labels of risk are the user's words.
    """
    return RequirementGate(corrected=corrected)


class RequirementGate(Metric):
    """The release gate; the setting is that of the method `tai-sfma`.

    Values are `ship`, 1 unless a requirement blocks, the numbers of passes, fails and unknown ones, and each known
    score by its requirement's label; intervals: of the latter, two-sided, so that the end that the requirement compares
    is its bound.
    """

    corrected: bool = True

    rows = REQUIREMENT_ROWS

    def measure(self, data: GatedRequirements) -> Measured:
        report = data.report(corrected=self.corrected)
        statuses = [result.status for result in report.results]
        values = {
            "ship": float(report.verdict != "block"),
            "passed": float(statuses.count("pass")),
            "failed": float(statuses.count("fail")),
            "unknown": float(statuses.count("unknown")),
        }
        intervals: dict[str, Interval] = {}
        for result in report.results:
            if result.score is not None:
                values[result.requirement.label] = result.score.estimate
            if result.score is not None and result.bound is not None and result.level > 0.5:
                low, high = (result.score.bound(op, result.level) for op in (">=", "<="))
                n = result.score.n or 0
                intervals[result.requirement.label] = Interval(
                    result.score.estimate, low, high, 2 * result.level - 1, n
                )
        cautions = [
            f"{result.requirement.label} {'blocks' if result.blocks else 'does not block'}: {result.reason}"
            for result in report.results
            if result.status != "pass"
        ]
        return Measured(values, intervals, {}, (*cautions, *report.cautions))
