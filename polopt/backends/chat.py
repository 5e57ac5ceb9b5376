"""A client of a model behind an OpenAI-compatible server, with a cache, a budget and retries."""

from __future__ import annotations

import concurrent.futures
import json
import math
import os
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from polopt.backends.replies import Replies, Reply, content_key
from polopt.backends.wire import HTTPAnswer, post
from polopt.errors import UserError
from polopt.part import Part

Messages = Sequence[Mapping[str, str]]


# The most tokens counted for one reply, so that the sum over a file of replies fits in 64 bits.
MOST_TOKENS = 2**40


class ChatError(UserError, RuntimeError):
    """Raised when the server does not answer as expected; the message names the address, the response and the fix."""


class BudgetError(ChatError):
    """Raised when the budget is exhausted."""


class Chat(Part):
    """A client of a chat model: `chat(conversations) -> [Reply | None]`, with replies from `url`/chat/completions.

    url: as in http://localhost:8000/v1.
    model: the model's name on the server.
    key: the name of the environment variable with the API key, "" for none; the key itself is never written anywhere.
    temperature, limit: sampling temperature and maximum number of tokens of the reply.
    extra: further fields of the request.
    cache: a file in which every reply is stored by the hash of its request, None to store them in memory. A request
        that is in the cache is never sent again, whatever the temperature: with a file, a resumed run has no request
        charged twice and reads the same replies.
    concurrency: the most concurrent requests.
    seconds: time limit of a request.
    retries: further attempts after a failure that may be temporary (no answer, 408, 409, 425, 429, 5xx, a reply that is
        no chat completion).
    backoff: seconds before the first retry, doubled for each further one, or as Retry-After demands.
    patience: the most seconds to wait before a retry.
    calls, tokens: the most replies, and tokens, that the cache may hold, None for no limit; if a server does not report
        tokens, one token per four bytes is assumed. Both are checked before a batch of conversations: a batch that
        begins within `tokens` is sent as a whole.
    spent: the action when the budget is exhausted, "refuse" (BudgetError) or "skip" (None for a reply).

    Raises:
        ChatError: the server refuses, or every attempt failed.
        BudgetError: the budget is exhausted.
    """

    url: str
    model: str
    key: str = ""
    temperature: float = 0.0
    limit: int = 512
    extra: Mapping[str, Any] | None = None
    cache: str | None = None
    concurrency: int = 8
    seconds: float = 60.0
    retries: int = 4
    backoff: float = 1.0
    patience: float = 60.0
    calls: int | None = None
    tokens: int | None = None
    spent: Literal["refuse", "skip"] = "refuse"

    @property
    def servers(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.url})

    def setup(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            raise ValueError(
                "backends.Chat: url must be http:// or https:// with a host, and hold no password and no query: the "
                f"key belongs in an environment variable; found scheme {parts.scheme!r}, host {parts.hostname!r}"
            )
        if self.limit < 1 or self.concurrency < 1 or self.retries < 0 or not self.temperature >= 0:
            raise ValueError(
                "backends.Chat: need limit and concurrency >= 1, retries and temperature >= 0, found "
                f"{self.limit}, {self.concurrency}, {self.retries} and {self.temperature}"
            )
        if not (self.seconds > 0 and self.backoff >= 0 and self.patience >= 0):
            raise ValueError(
                "backends.Chat: need seconds > 0, backoff and patience >= 0, found "
                f"{self.seconds}, {self.backoff} and {self.patience}"
            )
        if any(most is not None and most < 0 for most in (self.calls, self.tokens)):
            raise ValueError(f"backends.Chat: calls and tokens must be >= 0 or None, found {self.calls}, {self.tokens}")
        self.replies = Replies(self.cache)

    def forward(self, conversations: Sequence[Messages]) -> list[Reply | None]:
        keys = [content_key({"url": self.url, **self._body(messages)}) for messages in conversations]
        requests = dict(zip(keys, conversations, strict=True))
        known = self.replies.known(requests)
        unknown = [key for key in requests if key not in known]
        known |= self._send({key: requests[key] for key in self._affordable(unknown, known)})
        return [known.get(key) for key in keys]

    def _affordable(self, unknown: Sequence[str], known: Mapping[str, Reply]) -> Sequence[str]:
        """Returns the requests that the budget allows.

        Replies that an interrupted batch has already paid for count as not yet spent, so that the rest of that batch is
        decided as in the first attempt.
        """
        if not unknown or (self.calls is None and self.tokens is None):
            return unknown
        used = self.replies.spent()
        allowed = len(unknown)
        if self.calls is not None:
            allowed = min(allowed, max(0, self.calls - used.calls))
        if self.tokens is not None and used.tokens - sum(reply.tokens for reply in known.values()) >= self.tokens:
            allowed = 0
        if allowed < len(unknown) and self.spent == "refuse":
            raise BudgetError(
                f"backends.Chat: {used.calls} replies with {used.tokens} tokens are paid, {len(unknown)} more are "
                f"requested, and the budget is calls={self.calls}, tokens={self.tokens}; raise it, or set spent to "
                "'skip'"
            )
        return unknown[:allowed]

    def _send(self, requests: Mapping[str, Messages]) -> dict[str, Reply]:
        """Sends the requests; each reply is stored as soon as it arrives, and pending ones also after a failure, as
        they are paid."""
        if not requests:
            return {}
        headers, stop = self._headers(), threading.Event()
        found: dict[str, Reply] = {}
        pool = concurrent.futures.ThreadPoolExecutor(min(self.concurrency, len(requests)))
        waiting = {pool.submit(self._one, messages, headers, stop): key for key, messages in requests.items()}
        try:
            for done in concurrent.futures.as_completed(waiting):
                found[waiting[done]] = done.result()
                self.replies.keep(waiting[done], done.result())
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            for late, key in waiting.items():
                if key not in found and late.done() and not late.cancelled() and late.exception() is None:
                    self.replies.keep(key, late.result())
        return found

    def _body(self, messages: Messages) -> dict[str, Any]:
        fixed = {"model": self.model, "temperature": self.temperature, "max_tokens": self.limit}
        return {**fixed, **(self.extra or {}), "messages": [dict(message) for message in messages]}

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.key:
            secret = os.environ.get(self.key, "").strip()
            if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
                raise ChatError(
                    f"backends.Chat: environment variable {self.key} must hold the API key, and it is "
                    f"{'empty or not set' if not secret else 'no key: it has characters that no header may have'}"
                )
            headers["Authorization"] = f"Bearer {secret}"
        return headers

    def _one(self, messages: Messages, headers: Mapping[str, str], stop: threading.Event) -> Reply:
        """Returns one reply, with retries."""
        body = json.dumps(self._body(messages)).encode()
        where = self.url.rstrip("/") + "/chat/completions"
        for attempt in range(self.retries + 1):
            answer = post(where, body, headers, self.seconds)
            reply = _read(answer, messages)
            if reply is not None:
                return reply
            passing = answer.transient or answer.status == 200
            wait = max(self.backoff * 2**attempt, answer.wait or 0.0)
            if not passing or attempt == self.retries or (answer.wait or 0.0) > self.patience or stop.is_set():
                break
            stop.wait(min(wait, self.patience))
        response = answer.body[:300].decode("utf-8", "replace")
        secret = headers.get("Authorization", "").removeprefix("Bearer ")
        response = " ".join((response.replace(secret, "***") if secret else response).split())
        status = f"status {answer.status}" if answer.status else "no answer"
        retry_after = f" with Retry-After {answer.wait:.0f} s" if answer.wait else ""
        raise ChatError(
            f"backends.Chat: {where} returned {status}{retry_after} after {attempt + 1} tries: "
            f"{response or 'nothing'!s}; look at the server, the model's name and the key"
        )


def _read(answered: HTTPAnswer, messages: Messages) -> Reply | None:
    """Parses the reply in a chat completion; None if there is none."""
    if answered.status != 200:
        return None
    try:
        data = json.loads(answered.body)
        text = data["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    text = "" if text is None else text  # the model ran out of tokens before any output
    if not isinstance(text, str):
        return None
    text = text.encode("utf-8", "replace").decode()  # JSON may contain half a surrogate pair, a file may not
    usage = data.get("usage")
    counted = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    if not isinstance(counted, int) or isinstance(counted, bool) or counted < 0:
        written = sum(len(message["content"].encode("utf-8", "replace")) for message in messages) + len(text.encode())
        counted = math.ceil(written / 4)
    return Reply(text, min(counted, MOST_TOKENS))
