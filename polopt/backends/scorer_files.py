"""Scorers of texts in folders, from which they are loaded again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from polopt.backends.scorer import ScorerShape, TextScorer
from polopt.backends.text_classifier import TextClassifier, check_classifier, load_classifier

# The file that tells a `TextScorer`'s folder from a model of transformers.
SHAPE = "scorer.json"


def save_scorer(scorer: TextScorer | TextClassifier, folder: Path | str) -> Path:
    """Writes a scorer to a folder, a classifier in the Hugging Face format; returns the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(scorer, TextClassifier):
        scorer.model.save_pretrained(folder)
        scorer.tokenizer.save_pretrained(folder)
        return folder
    save_file({k: v.detach().cpu().contiguous() for k, v in scorer.state_dict().items()}, folder / "model.safetensors")
    (folder / SHAPE).write_text(json.dumps(dataclasses.asdict(scorer.shape), indent=2) + "\n")
    return folder


def load_scorer(
    name: Path | str, label: str | int | None = None, *, dtype: torch.dtype = torch.float32
) -> TextScorer | TextClassifier:
    """Loads a scorer that `save_scorer` wrote, or a sequence classifier from a folder or, by its name, from the hub.

    label: name or number of the classifier's label whose logit is the score.

    Raises:
        ValueError: there is neither, the classifier lacks weights of its head, or it has not this label.
    """
    if not is_text_scorer(name):
        return load_classifier(name, label, dtype=dtype)
    check_scorer(name, label)
    folder = Path(name)
    try:
        shape = ScorerShape(**json.loads((folder / SHAPE).read_text()))
        weights = load_file(folder / "model.safetensors")
        scorer = TextScorer(shape)
        scorer.load_state_dict(weights)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{folder} holds no scorer that can be read ({reason}); make one with save_scorer") from None
    return scorer.to(dtype)


def check_scorer(name: Path | str, label: str | int | None = None) -> None:
    """Checks that there is a scorer of this name and label, without reading its weights.

    Raises:
        ValueError: there is none.
    """
    if not is_text_scorer(name):
        check_classifier(name, label)
    elif label is not None:
        raise ValueError(f"{name} holds a TextScorer, which has no labels, found label={label!r}; leave it out")


def is_text_scorer(name: Path | str) -> bool:
    """Returns True if the folder is that of a `TextScorer`."""
    return (Path(name) / SHAPE).is_file()
