"""Sequence classifiers of transformers as scorers of texts: published reward models, and ones fitted here."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# What transformers calls the architecture of a model with a head that scores a sequence.
HEAD = "ForSequenceClassification"
# The padding of a model that needs none, as all rows of a batch are of one length: it is the id of no token.
NO_PADDING = -1


class TextClassifier(nn.Module):
    """A sequence classifier of transformers that computes score(prompt, answer): the logit of one label, or several.

    Prompt and answer are the messages of a user and an assistant in the tokenizer's chat template. A tokenizer without
    one reads them as its pair of texts.

    A classifier that compares computes

        score(prompt, answer, reference) = (f(prompt, answer, reference) - f(prompt, reference, answer)) / 2

    from the logits f of both orders, so that no answer gains by its place. It reads the messages user: prompt,
    assistant: first answer, user: prompt, assistant: second answer; without a template, the prompt with the one and
    with the other answer, a line each, as the pair of texts.

    Texts of unlike lengths are never in one pass, so that there is no padding, and
    a row's score is the one that it has alone.

    model: the classifier.
    tokenizer: its tokenizer.
    label: the name or the number of the label whose logit is the score. A model of one label needs none.
    compares: whether it compares with a reference.
    outputs: of how many labels the logits are returned; of more than one, those of the first ones.

    Raises:
        ValueError: a model of several labels and none named, a label that the model does not have, or, when called,
            a text that is longer than the model's context, or no references for a classifier that compares.
    """

    def __init__(
        self, model: Any, tokenizer: Any, label: str | int | None = None, *, compares: bool = False, outputs: int = 1
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.compares, self.outputs = model, tokenizer, compares, outputs
        if outputs > model.config.num_labels or (outputs > 1 and label is not None):
            raise ValueError(
                f"TextClassifier: {outputs} outputs are those of the model's first labels, which has "
                f"{model.config.num_labels}; found label={label!r}"
            )
        self.label = label_number(model.config, label) if outputs == 1 else None

    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Tensor:
        """Returns scores [B], or [B, outputs] of several outputs, with gradient; references are read by a classifier
        that compares alone."""
        if not self.compares:
            return self._scores(self.read(prompts, answers))
        if references is None:
            raise ValueError("TextClassifier: it compares with references, found none")
        rows = self.read([*prompts, *prompts], [*answers, *references], [*references, *answers])
        there, back = self._scores(rows).chunk(2)
        return (there - back) / 2

    def _scores(self, read: list[dict[str, list[int]]]) -> Tensor:
        by_length: dict[int, list[int]] = {}
        for row, fields in enumerate(read):
            by_length.setdefault(len(fields["input_ids"]), []).append(row)
        kept: Any = slice(self.outputs) if self.label is None else self.label
        shape = (0,) if self.label is not None else (0, self.outputs)
        scores = [torch.zeros(shape, device=self.model.device, dtype=self.model.dtype)]
        scores += [self._logits([read[row] for row in alike])[:, kept] for alike in by_length.values()]
        order = [row for alike in by_length.values() for row in alike]
        return torch.cat(scores)[torch.tensor(order, dtype=torch.long, device=self.model.device).argsort()]

    def read(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> list[dict[str, list[int]]]:
        """Returns the inputs of the model for each row, with an answer and, if it compares, a second one."""
        rows = self._tokenise(prompts, answers, references)
        if rows:
            self._check_lengths([row["input_ids"] for row in rows])
        return rows

    def too_long(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> list[bool]:
        """Returns, for each row, whether it is longer than the model's context."""
        return [len(row["input_ids"]) > self.context for row in self._tokenise(prompts, answers, references)]

    def _tokenise(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None
    ) -> list[dict[str, list[int]]]:
        rows = list(zip(prompts, answers, strict=True))
        seconds = [None] * len(rows) if references is None else list(references)
        if not rows:
            return []
        if self.tokenizer.chat_template is None and references is not None:
            pairs = [(f"{p}\n{a}", f"{p}\n{b}") for (p, a), b in zip(rows, seconds, strict=True)]
            found = self.tokenizer(*map(list, zip(*pairs, strict=True)), truncation=False)
        elif self.tokenizer.chat_template is None:
            found = self.tokenizer([p for p, _ in rows], [a for _, a in rows], truncation=False)
        else:
            texts = [self._chat(p, a, b) for (p, a), b in zip(rows, seconds, strict=True)]
            found = self.tokenizer(texts, add_special_tokens=False, truncation=False)
        return [{name: values[row] for name, values in found.items()} for row in range(len(rows))]

    def _chat(self, prompt: str, answer: str, second: str | None = None) -> str:
        answers = [answer] if second is None else [answer, second]
        messages = [
            {"role": role, "content": text} for a in answers for role, text in (("user", prompt), ("assistant", a))
        ]
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False)
        return text

    @property
    def context(self) -> float:
        """The most tokens that the model reads."""
        # RoBERTa's position embeddings are more than the tokens it reads.
        return min(
            getattr(self.model.config.get_text_config(), "max_position_embeddings", math.inf),
            self.tokenizer.model_max_length,
        )

    def _check_lengths(self, rows: list[list[int]]) -> None:
        longest = max(map(len, rows))
        if longest > self.context:
            raise ValueError(
                f"TextClassifier: a prompt and its answer are {longest} tokens long, and {self._name()} reads "
                f"{self.context} at most; nothing is cut off, so set a smaller limit or leave long prompts out"
            )

    def _name(self) -> str:
        return getattr(self.model.config, "_name_or_path", "") or type(self.model).__name__

    def _logits(self, rows: list[dict[str, list[int]]]) -> Tensor:
        fields = {name: torch.tensor([row[name] for row in rows], device=self.model.device) for name in rows[0]}
        with _padding(self.model.config):
            logits: Tensor = self.model(**fields).logits
        return logits


