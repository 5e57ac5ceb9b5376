"""Tokenizers made from texts, and dialogues made of ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from polopt.config import ConfigError
from polopt.policies.chat_format import Dialogue
from polopt.policies.tokenizer import PIECE, SPECIAL, make_tokenizer
from polopt.training.recipe import load
from polopt.worlds import build_tasks

WIDER = {
    "kind": "reasoning-gym",
    "datasets": {"chain_sum": None, "letter_counting": None, "word_sorting": None, "course_schedule": None},
    "heldout": 60,
}


def decode(tokenizer: Any, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


def encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.fixture(scope="module", params=["laptop", "wider"])
def made(request: pytest.FixtureRequest) -> tuple[Any, list[str]]:
    """A tokenizer made from 300 training tasks, and the texts of those, of later ones and of held-out ones."""
    split = build_tasks(load("laptop").tasks if request.param == "laptop" else WIDER, seed=0)
    train = [split.train[i] for i in range(500)]
    tokenizer = make_tokenizer((t.kind, t.prompt, t.solution or "") for t in train[:300])
    heldout = [split.heldout[i] for i in range(len(split.heldout))]
    return tokenizer, [text for t in (*train, *heldout) for text in (t.prompt, t.solution or "")]


def test_every_text_of_known_characters_survives(made: tuple[Any, list[str]]) -> None:
    """A rare letter that no example held is marked as unknown, in fewer than one text in a hundred."""
    tokenizer, texts = made
    strange = [text for text in texts if not set(text) <= tokenizer.get_vocab().keys()]
    assert len(strange) < 0.01 * len(texts)
    for text in texts:
        ids = encode(tokenizer, text)
        assert (tokenizer.unk_token_id in ids) == (text in strange)
        assert decode(tokenizer, ids) == text or text in strange


def test_templates_cost_next_to_nothing(made: tuple[Any, list[str]]) -> None:
    tokenizer, texts = made
    prompts = texts[::2]
    assert sum(len(encode(tokenizer, p)) for p in prompts) < 0.35 * sum(map(len, prompts))


@given(text=st.text(st.sampled_from([chr(i) for i in range(32, 127)] + list("\n\t\r\x0b\x0c")), max_size=60))
@settings(max_examples=150, deadline=None)
def test_any_printable_text_survives(text: str) -> None:
    assume(not any(special in text for special in SPECIAL))
    assert decode(SMALL, encode(SMALL, text)) == text


@given(
    pieces=st.lists(
        st.sampled_from(["What is", "What", "is", " ", "1", "12", "?", "sum", "sums", "résumé", "é", "_", "½"])
    )
)
@settings(max_examples=150, deadline=None)
def test_known_words_in_any_company_survive(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert decode(SMALL, encode(SMALL, text)) == text


SMALL = make_tokenizer([("sum", f"What is the sum of 1{i} and {i}? résumé ½", str(i)) for i in range(30)])


@given(st.text(max_size=40))
def test_pieces_cover_any_text(text: str) -> None:
    assert "".join(PIECE.findall(text)) == text


def test_numbers_are_read_digit_by_digit() -> None:
    """Even where a phrase of the template ends in a digit, as "sum of 1" does here."""
    for number in ("7", "12", "2024", "100"):
        ids = encode(SMALL, f"What is the sum of {number} and 3?")
        digits = [t for t in SMALL.convert_ids_to_tokens(ids) if t.strip().isdigit()]
        assert "".join(digits) == number + "3"
        assert all(len(d) == 1 for d in digits)


def test_a_word_is_one_token_and_never_a_part_of_a_longer_one() -> None:
    words = lambda text: SMALL.convert_ids_to_tokens(encode(SMALL, text))  # noqa: E731
    assert words("sum") == ["sum"]
    assert words("sums") == list("sums")
    assert words("resum") == list("resum")


def test_saved_and_loaded_it_gives_the_same_ids(made: tuple[Any, list[str]], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer, texts = made
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in texts[:200]:
        assert encode(loaded, text) == encode(tokenizer, text)
    for name in ("eos_token_id", "pad_token_id", "bos_token_id", "chat_template"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert Dialogue(loaded).opening("x") == Dialogue(tokenizer).opening("x")


def test_the_same_texts_give_the_same_tokenizer() -> None:
    texts = [("k", f"{w} {i}", w) for i, w in enumerate(["one", "two", "three"] * 9)]
    assert make_tokenizer(texts).get_vocab() == make_tokenizer(texts).get_vocab()


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chatml(*, eos: str = "<|im_end|>", template: str | None = CHATML) -> Any:
    """A tokenizer of characters in the manner of chat models."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>"]
    vocabulary = {t: i for i, t in enumerate([*special, *map(chr, range(32, 127)), "\n"])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=eos,
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=template,
    )


