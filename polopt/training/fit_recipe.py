"""The recipe of a fit: a preference model, a scorer that it is fitted to, and the pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from polopt.backends.preference_models import KINDS, PreferenceModel
from polopt.backends.scorer import ScorerShape
from polopt.config import Config, ConfigError, PlainMap, parse
from polopt.names import nearest
from polopt.packages import path_of
from polopt.training.data_recipe import kind_of_file
from polopt.training.recipe import set_by_path
from polopt.training.specs import Positive
from polopt.yaml_data import write_yaml

DEFAULT = "bradley-terry"
# Passes over the pairs, and the first learning rate, of a scorer that begins with nothing and of a pretrained model.
SMALL, PRETRAINED = (20.0, 3e-3), (3.0, 1e-5)


class FitRecipe(Config):
    """A fit of a preference model, complete.

    kind: what the recipe is of.
    tasks: the pairs, as the tasks of a training recipe: kind pairs or ranked, path, heldout, names of fields.
    preference: the kind, bradley-terry, preference or gaussian; with its settings {name: ..., label_smoothing: 0.1}.
    model: a model of transformers by folder or hub name, which is fine-tuned as a whole; null for a `TextScorer`.
    shape: settings of the `TextScorer`, width, layers, window and length.
    margin: name of the field with the margin by which the preferred answer should be ahead.
    probability: name of the field with the probability in (0, 1] that the preferred answer is preferred.
    position: name of the field that is true where the preferred answer was shown first; for the results alone.
    members: models that are fitted, from different seeds and in different orders of the rows.
    epochs: passes over the pairs; 3 for a model, 20 for a `TextScorer` if null.
    rows: pairs in a batch. micro_rows: the most in one forward pass; 8 for a model, all for a `TextScorer` if null.
    lr: the first learning rate, which falls linearly to 0; 1e-5 for a model, 3e-3 for a `TextScorer` if null.
    weight_decay, max_grad_norm: of AdamW; null leaves gradients as they are.
    device, dtype: where and in which precision a model is trained.
    seed: of the held-out prompts, of new weights, of the order of rows, and of dropout.
    """

    kind: Literal["fit"] = "fit"
    tasks: PlainMap
    preference: str | PlainMap = DEFAULT
    model: str | None = None
    shape: PlainMap = pydantic.Field(default_factory=dict)
    margin: str | None = None
    probability: str | None = None
    position: str | None = None
    members: Positive = 1
    epochs: float | None = pydantic.Field(default=None, gt=0)
    rows: Positive = 32
    micro_rows: Positive | None = None
    lr: float | None = pydantic.Field(default=None, gt=0)
    weight_decay: float = pydantic.Field(default=0.0, ge=0)
    max_grad_norm: float | None = pydantic.Field(default=1.0, gt=0)
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    seed: int = 0

    @property
    def passes(self) -> float:
        """Passes over the pairs."""
        return self.epochs or (SMALL if self.model is None else PRETRAINED)[0]

    @property
    def chunk(self) -> int:
        """Pairs in one forward pass."""
        return min(self.rows, self.micro_rows or (self.rows if self.model is None else 8))

    @property
    def rate(self) -> float:
        """The first learning rate."""
        return self.lr or (SMALL if self.model is None else PRETRAINED)[1]

    @property
    def kind_of_preference(self) -> str:
        """The name of the preference model's kind."""
        return self.preference if isinstance(self.preference, str) else str(self.preference.get("name", DEFAULT))

    def preference_model(self) -> PreferenceModel:
        """Builds the preference model.

        Raises:
            ConfigError: there is no such kind, or it has not these settings.
        """
        name = self.kind_of_preference
        given = {} if isinstance(self.preference, str) else {k: v for k, v in self.preference.items() if k != "name"}
        if name not in KINDS:
            raise ConfigError(f"fit.preference: there is no kind {name!r}{nearest(name, KINDS)}")
        try:
            return KINDS[name](**given)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"fit.preference: {error}") from None

    def scorer_shape(self) -> ScorerShape:
        """Builds the shape of the `TextScorer`.

        Raises:
            ConfigError: it has not these settings, or a model is named too.
        """
        if self.shape and self.model is not None:
            raise ConfigError("fit.shape is that of a TextScorer, and fit.model names another model; leave one out")
        model = self.preference_model()
        known = {"width", "layers", "window", "length"}
        if wrong := sorted(set(map(str, self.shape)) - known):
            raise ConfigError(f"fit.shape.{wrong[0]} is not a setting{nearest(wrong[0], known)}")
        try:
            return ScorerShape(
                **self.shape, compares=model.compares, antisymmetric=model.compares, outputs=model.outputs
            )
        except (TypeError, ValueError) as error:
            raise ConfigError(f"fit.shape: {error}") from None

    def to_yaml(self) -> str:
        return write_yaml(self.model_dump(mode="json"))


def fit_recipe(
    data: str, *, heldout: float | str | None = None, changes: Mapping[str, Any] | None = None, **settings: Any
) -> FitRecipe:
    """Returns the recipe of a fit to a file of pairs, or of ranked lists.

    heldout: a fraction of the prompts, a tenth by default, or a second file. changes: by dotted path, as
    preference.label_smoothing or tasks.chosen. settings: of `FitRecipe`, those that are not None.

    Raises:
        ConfigError: no such file or setting, or a file of another form.
    """
    made: dict[str, Any] = {"tasks": {"path": data, "heldout": 0.1 if heldout is None else heldout}}
    made |= {name: value for name, value in settings.items() if value is not None}
    for key, value in (changes or {}).items():
        if key.startswith("preference.") and isinstance(made.get("preference", ""), str):
            made["preference"] = {"name": made.get("preference", DEFAULT)}
        set_by_path(made, key, value)
    if "kind" not in made["tasks"]:
        fields = {"chosen": "pairs", "rejected": "pairs", "completions": "ranked", "scores": "ranked"}
        named = [kind for field, kind in fields.items() if field in made["tasks"]]
        made["tasks"]["kind"] = named[0] if named else kind_of_file(path_of(data, "FILE"))
    if made["tasks"]["kind"] in ("labelled", "dataset"):
        raise ConfigError(
            f"{data}: its rows are those of kind {made['tasks']['kind']}; a preference model is fitted to pairs, with "
            "chosen and rejected, or to lists, with completions and scores"
        )
    recipe = parse(FitRecipe, made, "fit")
    recipe.preference_model()
    recipe.scorer_shape()
    return recipe
