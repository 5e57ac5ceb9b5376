"""Readers of eight types whom a log answered by their type, which the learner does not see."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from polopt.metrics.replies import OUTCOMES, LoggedReplies

Numbers = NDArray[np.float64]
TOPICS, TYPES, REPLIES = 4, 8, 6


@dataclasses.dataclass(frozen=True, eq=False)
class Readers:
    """response: [topics, types, replies, 3] probabilities of the outcomes. behaviour: [topics, types, replies] of the
    replies in the log."""

    response: Numbers
    behaviour: Numbers

    def rates(self, policy: Numbers) -> tuple[float, float]:
        """Returns the exact rates of corrective responses and of backfire under a policy [topics, replies]."""
        found = np.einsum("ta,tac->c", policy, self.response.mean(1)) / TOPICS
        return float(found[0]), float(found[2])

    def log(self, rows: int, seed: int) -> LoggedReplies:
        """Samples a log."""
        draw = np.random.default_rng([seed, 1])
        topic, kind = draw.integers(0, TOPICS, rows), draw.integers(0, TYPES, rows)
        p = self.behaviour[topic, kind]
        reply = (draw.random((rows, 1)) >= p.cumsum(1)[:, :-1]).sum(1)
        odds = self.response[topic, kind, reply]
        outcome = (draw.random((rows, 1)) >= odds.cumsum(1)[:, :-1]).sum(1)
        names = np.array(OUTCOMES)[outcome]
        return LoggedReplies(
            [f"topic {t}" for t in topic], [f"reply {a}" for a in reply], names, p[np.arange(rows), reply]
        )


def readers(seed: int, confounded: bool = True) -> Readers:
    """Returns a random problem. Readers of some types respond well and of others badly, whatever the reply; the log
    gives each reply mostly to types of its own, so that bad replies meet good readers. Replies that correct more often
    tend to backfire more often, too."""
    draw = np.random.default_rng([seed, 0])
    reply = draw.normal(0, 0.7, (TOPICS, 1, REPLIES))
    mood = np.linspace(-2, 2, TYPES)[None, :, None]
    good = reply + mood + draw.normal(0, 0.3, (TOPICS, TYPES, REPLIES))
    bad = -1.5 + 0.5 * reply - mood + draw.normal(0, 0.5, (TOPICS, 1, REPLIES))
    odds = np.exp(np.stack([good, np.full_like(good, 1.0), bad], -1))
    lean = -1.5 * reply * mood if confounded else np.zeros((TOPICS, TYPES, REPLIES))
    p = np.exp(lean - lean.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return Readers(odds / odds.sum(-1, keepdims=True), 0.7 * p + 0.3 / REPLIES)
