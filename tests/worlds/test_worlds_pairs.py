"""A user's own preferences: the forms of a row, what is refused, and what a task then holds."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from polopt.config import ConfigError
from polopt.worlds import PairReader, RatedAnswer, Task, build_tasks
from polopt.worlds.protocol import are_verified
from polopt.worlds.subset import SubsetTasks

ASK = [{"role": "system", "content": "Brief."}, {"role": "user", "content": "2+2?"}]
GOOD: dict[str, Any] = {"prompt": "2+2?", "chosen": "4", "rejected": "5"}


def reply(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def written(folder: Path, rows: list[Any]) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder: Path, rows: list[Any], **settings: Any) -> list[Task]:
    tasks = PairReader(**settings).read(written(folder, rows))
    return [tasks[i] for i in range(len(tasks))]


def test_every_form_of_a_row_is_the_same_pair(tmp_path: Path) -> None:
    """The explicit prompt, as text and as messages, and the implicit one, whose messages stand in both answers."""
    plain, answers, messages, whole, implicit = read(
        tmp_path,
        [
            GOOD,
            {**GOOD, "chosen": reply("4"), "rejected": reply("5")},
            {"prompt": ASK, "chosen": reply("4"), "rejected": reply("5")},
            {"prompt": ASK, "chosen": [*ASK, *reply("4")], "rejected": [*ASK, *reply("5")]},
            {"chosen": [*ASK, *reply("4")], "rejected": [*ASK, *reply("5")]},
        ],
    )
    for task in (plain, answers, messages, whole, implicit):
        assert (task.prompt, task.solution, task.rated, task.kind) == ("2+2?", "4", (("4", 1.0), ("5", 0.0)), "mine")
    assert plain.history == answers.history == ()
    assert messages.history == whole.history == implicit.history == (ASK[0],)
    assert [plain.id, implicit.id] == ["mine:1", "mine:5"]


def test_fields_system_prompt_and_kind(tmp_path: Path) -> None:
    row = {"q": "2+2?", "a": {"best": "4", "worst": "5"}, "topic": "sums"}
    (task,) = read(tmp_path, [row], prompt="q", chosen="a.best", rejected="a.worst", kind="topic", system="Be kind.")
    assert (task.prompt, task.solution, task.rated, task.kind) == ("2+2?", "4", (("4", 1.0), ("5", 0.0)), "sums")
    assert task.history == ({"role": "system", "content": "Be kind."},)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"prompt": "x", "chosen": "4"}, "field 'rejected' is missing"),
        ({"prompt": "x", "rejected": "4"}, "field 'chosen' is missing"),
        ({"chosen": "4", "rejected": "5"}, "field 'prompt' is missing"),
        ({"chosen": [*ASK, *reply("4")], "rejected": reply("5")}, "field 'prompt' is missing"),
        ({**GOOD, "rejected": "4"}, "fields 'chosen' and 'rejected' hold the same answer"),
        ({**GOOD, "rejected": reply("4")}, "fields 'chosen' and 'rejected' hold the same answer"),
        ({**GOOD, "prompt": " "}, "field 'prompt' must be non-empty text or messages"),
        ({**GOOD, "prompt": 3}, "field 'prompt' must be non-empty text or messages"),
        ({**GOOD, "chosen": 4}, "field 'chosen' must be non-empty text or messages like [{role: assistant"),
        ({**GOOD, "chosen": ""}, "field 'chosen' must be non-empty text or messages like [{role: assistant"),
        ({**GOOD, "chosen": None}, "field 'chosen' must be non-empty text or messages like [{role: assistant"),
        ({**GOOD, "chosen": [{"role": "assistant"}]}, "field 'chosen': message 1 has no 'content'"),
        ({**GOOD, "chosen": ASK}, "field 'chosen' must end with a non-empty message of the assistant"),
        (
            {**GOOD, "chosen": [*ASK, *reply("4")]},
            "the messages before the answer in field 'chosen' are not the prompt",
        ),
        (
            {"chosen": [*ASK, *reply("4")], "rejected": [ASK[1], *reply("5")]},
            "the messages before the answer in field 'rejected' are not the prompt",
        ),
        ({**GOOD, "prompt": [*ASK, *reply("4")]}, "field 'prompt' must end its prompt with a message of the user"),
    ],
)
def test_a_malformed_row_is_one_sentence_with_its_line(tmp_path: Path, row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=rf"mine.jsonl: 1 of 3 rows are malformed: line 2: {re.escape(sentence)}"):
        read(tmp_path, [GOOD, row, GOOD])


def test_a_world_of_pairs_splits_prompts_and_verifies_nothing(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i % 10}?", "chosen": f"{i}", "rejected": "no"} for i in range(40)]
    split = build_tasks({"kind": "pairs", "path": str(written(tmp_path, rows)), "heldout": 0.3}, seed=1)
    assert (len(split.train), len(split.heldout)) == (28, 12)
    prompts = [{part[i].prompt for i in range(len(part))} for part in (split.train, split.heldout)]
    assert not prompts[0] & prompts[1]
    assert not are_verified(split.train)
    assert not are_verified(SubsetTasks(split.train, [0, 1]))
    task = split.train[0]
    episode = split.train.episode(task)
    assert (episode.reset(), episode.demonstrate()) == (task.prompt, task.solution)
    assert episode.step(task.solution or "").reward == 1


def test_rated_answers_of_a_users_own_world_are_checked() -> None:
    from polopt.worlds import TaskList, TaskSplit
    from polopt.worlds.contract import check_split

    for rated, message in (
        ([("a", 1.0)], "a tuple of polopt.worlds.RatedAnswer"),
        ((RatedAnswer("a", 1.0), RatedAnswer("a", 0.0)), "different answers with finite scores, the best first"),
        ((RatedAnswer("a", 0.0), RatedAnswer("b", 1.0)), "different answers with finite scores, the best first"),
        ((RatedAnswer("a", math.nan),), "different answers with finite scores, the best first"),
    ):
        tasks = TaskList([Task("t", "t", "q", "a", {}, rated=rated)], lambda text, task: (0.0, {}))
        with pytest.raises(ConfigError, match=r"own: train: TaskList\[0\].rated must be " + message):
            check_split(TaskSplit(tasks, tasks), "own")
