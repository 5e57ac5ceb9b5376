"""Questions that a book answers: shown or not, the same for the same seed, and refused where they make no sense."""

from __future__ import annotations

import pytest

from polopt.config import ConfigError
from polopt.worlds import build_tasks

BOOK = "a42 b71 c19"


@pytest.mark.parametrize("shown", [False, True])
def test_a_task_is_answered_by_its_book_and_by_nothing_else(shown: bool) -> None:
    split = build_tasks({"kind": "rulebook", "book": BOOK, "shown": shown, "train": 60, "heldout": 20}, seed=1)
    again = build_tasks({"kind": "rulebook", "book": BOOK, "shown": shown, "train": 60, "heldout": 20}, seed=1)
    prompts = []
    for tasks, others, numbers in ((split.train, again.train, "01234"), (split.heldout, again.heldout, "56789")):
        for i in range(len(tasks)):
            task = tasks[i]
            assert task == others[i]
            question, *rules = task.prompt.split("?")
            number, letter = question.split()
            assert number in numbers
            book = rules[0].split() if shown else BOOK.split()
            assert [rule[0] for rule in book] == ["a", "b", "c"]
            assert (rules == [""]) != shown
            right = next(rule[1:] for rule in book if rule[0] == letter)
            for answer in (right, right[0], right + "1", "", letter + right):
                episode = tasks.episode(task)
                assert episode.reset() == task.prompt
                assert episode.step(answer).reward == float(answer == right)
            assert tasks.episode(task).demonstrate() == right
            prompts.append(task.prompt)
    assert len(set(prompts)) > 20
    books = {prompt.split("?")[1] for prompt in prompts}
    assert len(books) > 50 if shown else books == {""}
    assert {tuple(sorted(text.split())) for text in split.texts} == {tuple(sorted(BOOK.split()))}
    assert len(set(split.texts)) == 6


@pytest.mark.parametrize("book", ["", "a4 b71", "a4 a5", "ab c1", "44 b1"])
def test_what_is_no_book_is_refused(book: str) -> None:
    with pytest.raises(ConfigError, match="different letters with equally many digits"):
        build_tasks({"kind": "rulebook", "book": book}, seed=0)
    split = build_tasks({"kind": "rulebook", "train": 3}, seed=0)
    with pytest.raises(IndexError):
        split.train[3]