@contextlib.contextmanager
def _padding(config: Any) -> Iterator[None]:
    """Lets a model without a padding token read several rows of one length, as it reads each of them alone."""
    text = config.get_text_config()
    before = text.pad_token_id
    try:
        if before is None:
            text.pad_token_id = NO_PADDING
        yield
    finally:
        text.pad_token_id = before


def label_number(config: Any, label: str | int | None) -> int:
    """Returns the number of the label whose logit is the score.

    Raises:
        ValueError: several labels and none named, or one that there is not.
    """
    names = {int(number): str(name) for number, name in config.id2label.items()}
    if label is None and len(names) == 1:
        return 0
    if label in names:
        return int(label)  # type: ignore[arg-type]
    for number, name in names.items():
        if label == name:
            return number
    shown = ", ".join(f"{name} ({number})" for number, name in sorted(names.items())[:8])
    found = "none is named" if label is None else f"found {label!r}"
    raise ValueError(f"label must be one of the classifier's, {shown}; {found}")


def check_classifier(name: Path | str, label: str | int | None = None, outputs: int = 1) -> None:
    """Checks, by its configuration alone, that there is a sequence classifier with this label, or with so many outputs.

    Raises:
        ValueError: no model of this name can be read, it has no head that scores, or not this label.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{name} holds no scorer that can be read: it is none of save_scorer's, and to transformers it is no model "
            f"({_line(error)})"
        ) from None
    _check_head(name, config)
    try:
        if outputs == 1:
            label_number(config, label)
        elif outputs > config.num_labels or label is not None:
            raise ValueError(f"it has {config.num_labels} labels, found outputs={outputs} and label={label!r}")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def load_classifier(
    name: Path | str,
    label: str | int | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    compares: bool = False,
    outputs: int = 1,
) -> TextClassifier:
    """Loads a sequence classifier of transformers from a folder, or from the hub by its name.

    label, compares, outputs: as `TextClassifier`.

    Raises:
        ValueError: as `check_classifier`, or weights of the head are not in the folder, or it has no tokenizer.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    check_classifier(name, label, outputs)
    try:
        with _quiet():
            model, told = AutoModelForSequenceClassification.from_pretrained(
                name, dtype=dtype, output_loading_info=True
            )
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{name} holds no sequence classifier that can be loaded ({_line(error)})") from None
    if told["missing_keys"]:
        missing = ", ".join(sorted(told["missing_keys"])[:4])
        raise ValueError(f"{name} lacks weights of the classifier ({missing}), so its scores would mean nothing")
    return TextClassifier(model, tokenizer, label, compares=compares, outputs=outputs)


def make_classifier(
    name: Path | str, *, compares: bool = False, outputs: int = 1, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[TextClassifier, bool]:
    """Loads a model of transformers, from a folder or the hub, as a sequence classifier to be trained; returns it, and
    whether its head is new.

    A sequence classifier with as many labels as `outputs` keeps its head. Every other model, as a language model, is
    given one whose weights are drawn from `seed`.

    Raises:
        ValueError: there is no such model, transformers has no sequence classifier of its architecture, or weights
            below the head are missing.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    try:
        with _quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, told = AutoModelForSequenceClassification.from_pretrained(
                name, dtype=dtype, num_labels=outputs, ignore_mismatched_sizes=True, output_loading_info=True
            )
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{name} holds no model that a sequence classifier can be made of ({_line(error)})") from None
    new = {str(key) for key in told["missing_keys"]} | {str(key[0]) for key in told["mismatched_keys"]}
    # An encoder's pooler belongs to the head: models of masked tokens have none.
    body = sorted(k for k in new if k.startswith(f"{model.base_model_prefix}.") and ".pooler." not in k)
    if body:
        raise ValueError(f"{name} lacks weights of the model ({', '.join(body[:4])}); name one that is whole")
    return TextClassifier(model, tokenizer, compares=compares, outputs=outputs), bool(new)


def _check_head(name: Path | str, config: Any) -> None:
    """A model with another head would be given a random one that scores."""
    made = [str(kind) for kind in config.architectures or ()]
    if not any(kind.endswith(HEAD) for kind in made):
        raise ValueError(
            f"{name} is a {', '.join(made) or config.model_type}, which has no head that scores a text; name a reward "
            f"model, whose architecture ends with {HEAD}"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own warning of missing weights, which is an error here."""
    logger = logging.getLogger("transformers")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        yield
    finally:
        logger.setLevel(level)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:240]
