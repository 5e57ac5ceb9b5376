"""Scorers of texts in folders, from which they are loaded again."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from polopt.backends.preference_models import KINDS, PreferenceModel
from polopt.backends.scorer import ScorerShape, TextScorer
from polopt.backends.text_classifier import TextClassifier, check_classifier, load_classifier

# The file that tells a `TextScorer`'s folder from a model of transformers.
SHAPE = "scorer.json"
# The file that holds how the scores of a folder are read as preferences.
PREFERENCE = "preference.json"


@dataclasses.dataclass(frozen=True)
class PreferenceFit:
    """The reading of a fitted scorer's outputs.

    kind: of the preference model, a name in `preference_models.KINDS`.
    temperature: the divisor of margins with which probabilities are calibrated.

    Raises:
        ValueError: no such kind, or a temperature that is not above 0.
    """

    kind: str = "bradley-terry"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not 0 < self.temperature < math.inf:
            raise ValueError(
                f"kind must be one of {', '.join(KINDS)} and temperature above 0, found {self.kind!r} and "
                f"{self.temperature}"
            )

    @property
    def model(self) -> type[PreferenceModel]:
        return KINDS[self.kind]


def save_scorer(
    scorer: TextScorer | TextClassifier, folder: Path | str, preference: PreferenceFit | None = None
) -> Path:
    """Writes a scorer to a folder, a classifier in the Hugging Face format; returns the folder.

    preference: how its scores are read, for a scorer that was fitted to preferences.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if preference is not None:
        (folder / PREFERENCE).write_text(json.dumps(dataclasses.asdict(preference), indent=2) + "\n")
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
        fit = load_preference(name)
        compares, outputs = (False, 1) if fit is None else (fit.model.compares, fit.model.outputs)
        return load_classifier(name, label, dtype=dtype, compares=compares, outputs=outputs)
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
    fit = load_preference(name)
    if not is_text_scorer(name):
        check_classifier(name, label, 1 if fit is None else fit.model.outputs)
    elif label is not None:
        raise ValueError(f"{name} holds a TextScorer, which has no labels, found label={label!r}; leave it out")


def load_preference(name: Path | str) -> PreferenceFit | None:
    """Returns how the scores of a folder are read as preferences; None where it does not hold that, as the folder of a
    published reward model, or the name of one.

    Raises:
        ValueError: the file is damaged.
    """
    path = Path(name) / PREFERENCE
    if not path.is_file():
        return None
    try:
        return PreferenceFit(**json.loads(path.read_text()))
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({' '.join(str(error).split())}); fit the model again") from None


def is_text_scorer(name: Path | str) -> bool:
    """Returns True if the folder is that of a `TextScorer`."""
    return (Path(name) / SHAPE).is_file()
