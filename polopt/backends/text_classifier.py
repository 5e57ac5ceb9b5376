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
    """A sequence classifier of transformers that computes score(prompt, answer): the logit of one label.

    Prompt and answer are the messages of a user and an assistant in the tokenizer's chat template. A tokenizer without
    one reads them as its pair of texts. Texts of unlike lengths are never in one pass, so that there is no padding, and
    a row's score is the one that it has alone.

    model: the classifier.
    tokenizer: its tokenizer.
    label: the name or the number of the label whose logit is the score. A model of one label needs none.

    Raises:
        ValueError: a model of several labels and none named, a label that the model does not have, or, when called,
            a text that is longer than the model's context.
    """

    def __init__(self, model: Any, tokenizer: Any, label: str | int | None = None) -> None:
        super().__init__()
        self.model, self.tokenizer = model, tokenizer
        self.label = label_number(model.config, label)

    def forward(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Tensor:
        """Returns scores [B], with gradient; references are not read."""
        read = self.read(prompts, answers)
        by_length: dict[int, list[int]] = {}
        for row, fields in enumerate(read):
            by_length.setdefault(len(fields["input_ids"]), []).append(row)
        scores = [torch.zeros(0, device=self.model.device, dtype=self.model.dtype)]
        scores += [self._logits([read[row] for row in alike])[:, self.label] for alike in by_length.values()]
        order = [row for alike in by_length.values() for row in alike]
        return torch.cat(scores)[torch.tensor(order, dtype=torch.long, device=self.model.device).argsort()]

    def read(self, prompts: Sequence[str], answers: Sequence[str]) -> list[dict[str, list[int]]]:
        """Returns the inputs of the model for each row."""
        pairs = list(zip(prompts, answers, strict=True))
        if not pairs:
            return []
        if self.tokenizer.chat_template is None:
            found = self.tokenizer([p for p, _ in pairs], [a for _, a in pairs], truncation=False)
        else:
            found = self.tokenizer([self._chat(*pair) for pair in pairs], add_special_tokens=False, truncation=False)
        self._check_lengths(found["input_ids"])
        return [{name: values[row] for name, values in found.items()} for row in range(len(pairs))]

    def _chat(self, prompt: str, answer: str) -> str:
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False)
        return text

    def _check_lengths(self, rows: list[list[int]]) -> None:
        # RoBERTa's position embeddings are more than the tokens it reads.
        context = min(
            getattr(self.model.config.get_text_config(), "max_position_embeddings", math.inf),
            self.tokenizer.model_max_length,
        )
        longest = max(map(len, rows))
        if longest > context:
            raise ValueError(
                f"TextClassifier: a prompt and its answer are {longest} tokens long, and {self._name()} reads "
                f"{context} at most; nothing is cut off, so set a smaller limit or leave long prompts out"
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


def check_classifier(name: Path | str, label: str | int | None = None) -> None:
    """Checks, by its configuration alone, that there is a sequence classifier with this label.

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
        label_number(config, label)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def load_classifier(
    name: Path | str, label: str | int | None = None, *, dtype: torch.dtype = torch.float32
) -> TextClassifier:
    """Loads a sequence classifier of transformers from a folder, or from the hub by its name.

    Raises:
        ValueError: as `check_classifier`, or weights of the head are not in the folder, or it has no tokenizer.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    check_classifier(name, label)
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
    return TextClassifier(model, tokenizer, label)


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
