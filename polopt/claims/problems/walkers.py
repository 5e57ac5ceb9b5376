"""Walkers of the text grid with a planted fault each, and what people write of their errands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polopt.claims.problems.remarks import remark
from polopt.metrics.induced import WrittenFeedback
from polopt.worlds.text_grid import MOVES, TextGrid, TextGridEpisode

# Topic -> the words for an errand without, and with the fault.
TRAITS: dict[str, tuple[str, str]] = {
    "route": ("followed", "strayed"),
    "wall": ("avoided", "bumped"),
    "decoy": ("ignored", "grabbed"),
    "map": ("remembered", "reread"),
    "errand": ("completed", "abandoned"),
}
EVENTS = {"route": "away", "wall": "wall", "decoy": "decoy", "map": "looked"}


def faulty(episode: TextGridEpisode, fault: str, draw: np.random.Generator) -> str | None:
    """Returns a command that has a fault, None where the walker stands in no place for it."""
    ways = {name: (episode.at[0] + dx, episode.at[1] + dy) for name, (dx, dy) in MOVES.items()}
    if fault in ("route", "wall"):
        best = episode.demonstrate()
        found = [f"go {name}" for name, cell in ways.items() if (cell in episode.free) == (fault == "route")]
        found = [command for command in found if command != best]
        return str(draw.choice(found)) if found else None
    if fault == "decoy":
        here = [name for name, place in episode.left.items() if place == episode.at]
        return f"take broken {here[0]}" if here else None
    return {"map": "look", "errand": "leave"}[fault]


def errand(tasks: TextGrid, index: int, rates: dict[str, float], draw: np.random.Generator) -> str:
    """Walks one errand and returns its record, from the events that the world reports."""
    episode = TextGridEpisode(tasks[index], tasks.turns)
    episode.reset()
    events: list[str] = []
    while True:
        command = episode.demonstrate()
        for fault, rate in rates.items():
            if draw.random() < rate:
                command = faulty(episode, fault, draw) or command
        step = episode.step(str(command))
        events.append(step.info["event"])
        if step.over:
            break
    bad = {topic for topic, event in EVENTS.items() if event in events}
    bad |= set() if step.info["solved"] else {"errand"}
    return "; ".join(f"{TRAITS[topic][topic in bad]} {topic}" for topic in TRAITS)


def walks(fault: str, count: int, seed: int) -> list[str]:
    """Returns the records of a walker's errands: its own fault is frequent, others are rare."""
    draw = np.random.default_rng([seed, list(TRAITS).index(fault)])
    tasks = TextGrid(size=count, seed=seed)
    often = {"decoy": 0.7, "errand": 0.1}
    rates = {topic: often.get(topic, 0.15) if topic == fault else 0.01 for topic in TRAITS}
    return [errand(tasks, i, rates, draw) for i in range(count)]


def remarked_on(records: Sequence[str], seed: int) -> WrittenFeedback:
    """Returns a piece of feedback on each record: remarks on one to three of its traits."""
    draw, texts = np.random.default_rng([seed, 99]), []
    for record in records:
        clauses = [clause.split() for clause in record.split("; ")]
        chosen = draw.permutation(len(clauses))[: draw.integers(1, 4)]
        texts.append(
            ". ".join(
                remark(clauses[i][1], TRAITS[clauses[i][1]], clauses[i][0] == TRAITS[clauses[i][1]][0], draw)
                for i in chosen
            )
            + "."
        )
    return WrittenFeedback([f"run {i:03}" for i in range(len(records))], records, texts)
