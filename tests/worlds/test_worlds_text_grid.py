"""The text grid: the fewest commands against a search of all states, events, ends, and settings that make no grid."""

from __future__ import annotations

import json

import pytest

from polopt.claims.problems.walkers import TRAITS, errand, faulty
from polopt.config import ConfigError
from polopt.worlds import EpisodeError, TextGrid, build_tasks
from polopt.worlds.text_grid import TextGridEpisode


def searched(row: dict) -> int:
    """Breadth-first search over cells and sets of things, one command a step."""
    free, things = {tuple(cell) for cell in row["free"]}, sorted(map(tuple, row["things"].values()))
    layer, seen, n = {(tuple(row["start"]), frozenset())}, set(), 0
    while True:
        n += 1
        if (tuple(row["door"]), frozenset(things)) in layer:
            return n  # the command to leave
        seen |= layer
        after = set()
        for (x, y), taken in layer:
            after |= {((x + a, y + b), taken) for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0)) if (x + a, y + b) in free}
            if (x, y) in things:
                after.add(((x, y), taken | {(x, y)}))
        layer = after - seen


@pytest.mark.parametrize(("width", "things", "walls"), [(3, 1, 0.0), (5, 2, 0.2), (5, 4, 0.3), (6, 3, 0.4)])
def test_a_demonstration_takes_the_fewest_commands(width: int, things: int, walls: float) -> None:
    tasks = TextGrid(size=12, width=width, things=things, walls=walls, seed=4)
    for i in range(12):
        fewest = searched(tasks[i].row)
        assert tasks[i].row["fewest"] == fewest <= tasks.turns
        episode = tasks.episode(tasks[i])
        assert episode.reset() == tasks[i].prompt
        events = []
        while True:
            step = episode.step(episode.demonstrate())
            events.append(step.info["event"])
            if step.over:
                break
        assert len(events) == fewest
        assert (step.reward, step.terminated, step.info["signals"]) == (1.0, True, {"excess": 0.0})
        assert set(events) <= {"closer", "took", "left"}
        assert episode.demonstrate() is None


def test_events_and_ends() -> None:
    tasks = TextGrid(size=1, width=3, things=1, walls=0.0, turns=14, seed=1)
    episode = TextGridEpisode(tasks[0], 14)
    episode.reset()
    (thing,), (place,) = tasks[0].row["things"].keys(), episode.left.values()
    episode.at = place
    assert episode.step(f"take broken {thing}").info["event"] == "decoy"
    assert episode.step("take cup of tea").info["event"] == "unknown"
    assert episode.step("LOOK ").info["event"] == "looked"
    assert episode.step(f"take {thing}").info["event"] == "took"
    assert episode.step(f"take {thing}").info["event"] == "unknown"
    episode.at = (0, 0)
    wall = episode.step("go north")
    assert (wall.info["event"], episode.at) == ("wall", (0, 0))
    episode.at = (1, 1) if episode.door != (1, 1) else (1, 0)
    left = episode.step("leave")
    assert (left.terminated, left.reward, left.info["solved"]) == (True, 0.0, False)
    with pytest.raises(EpisodeError, match="is over or has not begun"):
        episode.step("look")
    episode.reset()
    steps = [episode.step("look") for _ in range(14)]
    assert [s.truncated for s in steps] == [False] * 13 + [True]


def test_each_fault_shows_in_its_own_event() -> None:
    import numpy as np

    tasks, draw = TextGrid(size=6, seed=0), np.random.default_rng(0)
    for i in range(6):
        assert errand(tasks, i, {}, draw) == "; ".join(f"{good} {topic}" for topic, (good, _) in TRAITS.items())
    episode = TextGridEpisode(tasks[0], 60)
    episode.reset()
    while episode.at not in episode.left.values():
        episode.step(str(episode.demonstrate()))
    expected = {"route": "away", "decoy": "decoy", "map": "looked"}
    for fault, event in expected.items():
        found = faulty(episode, fault, draw)
        episode_step = episode.step(str(found))
        assert episode_step.info["event"] == event
        if fault == "route":
            episode.step(str(episode.demonstrate()))


def test_tasks_are_the_same_for_a_seed_and_plain_data() -> None:
    spec = {"kind": "text-grid", "train": 10, "heldout": 10, "things": 3}
    one, two, other = (build_tasks(spec, seed=seed) for seed in (5, 5, 6))
    found = [[tasks[i] for i in range(10)] for tasks in (one.train, two.train, other.train)]
    assert found[0] == found[1] != found[2]
    assert json.loads(json.dumps(found[0][0].row)) == found[0][0].row
    assert {t.row["door"][0] for t in found[0]} == {0}
    assert {one.heldout[i].row["door"][0] for i in range(10)} == {4}


def test_settings_that_make_no_grid() -> None:
    with pytest.raises(ValueError, match=r"things 1 to 5 and walls 0 to 0.4, found 1, 5, 9 and 0.2"):
        TextGrid(size=1, things=9)
    with pytest.raises(ConfigError, match=r"turns must be at least 2 x width x \(things \+ 1\) = 30, found 5"):
        build_tasks({"kind": "text-grid", "turns": 5}, seed=0)
