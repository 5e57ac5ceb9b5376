"""Settings that name weights: a stage's start, and the frozen policies beside its learner."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pydantic

from polopt.config import Config


class StageWeights(Config):
    """The weights that a stage ended with, the latest time that it was run.

    stage: its name.
    """

    stage: str


class RunWeights(Config):
    """The weights that a finished run ended with, of the same architecture.

    run: its folder.
    """

    run: str


class AverageWeights(Config):
    """A weighted mean of several weights, parameter by parameter: a soup. Source: arXiv:2203.05482.

    average: what is averaged, each as a `start` is written.
    weights: their shares, which sum to 1 and may be negative; equal ones if None.
    """

    average: Annotated[tuple[WeightsSpec, ...], pydantic.Field(min_length=1)]
    weights: tuple[float, ...] | None = None

    @pydantic.model_validator(mode="after")
    def _a_share_each(self) -> AverageWeights:
        if self.weights is None:
            return self
        if len(self.weights) != len(self.average):
            raise ValueError(f"{len(self.average)} weights are averaged, and there are {len(self.weights)} shares")
        if not math.isclose(sum(self.weights), 1.0, abs_tol=1e-6):
            raise ValueError(f"the shares of a mean sum to 1, found {sum(self.weights):g}")
        return self

    @property
    def shares(self) -> tuple[float, ...]:
        """Returns the share of each of the weights that are averaged."""
        return self.weights or (1 / len(self.average),) * len(self.average)


class ModelPolicy(Config):
    """A model in the Hugging Face format, of whatever architecture, with the policy's tokenizer.

    model: its folder or hub name.
    """

    model: str


SPECS = {"stage": StageWeights, "run": RunWeights, "average": AverageWeights, "model": ModelPolicy}


def _key(value: Any) -> str | None:
    """Returns the alternative that a value means: initial, stage, run, average or model."""
    if isinstance(value, Mapping):
        return next((key for key in SPECS if key in value), None)
    if value == INITIAL:
        return INITIAL
    return next((key for key, spec in SPECS.items() if isinstance(value, spec)), None)


INITIAL = "initial"
WAYS = "initial, {stage: NAME}, {run: FOLDER} or {average: [...]}"
Initial = Literal["initial"]
WeightsSpec = Annotated[
    Annotated[Initial, pydantic.Tag("initial")]
    | Annotated[StageWeights, pydantic.Tag("stage")]
    | Annotated[RunWeights, pydantic.Tag("run")]
    | Annotated[AverageWeights, pydantic.Tag("average")],
    pydantic.Discriminator(_key, custom_error_type="weights", custom_error_message=f"Input should be {WAYS}"),
]
AverageWeights.model_rebuild()
NetworksSpec = Annotated[
    Annotated[StageWeights, pydantic.Tag("stage")] | Annotated[RunWeights, pydantic.Tag("run")],
    pydantic.Discriminator(
        _key, custom_error_type="networks", custom_error_message="Input should be {stage: NAME} or {run: FOLDER}"
    ),
]
PolicySource = Annotated[
    Annotated[Initial, pydantic.Tag("initial")]
    | Annotated[StageWeights, pydantic.Tag("stage")]
    | Annotated[RunWeights, pydantic.Tag("run")]
    | Annotated[AverageWeights, pydantic.Tag("average")]
    | Annotated[ModelPolicy, pydantic.Tag("model")],
    pydantic.Discriminator(
        _key, custom_error_type="policy", custom_error_message=f"Input should be {WAYS}, or {{model: NAME}}"
    ),
]


def parts_of(spec: Any) -> Iterator[Any]:
    """Yields each of the weights that a setting is made of; its own if it is no average."""
    if isinstance(spec, AverageWeights):
        for part in spec.average:
            yield from parts_of(part)
    else:
        yield spec


def stages_of(spec: Any) -> Iterator[str]:
    """Yields the names of the stages whose weights a setting needs."""
    yield from (part.stage for part in parts_of(spec) if isinstance(part, StageWeights))
