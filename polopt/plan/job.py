"""The job to plan: a model, machines, a batch and a method's requirements."""

from __future__ import annotations

import dataclasses
import functools
import math
import random

from polopt.config import ConfigError
from polopt.plan.hardware import Device
from polopt.plan.lengths import BatchLengths, typical
from polopt.plan.memory import SIZES
from polopt.plan.requirements import MethodRequirements
from polopt.plan.shape import ModelShape
from polopt.policies.packing import WORTH
from polopt.policies.vocabulary import ELSEWHERE, MOST_LOGITS


@dataclasses.dataclass(frozen=True)
class PlannedJob:
    """rows: of one batch, on all devices together. group: rollouts per prompt. prompt, answer: mean tokens. limit: most
    tokens of an answer. spread: std / mean of answers' lengths before the limit cuts them. lengths: those of a batch
    that is known, instead of answer and spread.

    devices: of the kind `device`; `apart` of them only sample, 0 lets all do both in turn. tensor: devices that share
    one copy of the sampler's weights. sharding: "ddp", every learner holds everything, or "fsdp", each a share of
    weights, gradients and moments. dtype: of weights, gradients and moments; compute: of the arithmetic, and of a
    sampler's own weights. micro_rows: rows per forward pass on one device, None for all. lora: rank of the adapters
    that learn instead of the weights, 0 for none. asynchronous: sampling and learning at the same time, on devices of
    their own. engine: "native" holds all rows' keys and values at once, "paged" as many as fit. reward: seconds of
    judging, for each row of the batch. most_logits: how many logits the learner holds at once, None for polopt's own.
    """

    shape: ModelShape
    device: Device
    demands: MethodRequirements
    rows: int
    group: int
    prompt: float
    answer: float
    limit: float
    spread: float = 0.6
    lengths: tuple[float, ...] | None = None
    devices: int = 1
    apart: int = 0
    tensor: int = 1
    sharding: str = "ddp"
    dtype: str = "bfloat16"
    compute: str | None = None
    micro_rows: int | None = None
    minibatches: int = 1
    epochs: int = 1
    checkpointing: bool = False
    lora: int = 0
    asynchronous: bool = False
    engine: str = "paged"
    reward: float = 0.0
    steps: int = 1
    most_logits: float | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "group", "devices", "tensor", "minibatches", "epochs", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected at least 1")
        if self.rows % self.group:
            most = max(1, self.rows // self.group) * self.group
            raise ConfigError(f"rows = {self.rows} must be a multiple of group = {self.group}; try {most}")
        if not 0 <= self.apart < self.devices:
            raise ConfigError(f"apart = {self.apart} of {self.devices} devices: at least one must learn")
        if self.asynchronous and not self.apart:
            raise ConfigError("asynchronous rollouts need devices that only sample; set apart, as --apart 4")
        if self.samplers % self.tensor:
            raise ConfigError(f"tensor = {self.tensor} does not divide the {self.samplers} devices that sample")
        if self.shape.heads % self.tensor:
            raise ConfigError(f"tensor = {self.tensor} does not divide the model's {self.shape.heads} heads")
        for name in (self.dtype, self.precision):
            if name not in SIZES:
                raise ConfigError(f"{name!r} is not a precision; take one of {', '.join(SIZES)}")
        if self.sharding not in ("ddp", "fsdp"):
            raise ConfigError(f"sharding = {self.sharding!r}: expected ddp or fsdp")
        _ = self.batch

    def but(self, **changes: object) -> PlannedJob:
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    @property
    def precision(self) -> str:
        """Precision of the arithmetic."""
        return self.compute or self.dtype

    @property
    def size(self) -> int:
        """Bytes of a weight that learns."""
        return SIZES[self.dtype]

    @property
    def work(self) -> int:
        """Bytes of a number in the arithmetic."""
        return SIZES[self.precision]

    @property
    def learners(self) -> int:
        return self.devices - self.apart

    @property
    def samplers(self) -> int:
        return self.apart or self.devices

    @property
    def replicas(self) -> int:
        """Samplers that each have the whole model."""
        return self.samplers // self.tensor

    @property
    def shards(self) -> int:
        return self.learners if self.sharding == "fsdp" else 1

    @functools.cached_property
    def batch(self) -> BatchLengths:
        found = self.lengths or typical(self.rows, self.answer, self.limit, self.spread)
        return BatchLengths(self.rows, self.group, self.prompt, tuple(sorted(found)))

    @property
    def micro(self) -> int:
        """Rows of the largest forward pass of one learner."""
        own = math.ceil(self.rows / self.learners / self.minibatches)
        return min(self.micro_rows or own, own)

    @property
    def optimiser_steps(self) -> int:
        return self.epochs * self.minibatches

    @property
    def split(self) -> bool:
        """Tests whether a minibatch takes several forward passes on a device."""
        return self.micro < math.ceil(self.rows / self.learners / self.minibatches)

    @property
    def logits_at_once(self) -> float:
        return MOST_LOGITS.get(self.device.kind, ELSEWHERE) if self.most_logits is None else self.most_logits


@dataclasses.dataclass(frozen=True)
class ForwardTokens:
    """The inputs of a forward pass: tokens, those of them that are decisions, and the keys that segments read by
    themselves and after a shared prompt (`memory.made_by_layer`)."""

    tokens: float
    decided: float
    keys: float
    shared: float


def read(prompt: float, lengths: list[float], groups: float) -> ForwardTokens:
    """Counts the inputs of rows with answers of these lengths in `groups` groups, packed as by `policies.packing`."""
    rows, decided = len(lengths), sum(lengths)
    saved = prompt * (rows - groups)
    if saved < WORTH * (rows * prompt + decided):
        return ForwardTokens(rows * prompt + decided, decided, rows * prompt + decided, 0)
    return ForwardTokens(groups * prompt + decided, decided, groups * prompt, rows * prompt + decided)


@functools.lru_cache(maxsize=256)
def heaviest(batch: BatchLengths, rows: int) -> ForwardTokens:
    """The forward pass over so many rows that reads most, of a batch whose lengths fell to groups by lot, when groups
    are next to groups of like length, the longest first, as the learner sorts them."""
    lengths = list(batch.lengths)
    random.Random(0).shuffle(lengths)
    group = max(1, min(batch.group, len(lengths)))
    groups = [lengths[i : i + group] for i in range(0, len(lengths), group)]
    ordered = [n for one in sorted(groups, key=max, reverse=True) for n in one]
    rows = min(rows, len(ordered))
    pieces = [ordered[i : i + rows] for i in range(0, len(ordered), rows)]
    return max((read(batch.prompt, piece, math.ceil(len(piece) / group)) for piece in pieces), key=lambda r: r.tokens)
