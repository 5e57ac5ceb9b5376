"""Raw texts: from files, and as part of a world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polopt.config import ConfigError
from polopt.worlds import build_tasks, parse_world, read_texts


def test_parts_between_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("\ufeffOne line,\nand another.\n\n  \n\tSecond text \n\n\nThird: 東京\n", encoding="utf-8")
    assert read_texts(path) == ["One line,\nand another.", "Second text", "Third: 東京"]


def test_rows_with_a_field(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "a\\n\\nb", "source": 1}\n\n{"text": "c"}\n')
    assert read_texts(str(path)) == ["a\n\nb", "c"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none.txt", None, "does not exist; give a .jsonl file, or a text file with empty lines between texts"),
        ("none.jsonl", None, "does not exist; give a file with one JSON object per line"),
        ("empty.txt", b" \n\n", "holds no text"),
        ("latin.txt", b"caf\xe9", "is not UTF-8 text: unexpected end of data at byte 3"),
        (
            "x.jsonl",
            b'{"text": "a"}\n{"txt": "b"}\n[]\n',
            "2 of 3 rows are malformed: line 2: field 'text' is missing; ",
        ),
        ("y.jsonl", b'{"text": " "}\n', "line 1: field 'text' must be non-empty text"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, content: bytes | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_texts(tmp_path / name)
    assert sentence in str(error.value)


OWN = """
from polopt.worlds import GuessNumber, TaskSplit
import dataclasses

def bare(*, seed):
    return GuessNumber.split(1, 9, 3, train=4, heldout=2, seed=seed)

def talkative(*, seed):
    return dataclasses.replace(bare(seed=seed), texts=["its own"])
"""


def test_every_world_takes_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo")
    (tmp_path / "tasks.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{i}", "answer": "x"}) + "\n" for i in range(4))
    )
    own = tmp_path / "own.py"
    own.write_text(OWN)
    texts = {"texts": str(tmp_path / "a.txt")}
    jsonl = {"kind": "dataset", "path": str(tmp_path / "tasks.jsonl"), "heldout": 0.5}
    guess = {"kind": "guess-number", "train": 4, "heldout": 2}
    for spec in (jsonl, guess, {"kind": f"{own}:bare"}):
        assert build_tasks(spec, seed=0).texts == ()
        assert build_tasks({**spec, **texts}, seed=0).texts == ["one", "two"]
    assert build_tasks({"kind": f"{own}:talkative"}, seed=0).texts == ["its own"]
    assert build_tasks({"kind": f"{own}:talkative", **texts}, seed=0).texts == ["one", "two"]
    with pytest.raises(ConfigError, match=r"world\.texts = 3: expected a valid string"):
        parse_world({"kind": f"{own}:bare", "texts": 3})
