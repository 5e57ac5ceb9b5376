"""A small tokenizer made from the tasks' own texts: phrases of their templates, common words, characters."""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

SPECIAL = ("<|pad|>", "<|ask|>", "<|answer|>", "<|end|>", "<|unk|>")
PIECE = re.compile(r"\d|[^\W\d_]+|\s|[^\w\s]|_")
# The most prompts of a kind in which its template is searched for.
TEMPLATES = 100

# The chat template. Text that spells a special token is read as one; nothing depends on it.
CHAT = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}{{ message.content }}<|end|>"
    "{% elif message.role == 'system' %}<|ask|>{{ message.content }}"
    "{% else %}<|ask|>{{ message.content }}<|answer|>{% endif %}"
    "{% endfor %}"
)


def make_tokenizer(texts: Iterable[tuple[str, str, str]], *, word: float = 0.08, phrase: float = 0.9) -> Any:
    """Builds a `transformers` fast tokenizer from (kind, prompt, answer) examples.

    A word that occurs in a share `word` of a kind's texts is one token, and so is a run of tokens that occurs in a
    share `phrase` of its prompts: the template costs next to nothing. All else, digits always, is read character by
    character, so letters and digits can be computed with. Every text of characters that occur in the examples, or in
    printable ASCII, survives encoding and decoding.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    by_kind: dict[str, list[tuple[str, str]]] = {}
    for kind, prompt, answer in texts:
        by_kind.setdefault(kind, []).append((prompt, answer))
    vocabulary = set(string.printable)
    for pairs in by_kind.values():
        vocabulary.update(*(prompt + answer for prompt, answer in pairs))
        words = _words([*(p for p, _ in pairs), *(a for _, a in pairs)], word)
        vocabulary |= words
        vocabulary |= _phrases([_split(prompt, words) for prompt, _ in pairs[:TEMPLATES]], phrase)

    tokens = [*SPECIAL, *sorted(vocabulary)]
    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<|unk|>"))
    longest_first = sorted(vocabulary, key=lambda t: (-len(t), t))
    pattern = Regex("|".join(map(_pattern, longest_first)))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        bos_token="<|ask|>",
        eos_token="<|end|>",
        unk_token="<|unk|>",
        additional_special_tokens=["<|answer|>"],
        chat_template=CHAT,
        clean_up_tokenization_spaces=False,
    )


def _words(texts: Sequence[str], share: float) -> set[str]:
    found: Counter[str] = Counter()
    for text in texts:
        found.update({p for p in PIECE.findall(text) if len(p) > 1})
    return {word for word, count in found.items() if count >= share * len(texts)}


def _split(text: str, words: set[str]) -> list[str]:
    return [t for piece in PIECE.findall(text) for t in ([piece] if piece in words else piece)]


def _phrases(lines: list[list[str]], share: float) -> set[str]:
    """Merges the neighbours that are adjacent in the most lines, until none are in enough of them.

    Returns only the final merges: a part of a phrase that never occurs without the rest needs no token.
    """
    joined: set[str] = set()
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for line in lines:
            pairs.update(set(itertools.pairwise(line)))
        best = max(filter(_joinable, pairs), key=lambda p: (pairs[p], p), default=None)
        if best is None or pairs[best] < share * len(lines):
            return joined.intersection(itertools.chain(*lines))
        joined.add("".join(best))
        lines = [_joined(line, best) for line in lines]


def _joinable(pair: tuple[str, str]) -> bool:
    """Returns False for digits, which may be data, and for two letters, which the text may continue."""
    left, right = pair
    both_letters = left[-1].isalnum() and right[0].isalnum()
    return not (both_letters or left[-1].isdigit() or right[0].isdigit())


def _joined(line: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for token in line:
        if out and (out[-1], token) == pair:
            out[-1] += token
        else:
            out.append(token)
    return out


def _pattern(token: str) -> str:
    """Returns a pattern of the token that never matches a whole word inside a longer one, nor a part of a number."""
    pattern = re.escape(token)
    if len(token) > 1 and token[0].isalpha():
        pattern = r"(?<![A-Za-z])" + pattern
    if len(token) > 1 and token[-1].isalpha():
        pattern += r"(?![A-Za-z])"
    if len(token) > 1 and token[0].isdigit():
        pattern = r"(?<![0-9])" + pattern
    if len(token) > 1 and token[-1].isdigit():
        pattern += r"(?![0-9])"
    return pattern
