"""Prompts in chat format: lists of messages, each with a role and a content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from polopt.worlds.rows import MalformedRow, shown

FORM = "[{role: user, content: ...}]"


class Conversation(NamedTuple):
    """A prompt in chat format, split into its parts.

    history: the messages before the last user message.
    prompt: the text of the last user message.
    answer: the assistant's answer after it, None if the conversation has none.
    """

    history: tuple[dict[str, str], ...]
    prompt: str
    answer: str | None

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages that the policy receives."""
        return [*self.history, {"role": "user", "content": self.prompt}]


def conversation(value: Any, field: str) -> Conversation:
    """Splits a prompt into its parts; plain text is one user message.

    field: name of the field in errors.

    Raises:
        MalformedRow: the value is neither text nor messages of text, or has no user message to answer.
    """
    if isinstance(value, str) and value.strip():
        return Conversation((), value, None)
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise MalformedRow(f"field {field!r} must be non-empty text or messages like {FORM}, found {shown(value)}")
    messages = [message_of(message, f"field {field!r}: message {i}") for i, message in enumerate(value, start=1)]
    answer = messages.pop()["content"] if messages[-1]["role"] == "assistant" else None
    if not messages or messages[-1]["role"] != "user":
        role = messages[-1]["role"] if messages else "assistant"
        raise MalformedRow(
            f"field {field!r} must end with a message of the user, or with one and the assistant's answer to it, found "
            f"one of role {role!r}"
        )
    return Conversation(tuple(messages[:-1]), messages[-1]["content"], answer)


def message_of(message: Any, where: str) -> dict[str, str]:
    """Returns a message as a dict of its role and its text.

    where: location of the message in errors.

    Raises:
        MalformedRow: the value is no text message.
    """
    if not isinstance(message, Mapping):
        raise MalformedRow(f"{where} must be like {FORM[1:-1]}, found {shown(message)}")
    for key in ("role", "content"):
        if key not in message:
            raise MalformedRow(f"{where} has no {key!r}, only {', '.join(map(repr, message))}")
    # In Parquet every message has all keys that any of them has.
    more = [key for key, value in message.items() if key not in ("role", "content") and value]
    if more:
        raise MalformedRow(f"{where} has {more[0]!r}, which a prompt cannot hold; write it into the content")
    role, content = message["role"], _text(message["content"])
    if not isinstance(role, str) or not role:
        raise MalformedRow(f"{where} must have a role such as 'user', found {shown(role)}")
    if content is None:
        raise MalformedRow(f"{where} must have text as its content, found {shown(message['content'])}")
    return {"role": role, "content": content}


def _text(content: Any) -> str | None:
    """Returns the text of a content, which is text or a list of text parts; None for any other content."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not content:
        return None
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else None  # type: ignore[arg-type]
