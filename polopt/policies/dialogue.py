"""How a world's texts and a policy's answers become one growing list of token ids."""

from __future__ import annotations

from typing import Any

# Stands for an answer when a chat template is asked what it puts around one.
_ANSWER = "\u241eanswer\u241e"


class Dialogue:
    """Token ids of what the policy reads. Ids are only ever appended, so a turn's ids are a prefix of the next.

    With a chat template, observations are user messages and the template says what surrounds them; without
    one they are plain text after the tokenizer's beginning-of-sequence token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @property
    def beginning(self) -> int:
        """What a raw text stands behind: the beginning-of-sequence token, or the one that ended the text before.

        Raises:
            ValueError: the tokenizer has neither.
        """
        found = self.tokenizer.bos_token_id
        found = self.tokenizer.eos_token_id if found is None else found
        if found is None:
            raise ValueError("the tokenizer has no bos_token and no eos_token, and a raw text needs one in front")
        return found

    def opening(self, observation: str) -> list[int]:
        """Ids of the first observation, up to where the policy's first answer begins."""
        if self.tokenizer.chat_template is None:
            return self.tokenizer(observation)["input_ids"]
        return self._ids(self._render([_user(observation)], answer_next=True))

    def reply(self, observation: str, stop: int) -> list[int]:
        """Ids between an answer, which ended with the token `stop`, and the beginning of the next."""
        if self.tokenizer.chat_template is None:
            return self._ids(observation)
        whole = self._render([_user("?"), _assistant(_ANSWER), _user(observation)], answer_next=True)
        ids = self._ids(whole.partition(_ANSWER)[2])
        return ids[1:] if ids[:1] == [stop] else ids

    def answer(self, text: str) -> list[int]:
        """Ids of an answer as a policy would give it, with its stop token."""
        return [*self._ids(text), self.tokenizer.eos_token_id]

    def text(self, ids: list[int]) -> str:
        """What the ids say: a view, never encoded again."""
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _render(self, messages: list[dict[str, str]], *, answer_next: bool) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer_next)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
