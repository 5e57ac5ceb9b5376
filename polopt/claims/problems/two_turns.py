"""Questions that a linear softmax policy answers twice: its second answer sees the first one."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polopt.worlds.revisions import revision_dialogues

Numbers = NDArray[np.float64]
FEATURES, CHOICES, TRAIN, HELDOUT, STEPS = 8, 4, 200, 500, 100
STEP_SIZES = (0.3, 1.0, 3.0, 10.0)
# Kind of training -> settings of the dialogues, and the fraction of the questions that makes as many of them.
TRAINING: dict[str, tuple[dict[str, bool], float]] = {
    "plain": ({"confidence": False, "critique": False, "plain": True}, 1.0),
    "confidence": ({"critique": False}, 1.0),
    "critique": ({"confidence": False}, 1.0),
    "both": ({}, 0.5),
}


@dataclasses.dataclass(frozen=True)
class Reviser:
    """p(c | x) = softmax(x w), and p(c' | x, c) = softmax(x (w + u) + stay 1[c' = c])."""

    w: Numbers
    u: Numbers
    stay: float

    def first(self, x: Numbers) -> Numbers:
        """Returns the first answer's probabilities [N, C]."""
        return _softmax(x @ self.w)

    def revised(self, x: Numbers) -> Numbers:
        """Returns the second answer's probabilities after each first one, [N, C, C]."""
        return _softmax((x @ (self.w + self.u))[:, None] + self.stay * np.eye(CHOICES))

    def after(self, x: Numbers, first: NDArray[np.int64]) -> Numbers:
        """Returns the probabilities of an answer, the second one where the first is at least 0, [N, C]."""
        second = np.where(first >= 0, 1.0, 0.0)[:, None]
        return _softmax(x @ self.w + second * (x @ self.u + self.stay * np.eye(CHOICES)[first]))


def _softmax(z: Numbers) -> Numbers:
    e = np.exp(z - z.max(-1, keepdims=True))
    found: Numbers = e / e.sum(-1, keepdims=True)
    return found


def questions(seed: int, *, heldout: bool = False) -> tuple[Numbers, NDArray[np.int64]]:
    """Returns features [N, d] and right answers [N] of a random linear problem with a little noise."""
    draw = np.random.default_rng([seed, 0])
    truth = draw.normal(size=(FEATURES, CHOICES))
    draw = np.random.default_rng([seed, 1 + heldout])
    x = draw.normal(size=(HELDOUT if heldout else TRAIN, FEATURES))
    return x, (x @ truth + 0.3 * draw.gumbel(size=(len(x), CHOICES))).argmax(1)


def start(seed: int) -> Reviser:
    """Returns a policy that is right on about half of the questions, and leans a little to its first answer."""
    draw = np.random.default_rng([seed, 0])
    truth = draw.normal(size=(FEATURES, CHOICES))
    return Reviser(0.4 * truth + 0.4 * draw.normal(size=truth.shape), np.zeros_like(truth), 1.0)


def first_answers(seed: int) -> NDArray[np.int64]:
    """Returns a wrong answer to each question, [N], as the policy gives them before training."""
    x, y = questions(seed)
    p = start(seed).first(x)
    p[np.arange(len(y)), y] = 0
    p /= p.sum(1, keepdims=True)
    draw = np.random.default_rng([seed, 3])
    found: NDArray[np.int64] = (draw.random((len(y), 1)) >= p.cumsum(1)[:, :-1]).sum(1)
    return found


def dialogues(seed: int, kind: str) -> tuple[Numbers, NDArray[np.int64], NDArray[np.int64]]:
    """Returns features [N, d], first answers [N], -1 where there is none, and the answers to imitate [N]."""
    x, y = questions(seed)
    settings, fraction = TRAINING[kind]
    count = round(fraction * len(y))
    rows: list[dict[str, Any]] = [
        {"question": f"{i}", "solution": f"{right}", "wrong": [f"{wrong}"]}
        for i, (right, wrong) in enumerate(zip(y[:count], first_answers(seed)[:count], strict=True))
    ]
    made = [row["messages"] for row in revision_dialogues(rows, **settings)]
    asked = np.array([int(messages[0]["content"]) for messages in made])
    first = np.array([int(messages[1]["content"]) if len(messages) > 2 else -1 for messages in made])
    return x[asked], first, np.array([int(messages[-1]["content"]) for messages in made])


def descend(seed: int, kind: str, step_size: float) -> Reviser:
    """Returns the policy after gradient steps on the mean cross-entropy of the last answers."""
    x, first, last = dialogues(seed, kind)
    model = start(seed)
    second = (first >= 0).astype(float)
    for _ in range(STEPS):
        slope = (model.after(x, first) - np.eye(CHOICES)[last]) / len(x)
        w, u = x.T @ slope, x.T @ (slope * second[:, None])
        stay = float((slope * np.eye(CHOICES)[first] * second[:, None]).sum())
        model = Reviser(model.w - step_size * w, model.u - step_size * u, model.stay - step_size * stay)
    return model


def second_accuracy(model: Reviser, seed: int) -> float:
    """Computes the exact accuracy of the second answers on held-out questions."""
    x, y = questions(seed, heldout=True)
    p = np.einsum("nc,ncd->nd", model.first(x), model.revised(x))
    return float(p[np.arange(len(y)), y].mean())


@functools.cache
def best_step(kind: str) -> float:
    """Returns the step size with the best second accuracy on three problems that do not count."""
    return max(STEP_SIZES, key=lambda s: sum(second_accuracy(descend(seed, kind, s), seed) for seed in (100, 101, 102)))


def trained(seed: int, kind: str) -> Reviser:
    """Returns the policy of a kind of training at its best step size; of "start" the one before."""
    return start(seed) if kind == "start" else descend(seed, kind, best_step(kind))
