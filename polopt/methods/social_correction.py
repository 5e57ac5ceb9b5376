"""Responses to corrections: which reply corrects most often, with a limit on how often it makes things worse."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import DoublyRobust, Interval, LoggedDecisions, LoggedValues, Measured, Metric, MetricError, wilson
from polopt.metrics.replies import OUTCOMES, REPLY_ROWS, LoggedReplies

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="Corrective or Backfire: Characterizing and Predicting User Response to Social Correction",
        authors="He, Bing and Ma, Yingchen and Ahamad, Mustaque and Kumar, Srijan",
        year=2024,
        arxiv="2403.04852",
    ),
    changes="Responses to a correction are of three kinds, one of which is harm: the reply is chosen from a log, with "
    "its propensities, under a limit on harm.",
    room="metrics",
    tier="reading",
)
def social_correction(
    *, backfire: float = 0.05, weight: float = 1.0, margin: float = 1.0, shrink: float = 5.0, level: float = 0.95
) -> ReplyPolicy:
    """Of each context x and reply a, C and B are the probabilities of a corrective response and of one that backfires,
    q a model's, and, with y a logged outcome and p the probability of its reply,

        C(x, a) = q(x, a) + mean_{rows of x} 1[reply = a] / p (y - q(x, a)),    B alike, s its standard error
        policy = argmax_pi sum_x P(x) sum_a pi(a | x) (C(x, a) - weight B(x, a))
        where sum_x P(x) sum_a pi(a | x) (B(x, a) + margin s(x, a)) <= backfire

    The estimate is doubly robust: right with the true p whatever the model, although the replies were chosen by what
    the context does not hold. The policy is a classifier of contexts, with these estimates for weights; the program is
    linear, and at most one context gets a mixture of replies. Replies that the log never has in a context are not
    given there. If nothing meets the limit, the replies that backfire least are given, with a caution.

    The paper is a study of responses and of their prediction; it has no policy. The learner is ours, and so is the
    limit, without which this would be a machine for persuasion. Its abstract alone was seen. Values of
    the learned policy are of halves of the log that it was not learned from; where harm is rare their intervals are a
    little short.

    backfire: the limit. weight: of harm in the objective. margin: in standard errors, how cautious the limit is.
    shrink: rows that the model adds to each context's, of the reply's mean in all contexts. level: of the intervals.
    """
    return ReplyPolicy(backfire=backfire, weight=weight, margin=margin, shrink=shrink, level=level)


@dataclasses.dataclass(frozen=True, eq=False)
class LearnedReplies:
    """A policy over X contexts and A replies.

    contexts, replies: names. probability: [X, A]. corrective, harmful: [X, A] the model's probabilities. feasible:
    whether the limit is met.
    """

    contexts: list[str]
    replies: list[str]
    probability: Numbers
    corrective: Numbers
    harmful: Numbers
    feasible: bool

    def table(self) -> dict[str, dict[str, float]]:
        """Returns the probabilities of each context's replies, without those that are 0."""
        return {
            context: {a: float(p) for a, p in zip(self.replies, row, strict=True) if p > 1e-9}
            for context, row in zip(self.contexts, self.probability, strict=True)
        }


