"""Conversion of a world's texts and a policy's answers to one growing list of token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from polopt.config import ConfigError

# Placeholder of an answer, to find the text that a chat template puts around one.
_ANSWER = "\u241eanswer\u241e"


class Dialogue:
    """Token ids of the policy's input. Ids are only ever appended, so a turn's ids are a prefix of the next.

    With a chat template, observations are user messages and the template determines what surrounds them; without one
    they are plain text after the tokenizer's beginning-of-sequence token.

    chat_template_kwargs: arguments of the template besides the messages, such as `enable_thinking`.
    """

    def __init__(self, tokenizer: Any, chat_template_kwargs: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.tokenizer = tokenizer
        self.chat_template_kwargs = dict(chat_template_kwargs)

    @property
    def beginning(self) -> int:
        """The token before a raw text: the beginning-of-sequence token, or the end-of-sequence token if there is none.

        Raises:
            ValueError: the tokenizer has neither.
        """
        found = self.tokenizer.bos_token_id
        found = self.tokenizer.eos_token_id if found is None else found
        if found is None:
            raise ValueError("the tokenizer has no bos_token and no eos_token, and a raw text needs one in front")
        return found

    def opening(self, observation: str, history: Sequence[dict[str, str]] = ()) -> list[int]:
        """Returns the ids of the first observation, up to the beginning of the policy's first answer.

        history: messages before the observation, each with `role` and `content`.

        Raises:
            ConfigError: there is a history, and no chat template to format it; or the template rejects the messages.
        """
        return self.openings([(observation, history)])[0]

    def openings(self, begun: Sequence[tuple[str, Sequence[dict[str, str]]]]) -> list[list[int]]:
        """Returns `opening` of many (observation, history) in one faster call; equal ones are tokenized once."""
        keys = [(observation, repr(history)) for observation, history in begun]
        unlike = dict(zip(keys, begun, strict=True))
        found = dict(zip(unlike, self._openings([*unlike.values()]), strict=True))
        return [[*found[key]] for key in keys]

    def _openings(self, begun: Sequence[tuple[str, Sequence[dict[str, str]]]]) -> list[list[int]]:
        if self.tokenizer.chat_template is not None:
            texts = [self._render([*history, _user(observation)], answer_next=True) for observation, history in begun]
            return self._ids(texts)
        first_history = next((history for _, history in begun if history), None)
        if first_history is not None:
            raise ConfigError(
                f"a prompt has messages before it (role {first_history[0]['role']!r}), and the tokenizer has no chat "
                "template to write them; take a chat model as policy.model, set tokenizer.chat_template and save the "
                "tokenizer into that folder, or write the prompts as plain text"
            )
        return self.tokenizer([observation for observation, _ in begun])["input_ids"] if begun else []

    def reply(self, observation: str, stop: int) -> list[int]:
        """Returns the ids between an answer, which ended with the token `stop`, and the beginning of the next."""
        if self.tokenizer.chat_template is None:
            return self._ids([observation])[0]
        whole = self._render([_user("?"), _assistant(_ANSWER), _user(observation)], answer_next=True)
        (ids,) = self._ids([whole.partition(_ANSWER)[2]])
        return ids[1:] if ids[:1] == [stop] else ids

    def answer(self, text: str) -> list[int]:
        """Returns the ids of an answer as a policy would generate it, with its stop token."""
        return self.answers([text])[0]

    def answers(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns `answer` of many texts in one faster call."""
        return [[*ids, self.tokenizer.eos_token_id] for ids in self._ids(texts)]

    def text(self, ids: list[int]) -> str:
        """Decodes ids to text, for display and scoring; the text is never encoded again."""
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _render(self, messages: list[dict[str, str]], *, answer_next: bool) -> str:
        from jinja2 import TemplateError

        try:
            return self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=answer_next, **self.chat_template_kwargs
            )
        except TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ConfigError(
                f"the tokenizer's chat template refuses messages of the roles {roles}: {error}; write a system prompt "
                "into the user's message, or change tokenizer.chat_template"
            ) from error

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
