"""An agent with eight behaviours, each done well, badly or not at all, and what people write of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polopt.metrics.induced import WrittenFeedback

# Topic -> what the record holds where it is done well, and where badly.
BEHAVIOURS: dict[str, tuple[str, str]] = {
    "identity": ("verified", "skipped"),
    "refund": ("calculated", "guessed"),
    "address": ("confirmed", "overwrote"),
    "tone": ("calmed", "sharpened"),
    "search": ("filtered", "repeated"),
    "summary": ("shortened", "rambled"),
    "deadline": ("met", "missed"),
    "receipt": ("attached", "lost"),
}


def record(done: Sequence[int]) -> str:
    """Returns the record of a trajectory. done: 1, -1 or 0 of each behaviour."""
    found = [f"{BEHAVIOURS[t][0 if d > 0 else 1]} {t}" for t, d in zip(BEHAVIOURS, done, strict=True) if d]
    return "; ".join(found) or "stopped"


def remark(topic: str, sides: tuple[str, str], praised: bool, draw: np.random.Generator) -> str:
    """Returns a remark of praise or blame. sides: the words of the good and the bad behaviour."""
    good, bad = sides
    praise = (f"Good that it {good} the {topic}", f"Nicely {good} {topic}", f"The {topic} was {good}, great work")
    blame = (f"It wrongly {bad} the {topic}", f"Bad that it {bad} {topic}", f"It should not have {bad} {topic}")
    return (praise if praised else blame)[draw.integers(3)]


def feedback(trajectories: int, seed: int) -> WrittenFeedback:
    """Returns a piece of feedback on each trajectory: remarks on one to three of the behaviours that occur."""
    draw = np.random.default_rng(seed)
    texts: list[str] = []
    records: list[str] = []
    while len(texts) < trajectories:
        done = draw.choice([1, -1, 0], len(BEHAVIOURS), p=[0.25, 0.25, 0.5])
        seen = np.flatnonzero(done)
        if not len(seen):
            continue
        remarks = []
        for place in draw.permutation(seen)[: draw.integers(1, 4)]:
            topic = list(BEHAVIOURS)[place]
            remarks.append(remark(topic, BEHAVIOURS[topic], done[place] > 0, draw))
        texts.append(". ".join(remarks) + ".")
        records.append(record(done.tolist()))
    return WrittenFeedback([f"run {i:03}" for i in range(trajectories)], records, texts)
