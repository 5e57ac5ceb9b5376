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
STEP_SIZES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
# Kind of training -> settings of the dialogues, and the fraction of the questions that makes as many of them.
TRAINING: dict[str, tuple[dict[str, Any], float]] = {
    "plain": ({"confidence": False, "critique": False, "plain": True}, 1.0),
    "confidence": ({"critique": False}, 1.0),
    "critique": ({"confidence": False}, 1.0),
    "both": ({}, 0.5),
}


@dataclasses.dataclass(frozen=True)
class Questions:
    """N questions. answering: [N, d] what the policy sees of each when it answers. checking: [N, d] when it looks at an
    answer again. answer: [N] the right one."""

    answering: Numbers
    checking: Numbers
    answer: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.answer)


@dataclasses.dataclass(frozen=True)
class Reviser:
    """p(c | x) = softmax(x w), and p(c' | x, z, c) = softmax(x w + z u + stay 1[c' = c]), with x what is seen when
    answering and z when checking."""

    w: Numbers
    u: Numbers
    stay: float

    def first(self, asked: Questions) -> Numbers:
        """Returns the first answer's probabilities [N, C]."""
        return _softmax(asked.answering @ self.w)

    def revised(self, asked: Questions) -> Numbers:
        """Returns the second answer's probabilities after each first one, [N, C, C]."""
        logits = asked.answering @ self.w + asked.checking @ self.u
        return _softmax(logits[:, None] + self.stay * np.eye(CHOICES))


def _softmax(z: Numbers) -> Numbers:
    e = np.exp(z - z.max(-1, keepdims=True))
    found: Numbers = e / e.sum(-1, keepdims=True)
    return found


def questions(seed: int, *, heldout: bool = False, easier: bool = True) -> Questions:
    """Returns questions of a random linear problem. The policy sees noisy features when it answers, and when it checks
    an answer those without noise, if checking is easier, or the same ones."""
    truth = np.random.default_rng([seed, 0]).normal(size=(FEATURES, CHOICES))
    draw = np.random.default_rng([seed, 1 + heldout])
    x = draw.normal(size=(HELDOUT if heldout else TRAIN, FEATURES))
    seen = x + draw.normal(size=x.shape)
    return Questions(seen, x if easier else seen, (x @ truth).argmax(1))


def start(seed: int) -> Reviser:
    """Returns a policy that knows a part of the problem, and leans a little to its first answer."""
    draw = np.random.default_rng([seed, 0])
    truth = draw.normal(size=(FEATURES, CHOICES))
    return Reviser(0.4 * truth + 0.4 * draw.normal(size=truth.shape), np.zeros_like(truth), 1.0)


def wrong_answers(seed: int, asked: Questions) -> NDArray[np.int64]:
    """Returns a wrong answer to each question, [N], as the policy gives them before training."""
    p = start(seed).first(asked)
    p[np.arange(len(asked)), asked.answer] = 0
    p /= p.sum(1, keepdims=True)
    draw = np.random.default_rng([seed, 3])
    found: NDArray[np.int64] = (draw.random((len(p), 1)) >= p.cumsum(1)[:, :-1]).sum(1)
    return found


def dialogues(seed: int, kind: str, easier: bool) -> tuple[Questions, NDArray[np.int64], NDArray[np.int64]]:
    """Returns the question of each dialogue, its first answer [N], -1 without one, and the one to imitate [N]."""
    asked = questions(seed, easier=easier)
    settings, fraction = TRAINING[kind]
    count = round(fraction * len(asked))
    rows: list[dict[str, Any]] = [
        {"question": f"{i}", "solution": f"{right}", "wrong": [f"{wrong}"]}
        for i, (right, wrong) in enumerate(zip(asked.answer[:count], wrong_answers(seed, asked)[:count], strict=True))
    ]
    made = [row["messages"] for row in revision_dialogues(rows, **settings)]
    which = np.array([int(messages[0]["content"]) for messages in made])
    first = np.array([int(messages[1]["content"]) if len(messages) > 2 else -1 for messages in made])
    last = np.array([int(messages[-1]["content"]) for messages in made])
    return Questions(asked.answering[which], asked.checking[which], asked.answer[which]), first, last


def descend(seed: int, kind: str, step_size: float, easier: bool) -> Reviser:
    """Returns the policy after gradient steps on the mean cross-entropy of the last answers."""
    asked, first, last = dialogues(seed, kind, easier)
    model, target = start(seed), np.eye(CHOICES)[last]
    second = (first >= 0).astype(float)[:, None]
    given = second * np.eye(CHOICES)[first]
    for _ in range(STEPS):
        logits = asked.answering @ model.w + second * (asked.checking @ model.u) + model.stay * given
        slope = (_softmax(logits) - target) / len(asked)
        w, u = asked.answering.T @ slope, asked.checking.T @ (second * slope)
        stay = float((given * slope).sum())
        model = Reviser(model.w - step_size * w, model.u - step_size * u, model.stay - step_size * stay)
    return model


def second_accuracy(model: Reviser, asked: Questions) -> float:
    """Computes the exact accuracy of the second answers."""
    p = np.einsum("nc,ncd->nd", model.first(asked), model.revised(asked))
    return float(p[np.arange(len(asked)), asked.answer].mean())


@functools.cache
def best_step(kind: str, easier: bool) -> float:
    """Returns the step size with the best second accuracy on three problems that do not count."""

    def score(step_size: float) -> float:
        seeds = (100, 101, 102)
        heldout = [questions(seed, heldout=True, easier=easier) for seed in seeds]
        models = [descend(seed, kind, step_size, easier) for seed in seeds]
        return sum(map(second_accuracy, models, heldout))

    return max(STEP_SIZES, key=score)


def trained(seed: int, kind: str, easier: bool = True, step_size: float | None = None) -> Reviser:
    """Returns the policy of a kind of training, at its best step size if none is given; of "start" the one before."""
    if kind == "start":
        return start(seed)
    return descend(seed, kind, best_step(kind, easier) if step_size is None else step_size, easier)
