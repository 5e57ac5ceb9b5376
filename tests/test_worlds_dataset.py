"""A user's own file: every row is checked, and what is held out is never trained on."""

import json
import warnings
from pathlib import Path

import pytest

from polopt.config import ConfigError
from polopt.worlds import DatasetReader, Tasks


def write(path: Path, rows: list) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def prompts(tasks: Tasks) -> list[str]:
    return [tasks[i].prompt for i in range(len(tasks))]


def sums(count: int) -> list[dict]:
    return [{"prompt": f"{i} + 1 =", "answer": str(i + 1)} for i in range(count)]


def test_rows_become_single_answer_tasks(tmp_path: Path) -> None:
    rows = [
        {"q": "2+2?", "a": "4", "topic": "sums", "note": [1]},
        "",
        {"q": "3!", "a": "6", "topic": "products"},
    ]
    tasks = DatasetReader("numeric", prompt="q", answer="a", kind="topic").read(write(tmp_path / "x.jsonl", rows))
    assert isinstance(tasks, Tasks)
    assert tasks.kinds == ["products", "sums"]
    assert [tasks[i].id for i in range(2)] == ["x:1", "x:3"]
    assert tasks[0].row["note"] == [1]
    episode = tasks.episode(tasks[0])
    assert episode.reset() == "2+2?"
    assert episode.demonstrate() == "4"
    step = episode.step("4.0")
    assert (step.reward, step.terminated, step.truncated) == (1.0, True, False)
    assert step.info == {"components": {"numeric": 1.0}, "solved": True}
    with pytest.raises(RuntimeError, match="call reset"):
        episode.step("4")
    episode.reset()
    assert episode.step("5").reward == 0


def test_all_malformed_rows_are_reported_together(tmp_path: Path) -> None:
    rows = [
        {"prompt": "ok", "answer": "1"},
        '{"prompt": "a", "answer": ',
        {"prompts": "a", "answer": "1"},
        {"prompt": "", "answer": "1"},
        {"prompt": "a", "answer": 1},
        "",
        {"prompt": "a", "answer": "many"},
        "[1, 2]",
        {"prompt": "ok", "answer": "2"},
    ]
    with pytest.raises(ConfigError) as caught:
        DatasetReader("numeric").read(write(tmp_path / "x.jsonl", rows))
    message = str(caught.value)
    assert "6 of 8 rows are malformed" in message
    found = [int(part.split(":")[0]) for part in message.split("line ")[1:]]
    assert found == [2, 3, 4, 5, 7, 8]
    assert "line 3: field 'prompt' is missing; did you mean 'prompts'?" in message
    assert "line 5: field 'answer' must be non-empty text, found 1" in message
    assert "line 7: field 'answer' must be a number for the numeric verifier, found 'many'" in message
    assert "line 2: not JSON: Expecting value at column" in message


def test_the_first_ten_and_how_many_more(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"25 of 25 rows .*line 10: .*; and 15 more$") as caught:
        DatasetReader("exact").read(write(tmp_path / "x.jsonl", ["nonsense"] * 25))
    assert "line 11" not in str(caught.value)


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first = json.dumps({"prompt": "a\u2028b", "answer": "1"}, ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + first.encode() + b"\r\n\xff\xfe\r\n")
    with pytest.raises(ConfigError, match=r"1 of 2 rows are malformed: line 2: not UTF-8 text"):
        DatasetReader("exact").read(path)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_rows(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match="has no rows"):
        DatasetReader("exact").read(path)
    with pytest.raises(ConfigError, match="does not exist"):
        DatasetReader("exact").read(tmp_path / "y.jsonl")


def test_a_fraction_is_held_out_by_prompt(tmp_path: Path) -> None:
    rows = sums(50) * 2
    split = DatasetReader("exact").split(write(tmp_path / "x.jsonl", rows), heldout=0.2, seed=1)
    assert len(split.heldout) == 20
    assert len(split.train) == 80
    assert not set(prompts(split.train)) & set(prompts(split.heldout))
    backwards = DatasetReader("exact").split(write(tmp_path / "y.jsonl", rows[::-1]), heldout=0.2, seed=1)
    assert set(prompts(backwards.heldout)) == set(prompts(split.heldout))
    other = DatasetReader("exact").split(tmp_path / "x.jsonl", heldout=0.2, seed=2)
    assert set(prompts(other.heldout)) != set(prompts(split.heldout))


@pytest.mark.parametrize(("fraction", "kept"), [(0.001, 1), (0.999, 3)])
def test_neither_side_is_ever_empty(tmp_path: Path, fraction: float, kept: int) -> None:
    split = DatasetReader("exact").split(write(tmp_path / "x.jsonl", sums(4)), heldout=fraction)
    assert (len(split.train), len(split.heldout)) == (4 - kept, kept)


def test_a_second_file_wins_over_the_first(tmp_path: Path) -> None:
    train, test = write(tmp_path / "train.jsonl", sums(10)), write(tmp_path / "test.jsonl", sums(3))
    with pytest.warns(UserWarning, match="left 3 of 10 rows out of training"):
        split = DatasetReader("exact").split(train, heldout=test)
    assert prompts(split.train) == [row["prompt"] for row in sums(10)[3:]]
    assert prompts(split.heldout) == [row["prompt"] for row in sums(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DatasetReader("exact").split(write(tmp_path / "rest.jsonl", sums(10)[3:]), heldout=test)
    with pytest.raises(ConfigError, match="nothing is left to learn from"):
        DatasetReader("exact").split(test, heldout=train)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 7, float("nan")])
def test_a_fraction_is_between_0_and_1(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(ConfigError, match=r"heldout = .*: expected a fraction between 0 and 1"):
        DatasetReader("exact").split(write(tmp_path / "x.jsonl", sums(4)), heldout=fraction)


def test_one_prompt_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one prompt only"):
        DatasetReader("exact").split(write(tmp_path / "x.jsonl", sums(1) * 3), heldout=0.5)
