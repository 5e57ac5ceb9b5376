"""A pool that anybody may write to: what is no publication is passed over and counted, and stops nobody."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polopt.backends import FolderPool, LocalPool, PublishedGroup
from polopt.backends.pool import MOST_BYTES, groups_of
from polopt.lab import TreeSource
from polopt.lab.problems import digits
from polopt.methods.sapo_swarm import Swarm, shared
from polopt.sampling import Rollouts

GOOD: dict[str, Any] = {
    "task": 0,
    "name": "0",
    "answers": [["a"], ["b"]],
    "outcomes": [1.0, 0.0],
    "about": {"kind": "x"},
    "ids": [[[0]], [[1]]],
    "logp": [[-0.5], [-0.25]],
    "temperature": 1.0,
}
WRONG: dict[str, Any] = {
    "task is text": {"task": "0"},
    "task is true": {"task": True},
    "task is a fraction": {"task": 0.5},
    "task is negative": {"task": -1},
    "task is huge": {"task": 10**30},
    "name is a number": {"name": 0},
    "answers are a map": {"answers": {}},
    "an answer is a number": {"answers": [[1], ["b"]]},
    "an answer is not in turns": {"answers": ["a", "b"]},
    "a row has no turn": {"answers": [[], ["b"]]},
    "an answer is half a pair": {"answers": [["\ud800"], ["b"]]},
    "an outcome too few": {"outcomes": [1.0]},
    "an outcome is NaN": {"outcomes": [math.nan, 0.0]},
    "an outcome is infinite": {"outcomes": [math.inf, 0.0]},
    "an outcome is text": {"outcomes": ["1.0", 0.0]},
    "about is a list": {"about": []},
    "tokens without log-probabilities": {"logp": None},
    "log-probabilities without tokens": {"ids": None},
    "a row of tokens too few": {"ids": [[[0]]]},
    "a token is negative": {"ids": [[[-1]], [[1]]]},
    "a token is huge": {"ids": [[[2**40]], [[1]]]},
    "a turn has no token": {"ids": [[[]], [[1]]], "logp": [[], [-0.25]]},
    "a log-probability too few": {"logp": [[], [-0.25]]},
    "a log-probability above 0": {"logp": [[5.0], [-0.25]]},
    "a log-probability is NaN": {"logp": [[math.nan], [-0.25]]},
    "a log-probability is -inf": {"logp": [[-math.inf], [-0.25]]},
    "temperature is 0": {"temperature": 0.0},
    "temperature is infinite": {"temperature": math.inf},
    "a field of nobody": {"code": "print(1)"},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_is_no_group(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        groups_of(json.dumps([{**GOOD, **change}]).encode())
    assert groups_of(json.dumps([GOOD]).encode()) == [PublishedGroup(**GOOD)]


@pytest.mark.parametrize("name", GOOD)
def test_what_a_group_must_have(name: str) -> None:
    group = {key: value for key, value in GOOD.items() if key != name}
    if name in ("about", "temperature"):
        assert len(groups_of(json.dumps([group]).encode())) == 1
    else:
        with pytest.raises(ValueError):  # noqa: PT011
            groups_of(json.dumps([group]).encode())


def link(place: Path) -> None:
    place.symlink_to("/dev/zero")


def link_to_a_good_one(place: Path) -> None:
    (place.parent / "aside").write_text(json.dumps([GOOD]))
    place.symlink_to(place.parent / "aside")


def too_large(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # a hole: it takes no room


FILES: dict[str, Callable[[Path], Any]] = {
    "empty": lambda place: place.touch(),
    "cut short": lambda place: place.write_text('[{"task": 3, "na'),
    "no text": lambda place: place.write_bytes(b"\xff\x00\xfe"),
    "nested": lambda place: place.write_text("[" * 10**5),
    "no list": lambda place: place.write_text("{}"),
    "a number": lambda place: place.write_text("9" * 5000),
    "too many groups": lambda place: place.write_text(json.dumps([GOOD] * 5000)),
    "a folder": lambda place: place.mkdir(),
    "a pipe": lambda place: os.mkfifo(place),
    "a link to a device": link,
    "a link to a good one": link_to_a_good_one,
    "too large": too_large,
}


@pytest.mark.parametrize("put", FILES.values(), ids=FILES)
def test_a_file_that_is_no_publication_is_passed_over(put: Callable[[Path], Any], tmp_path: Path) -> None:
    """Those beside it are read. A pipe has no writer: whoever opened it plainly would wait for ever."""
    pool = FolderPool(path=str(tmp_path))
    pool.publish("a", 0, [PublishedGroup(**GOOD)])
    put(tmp_path / "a" / "00000001.json")
    assert pool.read("a", 9) == {0: [PublishedGroup(**GOOD)]}
    assert pool.skipped == 1


def test_other_names_are_none_of_ours(tmp_path: Path) -> None:
    pool = FolderPool(path=str(tmp_path))
    pool.publish("a", 0, [PublishedGroup(**GOOD)])
    for name in ("²0.json", "0.json", "٠٠٠٠٠٠٠١.json", "-0000001.json", "00000001.JSON", "9" * 30 + ".json"):
        (tmp_path / "a" / name).write_text("[]")
    for name in ("lost+found", ".ipynb_checkpoints", "b c"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "a")
    assert pool.nodes() == ["a"]
    assert list(pool.read("a", 9)) == [0]
    assert pool.read("elsewhere", 9) == {}
    assert pool.read("file", 9) == {}
    assert pool.skipped == 0


def test_any_bytes_are_a_publication_or_passed_over(tmp_path: Path) -> None:
    """Changed at random, byte by byte and value by value: nothing but ValueError comes out."""
    values = [None, True, -1, 0.5, 1e308, 10**40, math.nan, "", "\ud800", [], [[]], [[[]]], {}, {"a": 1}]
    kept = 0
    for seed in range(300):
        rng = random.Random(seed)
        group = json.loads(json.dumps(GOOD))
        for _ in range(rng.randint(1, 3)):
            place, key = group, rng.choice([*GOOD, "zzz"])
            while isinstance(place.get(key) if isinstance(place, dict) else place[key], list) and rng.random() < 0.6:
                inner = place[key]
                if not inner:
                    break
                place, key = inner, rng.randrange(len(inner))
            place[key] = rng.choice(values)
        content = bytearray(json.dumps([group]).encode())
        if seed % 3 == 0:
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            kept += len(groups_of(bytes(content)))
        except ValueError:
            continue
    assert 0 < kept < 150


def groups_and_source() -> tuple[list[PublishedGroup], TreeSource]:
    """What a peer samples whose groups differ in outcome, with tokens; and a source of eight groups of four."""
    tree, policy = digits()
    source = TreeSource(tree, policy, rows=32, seed=0, needs=frozenset({"entropy", "value"}))
    groups = shared(source, Rollouts(group=4)(source), exactly=True)
    return [group for group in groups if len(set(group.outcomes)) > 1], source


def test_a_peers_log_probabilities_move_nobody_without_bound(tmp_path: Path) -> None:
    """The learner gives decisions about log 1/10. A peer that claims -60 for one would make a ratio of exp(57.7); one
    that claims -9 makes exp(6.7), which is allowed, and the batch holds its number."""
    groups, source = groups_and_source()
    for claimed, taken in ((-9.0, True), (-60.0, False)):
        pool = LocalPool(name=f"{tmp_path}/{claimed}")
        lies = [[[claimed] * len(row) for row in group.logp or []] for group in groups]
        pool.publish("peer", 0, [replace(group, logp=lie) for group, lie in zip(groups, lies, strict=True)])
        batch = Swarm(group=4, node="me", pool=pool, share=0.5, correct=True)(source)
        rows = batch.extras["external"]
        assert bool(rows.any()) is taken
        assert batch.extras["skipped"].tolist() == [0 if taken else len(groups)] * len(batch)
        ratio = (batch.old_logp - batch.rollout_logp)[batch.mask].exp()
        assert ratio.max() <= math.exp(10)
        if taken:
            assert batch.rollout_logp[rows][batch.mask[rows]].unique().tolist() == [claimed]
            assert ratio.max() > math.exp(5)
        pool.clear()


def test_an_answer_that_cannot_be_played_is_passed_over(tmp_path: Path) -> None:
    """Good groups beside it are learned from."""
    groups, source = groups_and_source()
    pool = LocalPool(name=str(tmp_path))
    foreign = replace(groups[0], answers=[["no such answer"], *groups[0].answers[1:]])
    pool.publish("peer", 0, [foreign, *groups[1:]])
    batch = Swarm(group=4, node="me", pool=pool, share=0.99)(source)
    assert int(batch.extras["external"].sum()) == 4 * min(7, len(groups) - 1)
    assert set(batch.extras["skipped"].tolist()) <= {0, 1}
    only = LocalPool(name=str(tmp_path / "only"))
    only.publish("peer", 0, [foreign])
    batch = Swarm(group=4, node="me", pool=only, share=0.5)(source)
    assert set(batch.extras["skipped"].tolist()) == {1}
    assert not batch.extras["external"].any()
    pool.clear()
    only.clear()
