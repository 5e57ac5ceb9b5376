"""A user's own labelled answers and ranked lists: the forms of a row, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from polopt.config import ConfigError
from polopt.worlds import LabelledReader, RankedReader, Tasks, build_tasks
from polopt.worlds.protocol import are_verified

SAID = [{"role": "assistant", "content": "4"}]


def written(folder: Path, rows: list[Any]) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labelled(folder: Path, *rows: dict[str, Any], **settings: Any) -> Tasks:
    return LabelledReader(**settings).read(written(folder, list(rows)))


def test_labels_and_scores(tmp_path: Path) -> None:
    tasks = labelled(
        tmp_path,
        {"prompt": "2+2?", "completion": "4", "label": True},
        {"prompt": [{"role": "user", "content": "2+2?"}], "completion": SAID, "label": False},
        {"prompt": "2+2?", "completion": "4", "label": -0.5},
    )
    assert [(t.prompt, t.rated, t.solution) for t in (tasks[i] for i in range(3))] == [
        ("2+2?", (("4", 1.0),), "4"),
        ("2+2?", (("4", 0.0),), None),
        ("2+2?", (("4", -0.5),), None),
    ]
    assert not tasks[0].is_ranked
    assert not are_verified(tasks)


def test_own_names(tmp_path: Path) -> None:
    row = {"q": "2+2?", "a": {"text": "4"}, "ok": True, "topic": "sums"}
    (task,) = labelled(tmp_path, row, prompt="q", completion="a.text", label="ok", kind="topic", system="Be kind.")
    assert (task.kind, task.history) == ("sums", ({"role": "system", "content": "Be kind."},))


def test_a_ranked_list_has_its_best_answer_first(tmp_path: Path) -> None:
    row = {"prompt": "2+2?", "completions": ["5", "4", "22"], "scores": [0.1, 2, -1]}
    (task,) = RankedReader().read(written(tmp_path, [row]))
    assert task.rated == (("4", 2.0), ("5", 0.1), ("22", -1.0))
    assert task.solution == "4"
    assert task.is_ranked


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "q", "completion": "a"}, "field 'label' is missing"),
        ({"prompt": "q", "completion": "a", "label": "yes"}, "field 'label' must be true, false or a finite number"),
        ({"prompt": "q", "completion": "a", "label": float("nan")}, "field 'label' must be true, false or a finite"),
        ({"prompt": "q", "completion": " ", "label": True}, "field 'completion' must be non-empty text"),
        ({"completion": "a", "label": True}, "field 'prompt' is missing"),
    ],
)
def test_bad_labels_are_named_by_line(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"prompt": "q", "completion": "a", "label": True}
    with pytest.raises(ConfigError, match=rf"line 2.*{re.escape(message)}"):
        labelled(tmp_path, good, row)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": [1, 2, 3]}, "field 'completions' has 2 answers and field 'scores' 3 numbers"),
        ({"scores": [1, 1]}, "field 'scores' must have two different numbers"),
        ({"completions": ["a", "a"]}, "field 'completions' holds the same answer twice"),
        ({"completions": "ab"}, "field 'completions' must be a list of two or more"),
        ({"scores": [1, None]}, "field 'scores': number 2 must be true, false or a finite number"),
    ],
)
def test_bad_lists_are_named_by_line(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    row = {"prompt": "q", "completions": ["a", "b"], "scores": [1, 0]}
    path = written(tmp_path, [row, {**row, **changes}])
    with pytest.raises(ConfigError, match=rf"line 2.*{re.escape(message)}"):
        RankedReader().read(path)


@pytest.mark.parametrize("kind", ["labelled", "ranked"])
def test_as_the_world_of_a_recipe(kind: str, tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{i}", "completion": "a", "label": i % 2, "completions": ["a", "b"], "scores": [0, 1]}
        for i in range(20)
    ]
    split = build_tasks({"kind": kind, "path": str(written(tmp_path, rows)), "heldout": 0.25}, seed=3)
    assert (len(split.train), len(split.heldout)) == (15, 5)
