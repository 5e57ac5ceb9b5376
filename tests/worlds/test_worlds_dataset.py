"""A user's own file: every row is checked, and what is held out is never trained on."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest

from polopt.config import ConfigError
from polopt.errors import PoloptWarning
from polopt.worlds import DatasetReader, Tasks
from polopt.worlds.rows import places


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
        {"prompt": "a", "answer": None},
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
    assert "line 5: field 'answer' must be non-empty text or a number, found null" in message
    assert "line 7: field 'answer' must be a number for the numeric verifier, found 'many'" in message
    assert "line 2: not JSON: Expecting value at column" in message


def test_equal_sentences_are_one_with_their_lines(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "answer": None}] * 3 + [{"prompt": "a"}, {"prompt": "a", "answer": None}]
    with pytest.raises(ConfigError) as caught:
        DatasetReader("exact").read(write(tmp_path / "x.jsonl", rows))
    assert "lines 1 to 3 and 5: field 'answer' must be" in str(caught.value)
    assert str(caught.value).count("must be") == 1


def test_the_first_ten_sentences_and_how_many_more_rows(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "answer": [i]} for i in range(25)]
    with pytest.raises(ConfigError, match=r"25 of 25 rows .*line 10: .*; and 15 more$") as caught:
        DatasetReader("exact").read(write(tmp_path / "x.jsonl", rows))
    assert "line 11" not in str(caught.value)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([3], "line 3"),
        ([3, 2], "lines 2 and 3"),
        ([1, 2, 3], "lines 1 to 3"),
        ([9, 1, 2, 3, 5], "lines 1 to 3, 5 and 9"),
        (range(0, 30, 2), "lines 0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and others"),
    ],
)
def test_lines_in_a_sentence(numbers: Sequence[int], text: str) -> None:
    assert places(numbers, Path("x.jsonl")) == text
    assert places(numbers, Path("x.parquet")) == text.replace("line", "row")


ROW, OTHER = '{"prompt": "2+2", "answer": "4"}', '{"prompt": "3+3", "answer": "6"}'
LISTED = f"[{ROW},\n {OTHER}]"
TWO = [("2+2", "4"), ("3+3", "6")]
FILES: list[tuple[str, bytes, list[tuple[str, str]] | str]] = [
    ("x.jsonl", b"\xef\xbb\xbf" + f"{ROW}\n{OTHER}".encode(), TWO),
    ("x.jsonl", f"{ROW}\r\n{OTHER}\r\n".encode(), TWO),
    ("x.jsonl", f"\n \n{ROW}\n\n{OTHER}\n\n".encode(), TWO),
    ("x.jsonl", '{"prompt": "🙂 汉字", "answer": "é"}'.encode(), [("🙂 汉字", "é")]),
    ("x.jsonl", b'{"prompt": "<|im_end|><end>", "answer": "</s>"}', [("<|im_end|><end>", "</s>")]),
    ("x.jsonl", f"{ROW}\n{ROW}\n".encode(), [TWO[0]] * 2),
    ("x.jsonl", ROW.encode(), [TWO[0]]),
    ("x.jsonl", b'{"prompt": "a\\t\\u0000b", "answer": "4"}', [("a\t\0b", "4")]),
    ("x.jsonl", b'{"prompt": "\\ud83d\\ude42", "answer": "4"}', [("🙂", "4")]),
    (
        "x.jsonl",
        b'{"prompt": "a", "answer": 42}\n{"prompt": "b", "answer": 0.5}\n{"prompt": "c", "answer": true}',
        [("a", "42"), ("b", "0.5"), ("c", "true")],
    ),
    ("x.jsonl", b'{"prompt": "a", "answer": ' + b"9" * 400 + b"}", [("a", "9" * 400)]),
    ("x.json", LISTED.encode(), TWO),
    ("x.json", f"{ROW}\n{OTHER}".encode(), TWO),
    ("x.csv", b'prompt,answer\n2+2,4\n"3,\n3",6\n', [("2+2", "4"), ("3,\n3", "6")]),
    ("x.tsv", b"prompt\tanswer\n2+2\t4\n3+3\t6\n", TWO),
    ("x.jsonl", '{"prompt": "é", "answer": "4"}'.encode("latin-1"), "line 1: not UTF-8 text; save the file as UTF-8"),
    ("x.csv", "prompt,answer\né,4\n".encode("latin-1"), "is not UTF-8 text: byte 0xe9 in line 2"),
    ("x.jsonl", ROW.encode("utf-16"), "is UTF-16 or UTF-32; save it as UTF-8"),
    ("x.jsonl", ROW.encode("utf-16-be"), "is UTF-16 or UTF-32; save it as UTF-8"),
    ("x.jsonl", LISTED.encode(), "let the file's name end in .json"),
    ("x.jsonl", json.dumps(json.loads(ROW), indent=2).encode(), "is one JSON value, not one object per line"),
    ("x.jsonl", b"[1, 2]\n[3]", "line 1: expected an object with fields, found [1, 2]"),
    ("x.jsonl", f"{ROW}\n{OTHER[:-8]}".encode(), "1 of 2 rows are malformed: line 2: not JSON: Unterminated string"),
    ("x.jsonl", b"", "has no rows"),
    ("x.json", b"[]", "has no rows"),
    ("x.jsonl", b'{"prompt": "a"}\n{"prompt": "b"}', "lines 1 and 2: field 'answer' is missing; it has: prompt"),
    ("x.jsonl", b'{"prompt": "a", "answer": null}', "field 'answer' must be non-empty text or a number, found null"),
    ("x.jsonl", b'{"prompt": "a", "answer": NaN}', "field 'answer' must be non-empty text or a number, found NaN"),
    ("x.jsonl", b'{"prompt": 3, "answer": "4"}', "field 'prompt' must be non-empty text or messages like"),
    ("x.jsonl", b'{"prompt": "\\uD800", "answer": "4"}', "half of a surrogate pair, \\ud800, which is no character"),
    ("x.jsonl", b'{"prompt": "a", "answer": ' + b"9" * 5000 + b"}", "an integer of more than 4300 digits"),
    ("x.jsonl", b'{"prompt": "a\tb", "answer": "4"}', "Invalid control character at column 14; write it as \\n"),
    ("x.csv", b"prompt,answer\na,b,c\n", "line 2: more values than the 2 columns of the first line"),
    ("x.parquet", b"nonsense", "cannot be read: Parquet magic bytes not found"),
]


@pytest.mark.parametrize(("name", "content", "expected"), FILES, ids=map(str, range(len(FILES))))
def test_files_of_all_sorts(tmp_path: Path, name: str, content: bytes, expected: list[tuple[str, str]] | str) -> None:
    (tmp_path / name).write_bytes(content)
    if isinstance(expected, list):
        tasks = DatasetReader("exact").read(tmp_path / name)
        assert [(tasks[i].prompt, tasks[i].solution) for i in range(len(tasks))] == expected
        assert [tasks[i].row["answer"] for i in range(len(tasks))] == [answer for _, answer in expected]
        return
    with pytest.raises(ConfigError) as caught:
        DatasetReader("exact").read(tmp_path / name)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parquet_and_folders_of_datasets(tmp_path: Path) -> None:
    """What `datasets` writes, in verl's columns: two shards, a selection, and the splits of a dictionary."""
    datasets = pytest.importorskip("datasets")
    rows = [
        {
            "prompt": [{"role": "system", "content": "add"}, {"role": "user", "content": f"{i}+1"}],
            "reward_model": {"style": "rule", "ground_truth": str(i + 1)},
        }
        for i in range(5)
    ]
    made = datasets.Dataset.from_list(rows)
    made.to_parquet(tmp_path / "x.parquet")
    made.save_to_disk(tmp_path / "all", num_shards=2)
    datasets.DatasetDict({"train": made, "test": made.select([3, 1])}).save_to_disk(tmp_path / "splits")
    reader = DatasetReader("exact", answer="reward_model.ground_truth")
    for name, chosen in {"x.parquet": range(5), "all": range(5), "splits/test": [3, 1]}.items():
        tasks = reader.read(tmp_path / name)
        assert [tasks[i].prompt for i in range(len(tasks))] == [f"{i}+1" for i in chosen]
        assert [tasks[i].reference for i in range(len(tasks))] == [str(i + 1) for i in chosen]
        assert tasks[0].history == ({"role": "system", "content": "add"},)
    with pytest.raises(ConfigError, match=r"has the splits train, test; give one of them, as in .*splits/train"):
        reader.read(tmp_path / "splits")
    with pytest.raises(ConfigError, match="is a folder, but not one that datasets' save_to_disk wrote"):
        reader.read(tmp_path)


