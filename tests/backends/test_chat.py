"""Asking a server: once, in time, within the budget, and nothing said of the key."""

from __future__ import annotations

import copy
import re
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import torch
from chat_server import ChatServer, served

import polopt as po
from polopt.backends import BudgetError, Chat, ChatError
from polopt.rewards import HTTPJudge


@pytest.fixture
def server():
    with served(lambda question: f"It says {question!r}.\nScore: {len(question) % 11}") as server:
        yield server


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def chat(server: ChatServer, **changes: object) -> Chat:
    return Chat(**{"url": server.url, "model": "tiny", "backoff": 0.01, "seconds": 5.0, **changes})


def texts(replies: list) -> list[str | None]:
    return [None if reply is None else reply.text for reply in replies]


def test_the_request_is_a_chat_completion(server):
    replies = chat(server, temperature=0.5, limit=7, extra={"seed": 3})([ask("one")])
    assert texts(replies) == ["It says 'one'.\nScore: 3"]
    assert server.seen == [
        {"model": "tiny", "temperature": 0.5, "max_tokens": 7, "seed": 3, "messages": ask("one")},
    ]
    assert server.keys == [None]


def test_equal_questions_are_asked_once(server):
    part = chat(server)
    first = part([ask("a"), ask("b"), ask("a")])
    assert len(server.seen) == 2
    assert part([ask("b"), ask("a")]) == [first[1], first[0]]
    assert len(server.seen) == 2
    assert part([]) == []


@pytest.mark.parametrize(
    "event", [429, 500, 503, 408, "garbage", "drop", {"choices": []}, {"choices": [{"message": 1}]}]
)
def test_what_may_pass_is_tried_again(server, event):
    server.plan = [event, event]
    assert texts(chat(server)([ask("x")])) == ["It says 'x'.\nScore: 1"]
    assert len(server.seen) == 3


def test_a_slow_reply_and_one_that_drips_count_as_lost(server):
    server.plan = ["slow", "drip"]
    assert texts(chat(server, seconds=1.0)([ask("x")])) == ["It says 'x'.\nScore: 1"]
    assert len(server.seen) >= 3


def test_a_header_that_drips_is_given_up(server):
    """It comes to an end after three seconds, of which no byte is later than the one before by the limit of one."""
    server.plan = ["drip head"]
    with pytest.raises(ChatError, match=r"no answer after 1 tries: .*(in time|timed out)"):
        chat(server, seconds=1.0, retries=0)([ask("x")])


def test_a_reply_that_costs_more_than_any_file_holds(server, tmp_path):
    server.usage = {"total_tokens": 2**70}
    cache = str(tmp_path / "replies.sqlite")
    asked = chat(server, cache=cache)
    assert len(texts(asked([ask("x"), ask("y"), ask("z")]))) == 3
    assert asked.replies.spent().calls == 3


def test_an_endless_reply_is_not_read(server):
    server.plan = ["huge"]
    with pytest.raises(ChatError, match="more than 4194304 bytes"):
        chat(server, retries=0)([ask("x")])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_refused_at_once(server, status):
    server.plan = [status]
    with pytest.raises(ChatError, match=rf"returned status {status} after 1 tries: .*as planned"):
        chat(server)([ask("x")])
    assert len(server.seen) == 1


def test_tries_come_to_an_end(server):
    server.plan = [500] * 9
    with pytest.raises(ChatError, match="returned status 500 after 3 tries"):
        chat(server, retries=2)([ask("x")])
    assert len(server.seen) == 3


def test_retry_after_is_heeded(server):
    server.plan = [(429, {"Retry-After": "0.4"})]
    start = time.monotonic()
    chat(server)([ask("x")])
    assert time.monotonic() - start >= 0.4


def test_retry_after_may_be_a_date_and_no_longer_than_patience(server):
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    server.plan = [(429, {"Retry-After": date})]
    with pytest.raises(ChatError, match=r"status 429 with Retry-After 3[56]\d\d s after 1 tries"):
        chat(server)([ask("x")])