class ReplyPolicy(Metric):
    """Learns replies from a log and estimates what they do; settings as those of the method `social-correction`.

    Values: `logged corrective`, `logged neutral`, `logged backfire`; `learned corrective`, `learned backfire` and
    `learned net` = corrective - weight backfire, of the policy; `logged net`. Rows: none. `learn(data)` returns the
    policy of all rows.
    """

    backfire: float = 0.05
    weight: float = 1.0
    margin: float = 1.0
    shrink: float = 5.0
    level: float = 0.95
    seed: int = 0

    rows = REPLY_ROWS

    def setup(self) -> None:
        where = "methods.social_correction.ReplyPolicy"
        if not 0 <= self.backfire <= 1 or not 0 < self.level < 1:
            raise ValueError(f"{where}: need backfire in [0, 1], level in (0, 1), found {self.backfire}, {self.level}")
        if min(self.weight, self.margin) < 0 or self.shrink <= 0:
            raise ValueError(
                f"{where}: need weight and margin >= 0 and shrink > 0, found "
                f"{self.weight}, {self.margin}, {self.shrink}"
            )

    def measure(self, data: LoggedReplies) -> Measured:
        """Measures the log, and the policy that each half gives on the other one.

        Raises:
            MetricError: fewer than four rows.
        """
        if len(data) < 4:
            raise MetricError(f"social-correction: needs 4 rows or more to learn and to measure, found {len(data)}")
        intervals: dict[str, Interval] = {
            f"logged {name}": wilson(float((data.outcome == name).sum()), len(data), self.level) for name in OUTCOMES
        }
        learned = {name: self.held_out(data, name) for name in ("corrective", "backfire", "net")}
        intervals |= {f"learned {name}": found for name, (found, _) in learned.items()}
        values = {name: found.estimate for name, found in intervals.items()}
        values["logged net"] = values["logged corrective"] - self.weight * values["logged backfire"]
        cautions = list(learned["net"][1])
        if not all(self.learn(data[half]).feasible for half in data.halves(self.seed)):
            cautions.append(
                f"no policy keeps backfire and its margin within {self.backfire:g}: the replies that backfire "
                "least are given"
            )
        if intervals["learned backfire"].high > self.backfire:
            cautions.append(f"the log does not show that backfire is at most {self.backfire:g}")
        return Measured(values, intervals, {}, tuple(cautions))

    def held_out(self, data: LoggedReplies, name: str) -> tuple[Interval, tuple[str, ...]]:
        """Returns the doubly robust estimate of an outcome's rate, or of the net, under the policy of the other half,
        and cautions."""
        halves = data.halves(self.seed)
        cells = np.zeros((5, len(data)))  # reward, behaviour, target, q and v
        for own, other in (halves, halves[::-1]):
            policy = self.learn(data[other])
            context = _places(data.context[own], policy.contexts)
            reply = _places(data.reply[own], policy.replies)
            # A context that was not seen gets the replies of the log.
            known, there = context >= 0, (context >= 0) & (reply >= 0)
            model = {"corrective": policy.corrective, "backfire": policy.harmful}
            model["net"] = policy.corrective - self.weight * policy.harmful
            p, q = data.probability[own], model[name]
            cells[0, own] = self.rewards(data[own], name)
            cells[1, own] = p
            cells[2, own] = np.where(known, np.where(there, policy.probability[context, reply], 0.0), p)
            cells[3, own] = np.where(there, q[context, reply], 0.0)
            cells[4, own] = np.where(known, (policy.probability * q).sum(1)[context], 0.0)
        with np.errstate(divide="ignore"):
            reward, own_logp, target, q, v = cells[0], np.log(cells[1]), np.log(cells[2]), cells[3], cells[4]
        table = LoggedDecisions(
            np.ones(len(data), np.int64),
            reward[:, None],
            own_logp[:, None],
            target[:, None],
            q=q[:, None],
            v=v[:, None],
        )
        found = DoublyRobust(model=LoggedValues(), level=self.level)(table)
        return found.intervals["estimate"], found.cautions

    def rewards(self, data: LoggedReplies, name: str) -> Numbers:
        """Returns whether each response is of a kind, [N], or its net."""
        if name == "net":
            return self.rewards(data, "corrective") - self.weight * self.rewards(data, "backfire")
        found: Numbers = (data.outcome == name).astype(float)
        return found

    def learn(self, data: LoggedReplies) -> LearnedReplies:
        """Learns the policy from all rows."""
        contexts, x = np.unique(data.context, return_inverse=True)
        replies, a = np.unique(data.reply, return_inverse=True)
        shape = (len(contexts), len(replies))
        share = np.bincount(x.ravel(), minlength=shape[0]) / len(data)
        count = np.zeros(shape)
        np.add.at(count, (x.ravel(), a.ravel()), 1.0)
        estimates, models = [], []
        for name in ("corrective", "backfire"):
            y = self.rewards(data, name)
            models.append(self.model(x.ravel(), a.ravel(), y, count))
            estimates.append(doubly_robust(x.ravel(), a.ravel(), y, data.probability, models[-1]))
        (good, _), (bad, error) = estimates
        upper = bad + self.margin * error
        probability, feasible = constrained(good - self.weight * bad, upper, share, count > 0, self.backfire)
        return LearnedReplies(contexts.tolist(), replies.tolist(), probability, models[0], models[1], feasible)

    def model(self, x: NDArray[np.int64], a: NDArray[np.int64], y: Numbers, count: Numbers) -> Numbers:
        """Returns the shrunken mean outcome of each context and reply, [X, A]."""
        sums = np.zeros_like(count)
        np.add.at(sums, (x, a), y)
        overall = (sums.sum(0) + y.mean()) / (count.sum(0) + 1)
        found: Numbers = (sums + self.shrink * overall) / (count + self.shrink)
        return found


def doubly_robust(
    x: NDArray[np.int64], a: NDArray[np.int64], y: Numbers, probability: Numbers, model: Numbers
) -> tuple[Numbers, Numbers]:
    """Returns the doubly robust means of y by context and reply, and their standard errors, [X, A] each."""
    rows = np.bincount(x, minlength=len(model))[:, None].astype(float)
    term = (y - model[x, a]) / probability
    first, second = np.zeros_like(model), np.zeros_like(model)
    np.add.at(first, (x, a), term)
    np.add.at(second, (x, a), term**2)
    mean = first / rows
    error = np.sqrt(np.maximum(second / rows - mean**2, 0.0) / rows)
    return model + mean, error


def constrained(
    gain: Numbers, harm: Numbers, share: Numbers, allowed: NDArray[np.bool_], limit: float
) -> tuple[Numbers, bool]:
    """Solves max sum share pi gain with sum share pi harm <= limit over policies [X, A]; returns the policy, and
    whether the limit can be met. If it cannot, harm is minimised."""
    from scipy.optimize import linprog

    X, A = gain.shape
    one = np.kron(np.eye(X), np.ones(A))
    bounds = [(0.0, 1.0 if ok else 0.0) for ok in allowed.ravel()]
    weights = share[:, None]
    found = linprog(
        -(weights * gain).ravel(),
        A_ub=(weights * harm).ravel()[None],
        b_ub=[limit],
        A_eq=one,
        b_eq=np.ones(X),
        bounds=bounds,
    )
    if not found.success:
        found = linprog((weights * harm).ravel(), A_eq=one, b_eq=np.ones(X), bounds=bounds)
        return np.clip(found.x.reshape(X, A), 0, 1), False
    return np.clip(found.x.reshape(X, A), 0, 1), True


def _places(names: NDArray[np.str_], known: list[str]) -> NDArray[np.int64]:
    """Returns the place of each name in a sorted list, -1 where it is not there."""
    at = np.searchsorted(known, names).clip(max=len(known) - 1)
    return np.where(np.asarray(known)[at] == names, at, -1)