SYSTEM, USER = {"role": "system", "content": "add"}, {"role": "user", "content": "2+2"}
OUTPUTS = {"role": "assistant", "content": "4"}


def test_messages_are_prompts(tmp_path: Path) -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "+2"}]}
    rows = [
        {"prompt": [SYSTEM, USER], "answer": "4"},
        {"prompt": [USER, OUTPUTS, {"role": "user", "content": "and +1?"}], "answer": "5"},
        {"messages": [parts, OUTPUTS]},
        {"messages": [{**USER, "name": None}, OUTPUTS], "answer": "four"},
        {"prompt": "2+2", "answer": "4"},
    ]
    path = write(tmp_path / "x.jsonl", rows)
    with pytest.warns(PoloptWarning, match="1 prompt with different answers in different rows: '2\\+2' has '4'"):
        tasks = DatasetReader("exact").read(path)
    assert [t.history for t in map(tasks.__getitem__, range(5))] == [(SYSTEM,), (USER, OUTPUTS), (), (), ()]
    assert prompts(tasks) == ["2+2", "and +1?", "2+2", "2+2", "2+2"]
    assert [(tasks[i].reference, tasks[i].solution) for i in (2, 3)] == [("4", "4"), ("four", "4")]
    assert tasks[1].row["prompt"] == rows[1]["prompt"]
    assert tasks[2].row["prompt"] == [USER]
    assert tasks[4].row["prompt"] == "2+2"
    told = DatasetReader("exact", system="be brief").read(write(tmp_path / "y.jsonl", rows[:2]))
    brief = {"role": "system", "content": "be brief"}
    assert [told[i].history for i in range(2)] == [(SYSTEM,), (brief, USER, OUTPUTS)]


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "must be non-empty text or messages like [{role: user, content: ...}], found []"),
        (["2+2"], 'message 1 must be like {role: user, content: ...}, found "2+2"'),
        ([{"role": "user"}], "message 1 has no 'content', only 'role'"),
        ([USER, {"role": 3, "content": "x"}], "message 2 must have a role such as 'user', found 3"),
        ([{"role": "user", "content": [{"type": "image"}]}], "message 1 must have text as its content"),
        ([SYSTEM], "must end with a message of the user, or with one and the assistant's answer to it"),
        ([OUTPUTS], "found one of role 'assistant'"),
        ([{**USER, "tool_calls": [1]}], "message 1 has 'tool_calls', which a prompt cannot hold"),
    ],
)
def test_messages_that_are_none(tmp_path: Path, messages: list, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DatasetReader("exact").read(write(tmp_path / "x.jsonl", [{"prompt": messages, "answer": "4"}]))
    assert "line 1: field 'prompt'" in str(caught.value)
    assert sentence in str(caught.value)


def test_a_worked_solution_beside_the_answer(tmp_path: Path) -> None:
    rows = [{"prompt": "2+2", "answer": "4", "solution": "2+2 is 4"}, {"prompt": "3+3", "answer": 6}]
    tasks = DatasetReader("exact").read(write(tmp_path / "x.jsonl", rows))
    assert [(tasks[i].solution, tasks[i].reference) for i in range(2)] == [("2+2 is 4", "4"), ("6", "6")]
    episode = tasks.episode(tasks[0])
    episode.reset()
    assert episode.demonstrate() == "2+2 is 4"
    assert episode.step("4").reward == 1
    (tmp_path / "x.csv").write_text("prompt,answer,solution\n2+2,4,\n")  # an empty value is none
    assert DatasetReader("exact").read(tmp_path / "x.csv")[0].solution == "4"
    with pytest.raises(ConfigError, match="line 2: field 'solution' is missing"):
        DatasetReader("exact", solution="solution").read(tmp_path / "x.jsonl")


def test_the_answer_after_a_mark(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "answer": "#### 1, then\n#### 72 "}, {"prompt": "b", "answer": "5"}]
    reader = DatasetReader("exact", answer_after="####")
    tasks = reader.read(write(tmp_path / "x.jsonl", rows[:1]))
    assert (tasks[0].reference, tasks[0].solution, tasks[0].row["answer"]) == ("72", rows[0]["answer"], "72")
    with pytest.raises(ConfigError, match="line 2: field 'answer' has nothing after '####', the answer_after"):
        reader.read(write(tmp_path / "y.jsonl", rows))