CHAT = [("guess", "50"), ("higher", "75"), ("lower", "62"), ("higher", "68")]


THINKING = CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n{% if not thinking %}<no>{% endif %}")
SYSTEM = {"role": "system", "content": "be brief"}
EARLIER = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]


@pytest.mark.parametrize("history", [[], [SYSTEM], [SYSTEM, *EARLIER], EARLIER], ids=range(4))
@pytest.mark.parametrize(
    ("template", "arguments", "prefix"),
    [(CHATML, {}, ""), (THINKING, {}, "<no>"), (THINKING, {"thinking": True}, "")],
    ids=range(3),
)
def test_a_dialogue_is_the_template_of_the_whole_conversation(
    template: str, arguments: dict[str, bool], prefix: str, history: list[dict[str, str]]
) -> None:
    """prefix: what the template puts before an answer. It stays, although the template forgets it of earlier turns."""
    tokenizer = chatml(template=template)
    dialogue = Dialogue(tokenizer, arguments)
    ids: list[int] = []
    messages, written = [*history], "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in history)
    for turn, (observation, answer) in enumerate(CHAT):
        before = list(ids)
        ids += dialogue.reply(observation, ids[-1]) if turn else dialogue.opening(observation, history)
        assert ids[: len(before)] == before
        messages.append({"role": "user", "content": observation})
        written += f"<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n{prefix}"
        assert ids == encode(tokenizer, written)
        if not prefix:
            whole = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **arguments)
            assert ids == encode(tokenizer, whole)
        said = dialogue.answer(answer)
        assert said == [*encode(tokenizer, answer), tokenizer.eos_token_id]
        assert dialogue.text(said) == answer
        ids += said
        written += f"{answer}<|im_end|>\n"
        messages.append({"role": "assistant", "content": answer})


def test_another_stop_token_than_the_templates_is_followed_by_the_templates() -> None:
    """A base model ends with <|endoftext|>, for which the template knows no place: its own end comes next."""
    tokenizer = chatml(eos="<|endoftext|>")
    end, stop = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    dialogue = Dialogue(tokenizer)
    tail = encode(tokenizer, "\n<|im_start|>user\nhigher<|im_end|>\n<|im_start|>assistant\n")
    assert dialogue.reply("higher", stop) == [end, *tail]
    assert dialogue.reply("higher", end) == tail


def test_without_a_template_texts_stand_alone() -> None:
    tokenizer = chatml(template=None)
    dialogue = Dialogue(tokenizer)
    assert dialogue.opening("guess") == encode(tokenizer, "guess")
    assert dialogue.reply("higher", tokenizer.eos_token_id) == encode(tokenizer, "higher")
    assert dialogue.text(dialogue.answer("4 , 2 !")) == "4 , 2 !"


def test_the_made_tokenizer_marks_who_speaks() -> None:
    dialogue = Dialogue(SMALL)
    assert SMALL.convert_ids_to_tokens(dialogue.opening("sum")) == ["<|ask|>", "sum", "<|answer|>"]
    assert SMALL.convert_ids_to_tokens(dialogue.answer("7")) == ["7", "<|end|>"]
    assert SMALL.convert_ids_to_tokens(dialogue.reply("sum", SMALL.eos_token_id)) == ["<|ask|>", "sum", "<|answer|>"]
    before = dialogue.opening("sum", [{"role": "system", "content": "7"}])
    assert SMALL.convert_ids_to_tokens(before) == ["<|ask|>", "7", "<|ask|>", "sum", "<|answer|>"]


def test_messages_that_no_template_can_write_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"has messages before it \(role 'system'\), and the tokenizer has no chat templ"
    ):
        Dialogue(chatml(template=None)).opening("sum", [SYSTEM])
    refuses = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    refuses += "{{ m.content }}{% endfor %}"
    dialogue = Dialogue(chatml(template=refuses))
    assert dialogue.opening("sum") == encode(dialogue.tokenizer, "sum")
    sentence = "chat template refuses messages of the roles system, user: no system role; write a system prompt into"
    with pytest.raises(ConfigError, match=sentence):
        dialogue.opening("sum", [SYSTEM])
