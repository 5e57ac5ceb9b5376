"""Conversations judged by a rubric, window by window, by a chat model."""

from __future__ import annotations

import pytest
from chat_server import served

from polopt.backends import Chat
from polopt.rewards.judges import HTTPWindowJudge, SlidingRubric

RUBRIC = ("orders tea", "pays", "says thanks")


def messages(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user" if i % 2 else "assistant", "content": text} for i, text in enumerate(texts)]


def shop(question: str) -> str:
    """Judges by words of the conversation alone, and leaves out what it does not find."""
    said = question.partition("<conversation>")[2].partition("</conversation>")[0]
    lines = [f"It {word}.\nITEM {i}: met" for i, word in ((1, "tea"), (2, "paid")) if word in said]
    if "refund" in said:
        lines.append("ITEM 2: not met")
    return "\n".join(lines) or "Nothing changed. ITEM 1: met"


def test_windows_of_a_conversation_are_judged_in_turn_with_what_was_found() -> None:
    long, asked = messages("hello", "tea please", "here", "paid", "bye", "a refund please"), list[str]()
    with served(lambda question: asked.append(question) or shop(question)) as server:
        rubric = SlidingRubric(judge=HTTPWindowJudge(chat=Chat(url=server.url, model="m")), window=3, overlap=1)
        first, second, third = rubric([long, messages("tea"), messages("x")], [RUBRIC] * 2 + [()], ["buy", "ask", "-"])
    assert first.met == (True, False, False)
    # Windows begin at messages 0, 2 and 4; the last one has the refund, and no line of the others.
    assert (first.windows, first.unread, first.reward, first.score) == (3, 0, 0.0, pytest.approx(1 / 3))
    assert (second.met, second.windows) == ((True, False, False), 1)
    assert (third.met, third.windows, third.reward, third.score) == ((), 0, 1.0, 1.0)
    later = next(text for text in asked if "[6] user: a refund please" in text)
    assert "[5] assistant: bye" in later
    assert "[4]" not in later
    assert "1. (met) orders tea" in later
    assert "2. (met) pays" in later
    assert "<task>\nbuy\n</task>" in later


@pytest.mark.parametrize(
    "reply", ["", "ITEM 1 met", "ITEM 4: met", "ITEM 0: met", "ITEM 1: met\nITEM 1: not met", "Therefore ITEM 1: met"]
)
def test_a_reply_that_cannot_be_read_changes_nothing_and_is_counted(reply: str) -> None:
    with served(lambda _: reply) as server:
        judge = HTTPWindowJudge(chat=Chat(url=server.url, model="m")).train()
        (found,) = SlidingRubric(judge=judge)([messages("a", "b")], [RUBRIC])
    assert (found.met, found.windows, found.unread) == ((False,) * 3, 1, 1)
    assert (int(judge.judged), int(judge.unread)) == (1, 1)


def test_bad_settings_and_lists_are_refused() -> None:
    judge = HTTPWindowJudge(chat=Chat(url="http://localhost:1", model="m"))
    with pytest.raises(ValueError, match="need 0 <= overlap < window, found 3 and 3"):
        SlidingRubric(judge=judge, window=3, overlap=3)
    with pytest.raises(ValueError, match="2 conversations need as many rubrics and tasks, found 1 and 2"):
        SlidingRubric(judge=judge)([messages("a"), messages("b")], [RUBRIC])
    with pytest.raises(ValueError, match="must have the places"):
        HTTPWindowJudge(chat=judge.chat, template="{window}")
    assert [list(SlidingRubric(judge=judge, window=10, overlap=2).starts(n)) for n in (0, 10, 11, 18, 19)] == [
        [0],
        [0],
        [0, 8],
        [0, 8],
        [0, 8, 16],
    ]