def test_exact_on_worked_answers_is_doubted(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i}?", "answer": f"Half of {2 * i} is {i}. #### {i}"} for i in range(3)]
    path = write(tmp_path / "x.jsonl", rows)
    with pytest.warns(PoloptWarning, match="3 of 3 answers look like whole solutions.*set answer_after"):
        DatasetReader("exact").read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DatasetReader("exact", answer_after="####").read(path)
        DatasetReader(lambda completion, row: 1.0).read(path)
        DatasetReader("exact").read(write(tmp_path / "y.jsonl", [{"prompt": "a", "answer": "two words"}]))


def test_answers_may_be_missing_where_nothing_reads_them(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"prompt": "a"}, {"prompt": "b"}])
    tasks = DatasetReader(lambda completion, row: len(completion)).read(path)
    assert tasks[0].solution is None
    assert tasks[0].reference is None
    with pytest.raises(ConfigError, match="field 'answer' is missing"):
        DatasetReader("exact").read(path)
    with pytest.raises(ConfigError, match="field 'gold' is missing"):
        DatasetReader(lambda completion, row: 1.0, answer="gold").read(path)
    some = write(tmp_path / "y.jsonl", [{"prompt": "a"}, {"prompt": "b", "answer": "1"}, {"prompt": "c"}])
    with pytest.raises(ConfigError, match="2 of 3 rows have no field 'answer', lines 1 and 3; give every row one"):
        DatasetReader(lambda completion, row: 1.0).read(some)


def test_contradictions_and_huge_rows_are_warned_of(tmp_path: Path) -> None:
    rows = [*sums(3), {"prompt": "0 + 1 =", "answer": "2"}, {"prompt": "1 + 1 =", "answer": " 2 "}]
    with pytest.warns(PoloptWarning, match=r"1 prompt with .*: '0 \+ 1 =' has '1' \(line 1\) and '2' \(line 4\)$"):
        DatasetReader("exact").read(write(tmp_path / "x.jsonl", rows))
    rows = [*sums(2), {"prompt": "x" * 99_999, "answer": "12"}]
    with pytest.warns(PoloptWarning, match="line 3 holds more than 100,000 characters .* the largest 100,001;"):
        DatasetReader("exact").read(write(tmp_path / "y.jsonl", rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DatasetReader("exact").read(write(tmp_path / "z.jsonl", [*sums(3), *sums(3)]))


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