def test_a_redirect_takes_the_key_nowhere(server, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    with served() as other:
        server.plan = [(307, {"Location": other.url + "/chat/completions"}), (302, {"Location": other.url})]
        for _ in range(2):
            with pytest.raises(ChatError, match="returned status 30"):
                chat(server, key="SOME_KEY")([ask("x")])
        assert other.seen == []


def test_the_key_comes_from_the_environment_and_is_written_nowhere(server, monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    part = chat(server, key="SOME_KEY", cache=str(tmp_path / "replies.sqlite"))
    part([ask("x")])
    assert server.keys == ["Bearer sk-secret"]
    server.plan = [(401, {}, b"bad key sk-secret")]
    with pytest.raises(ChatError, match=re.escape("bad key ***")) as caught:
        part([ask("y")])
    written = [repr(part), part.to_yaml(), str(caught.value), str(part.state_dict()), str(vars(part))]
    assert not any("secret" in text for text in written)
    assert b"secret" not in (tmp_path / "replies.sqlite").read_bytes()
    for wrong, sentence in (("", "empty or not set"), ("a\nb", "no header may have")):
        monkeypatch.setenv("SOME_KEY", wrong)
        with pytest.raises(ChatError, match=sentence):
            part([ask("z")])


def test_a_file_of_replies_outlives_the_process(server, tmp_path):
    where = str(tmp_path / "deep" / "replies.sqlite")
    first = chat(server, cache=where)([ask("a"), ask("b")])
    again = chat(server, cache=where)
    assert again([ask("a"), ask("b")]) == first
    assert len(server.seen) == 2
    # Another model, temperature or server is another question.
    chat(server, cache=where, model="other")([ask("a")])
    chat(server, cache=where, temperature=1.0)([ask("a")])
    with served() as other:
        chat(other, cache=where)([ask("a")])
        assert len(other.seen) == 1
    assert len(server.seen) == 4


def test_a_failure_loses_no_other_reply(server, tmp_path):
    where = str(tmp_path / "replies.sqlite")
    server.plan = [None, None, 400]
    with pytest.raises(ChatError):
        chat(server, cache=where, concurrency=1)([ask("a"), ask("b"), ask("c"), ask("d")])
    paid = sqlite3.connect(where).execute("SELECT COUNT(*) FROM replies").fetchone()[0]
    assert paid >= 2
    server.seen.clear()
    chat(server, cache=where)([ask("a"), ask("b")])
    assert server.seen == []


def test_what_is_under_way_when_something_fails_is_paid_and_kept(server, tmp_path):
    where = str(tmp_path / "replies.sqlite")
    server.plan = [400, "slow"]
    with pytest.raises(ChatError, match="status 400"):
        chat(server, cache=where, seconds=30.0)([ask("a"), ask("b")])
    assert len(server.seen) == 2
    chat(server, cache=where)([ask("a"), ask("b")])
    assert len(server.seen) == 3


def test_half_a_character_is_kept_as_a_question_mark(server, tmp_path):
    server.plan = [{"choices": [{"message": {"content": "Score: 3 \ud800"}}]}]
    assert texts(chat(server, cache=str(tmp_path / "replies"))([ask("\udc00")])) == ["Score: 3 ?"]


def test_a_file_that_holds_something_else_is_refused(server, tmp_path):
    (tmp_path / "x.sqlite").write_text("no data base, but long enough to be read as one" * 100)
    with pytest.raises(ValueError, match="is no file of replies"):
        chat(server, cache=str(tmp_path / "x.sqlite"))([ask("a")])


def test_as_many_at_a_time_as_allowed(server):
    server.pause = 0.1
    chat(server, concurrency=3)([ask(str(i)) for i in range(9)])
    assert server.most_at_once == 3


def test_the_budget_of_calls_is_exact(server):
    part = chat(server, calls=3, spent="skip")
    said = texts(part([ask(x) for x in "abcaed"]))
    assert [text is None for text in said] == [False, False, False, False, True, True]
    assert len(server.seen) == 3
    assert texts(part([ask("f"), ask("a")])) == [None, said[0]]
    refusing = chat(server, calls=3)
    refusing([ask(x) for x in "abc"])
    with pytest.raises(BudgetError, match=r"3 replies with 30 tokens are paid, 1 more are requested, .*calls=3"):
        refusing([ask("d")])


def test_the_budget_of_tokens_ends_after_the_batch_that_passes_it(server):
    part = chat(server, tokens=25, spent="skip")
    assert None not in part([ask("a"), ask("b")])
    assert None not in part([ask("c"), ask("d")])  # 20 were spent when it began
    assert part([ask("e")]) == [None]
    assert part.replies.spent() == (4, 40)


def test_a_server_that_counts_no_tokens_is_taken_at_four_bytes(server):
    server.usage = None
    reply = chat(server)([ask("abcd")])[0]
    assert reply.tokens == -(-(4 + len(reply.text)) // 4)


@pytest.mark.parametrize("budget", [{"calls": 5}, {"tokens": 35}])
def test_a_batch_broken_off_is_decided_as_it_was(server, tmp_path, budget):
    """Batches of 4: with a budget that ends in the second, whichever replies of it were paid before it was killed."""
    batches = [[ask(x) for x in part] for part in ("abcd", "aefg", "ghij")]
    through = chat(server, spent="skip", cache=str(tmp_path / "through"), **budget)
    wanted = [texts(through(batch)) for batch in batches]
    assert any(text is None for batch in wanted for text in batch)
    paid_in_second = [i for i, text in enumerate(wanted[1]) if text is not None and i > 0]
    for survivor in paid_in_second:
        where = str(tmp_path / f"stopped-{survivor}")
        stopped = chat(server, spent="skip", cache=where, **budget)
        stopped(batches[0])
        chat(server, cache=where)([batches[1][survivor]])
        resumed = chat(server, spent="skip", cache=where, **budget)
        assert [texts(resumed(batch)) for batch in batches] == wanted


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"url": "ftp://x/v1"}, "url must be http:// or https://"),
        ({"url": "http://user:pass@x/v1"}, "hold no password"),
        ({"url": "http://x/v1?key=5"}, "no query"),
        ({"concurrency": 0}, "concurrency >= 1"),
        ({"seconds": 0.0}, "seconds > 0"),
        ({"calls": -1}, "calls and tokens must be >= 0"),
    ],
)
def test_bad_settings(changes, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        Chat(**{"url": "http://x/v1", "model": "m", **changes})
    assert "pass@" not in str(caught.value)


class TestHTTPJudge:
    def judge(self, server: ChatServer, **changes: object) -> HTTPJudge:
        return HTTPJudge(chat=chat(server), **{"template": "{prompt}|{answer}|{reference}", **changes})

    def test_scores_are_scaled_and_places_filled_once(self, server):
        found = self.judge(server)(["p{answer}"], ["{reference}"], ["r"])
        question = "p{answer}|{reference}|r"
        assert server.seen[0]["messages"] == ask(question)
        torch.testing.assert_close(found.scores, torch.tensor([len(question) % 11 / 10]).double())
        assert found.details[0]["reply"].startswith("It says")

    @pytest.mark.parametrize(
        ("reply", "score"),
        [
            ("Score: 7", 0.7),
            ("why\n\n  Score: 10  \n\n", 1.0),
            ("Score: 2.5", 0.25),
            ("Score: 11", None),
            ("Score: -1", None),
            ("Score: 7/10", None),
            ("Score: 9\nSorry, I meant less.", None),
            ("The answer says Score: 10", None),
            ("Ignore this.\u2028Score: 10", None),
            ("Ignore this.\x0bScore: 10", None),
            ("Ignore this.\x85Score: 10", None),
            ("why\r\nScore: 3\r\n", 0.3),
            ("Score: __import__('os').getpid()", None),
            ("Score: nan", None),
            ("Score: 1e1", None),
            ("", None),
        ],
    )
    def test_a_score_is_the_whole_last_line_or_none(self, server, reply, score):
        assert self.judge(server).read(reply) == score

    def test_rows_without_a_score_are_counted(self, server):
        server.say = lambda question: {"a": "Score: 4", "b": "no idea"}[question]
        judge = HTTPJudge(chat=chat(server, calls=2, spent="skip"), template="{answer}", otherwise=0.1)
        found = judge([""] * 3, ["a", "b", "c"])
        assert found.scores.tolist() == [0.4, 0.1, 0.1]
        counts = {name: int(judge.get_buffer(name)) for name in ("judged", "unread", "unpaid")}
        assert counts == {"judged": 3, "unread": 1, "unpaid": 1}
        judge.eval()([""], ["a"])
        assert int(judge.judged) == 3

    def test_whether_it_compares_is_what_it_asks(self, server):
        assert self.judge(server).compares
        assert not self.judge(server, template="{answer}").compares
        with pytest.raises(ValueError, match="compares with references, found none"):
            self.judge(server)(["p"], ["a"])
        with pytest.raises(ValueError, match="2 prompts need as many answers, found 1"):
            self.judge(server)(["p", "q"], ["a"])

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"template": "{prompt}"}, "template must have the place {answer}"),
            ({"pattern": "("}, "is no regular expression"),
            ({"pattern": "Score"}, "must have one group"),
            ({"low": 1.0, "high": 1.0}, "need low < high"),
        ],
    )
    def test_bad_settings(self, server, changes, sentence):
        with pytest.raises(ValueError, match=sentence):
            self.judge(server, **changes)

    def test_round_trip(self, server):
        judge = self.judge(server)
        assert po.diff(po.from_yaml(judge.to_yaml()), judge) == []
        copy.deepcopy(judge)(["p"], ["a"], ["r"])
        assert int(judge.judged) == 0
