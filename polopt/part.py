"""The base class of parts: settings, state and one call; printable, comparable, and convertible to and from YAML."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

import pydantic
import pydantic_core
import torch
from torch import Tensor, nn

from polopt.fields import Binding
from polopt.names import nearest
from polopt.part_names import locate, name_of
from polopt.setting_types import checked_setting, setting_types
from polopt.yaml_data import read_yaml, write_yaml

if TYPE_CHECKING:
    from polopt.experience import Experience
    from polopt.situation import Situation

_Module = TypeVar("_Module", bound=nn.Module)


def _copied(module: _Module, memo: dict[int, Any]) -> _Module:
    """Deep-copies a module as `copy.deepcopy` does, faster: the many empty registers of a module are created anew."""
    memo[id(module)] = result = object.__new__(type(module))
    for name, value in vars(module).items():
        empty = type(value) in (dict, OrderedDict, set) and not value
        result.__dict__[name] = type(value)() if empty else copy.deepcopy(value, memo)
    return result


class Parts(nn.ModuleList):
    """An ordered list of parts inside a part. It compares, prints and serialises as a list."""

    __deepcopy__ = _copied

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass_transform(kw_only_default=True, eq_default=False)
class Part(nn.Module):
    """A formula's settings and state: a `torch.nn.Module` built from typed keyword arguments.

    A subclass lists its settings as annotated fields and its meaning as `forward`:

        class Shift(Part):
            by: float = 0.0
            reads = frozenset({"reward"})

            def forward(self, experience):
                return experience.reward + self.by

    State that changes between steps is a buffer or parameter, made in `setup`, so `state_dict`, `.to(device)` and exact
    resume need no further code.

    A part declares its inputs and outputs in class variables, or in properties if they depend on a setting:

    reads: fields of `Experience` that the call reads.
    policy_outputs: fields of `Evaluation`, the current policy's outputs, beyond `logp`.
    full_batch_outputs: outputs of the current policy on the whole optimiser batch that the loss of a micro-batch needs
        (`experience.full_batch.full_batch_evaluation`); they cost a pass without gradient if batches are split.
    writes: fields that the part adds to a batch for other parts, beyond those that every loop provides.
    source_capabilities: capabilities of the source of experience beyond rollouts, as in `sampling.source_protocols`.
    binds: what must stay together in one micro-batch for a correct loss: the decisions of a row ("row"); all rows of a
        group ("group"), for a loss that compares the rows of a group under the current policy; or nothing
        ("decision"), if the terms of a decision depend on that decision alone. A subclass does not inherit the last.

    tags: what two surveys' vocabularies call it, as "reward_source=model" (`polopt.tags`).

    Fields that no part declares are not computed. `required_fields` and its like are the declarations of all parts,
    `active_fields` those of the parts that are active now. `binding` is the strictest `binds` of the active parts.

    Raises:
        TypeError: a setting that does not exist (the nearest one is named).
        ValueError: a setting of the wrong type or out of its range.
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    policy_outputs: ClassVar[frozenset[str]] = frozenset()
    full_batch_outputs: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset()
    source_capabilities: ClassVar[frozenset[str]] = frozenset()
    binds: ClassVar[Binding] = "row"
    tags: ClassVar[frozenset[str]] = frozenset()
    # Kind of a method that builds such a part (`polopt.method.KINDS`); None for parts that only stand inside others.
    method_kind: ClassVar[str | None] = None
    # Addresses of servers that the call contacts, which happens in a run, not in an estimate of one.
    servers: ClassVar[frozenset[str]] = frozenset()
    # Name of one of its `batch_metrics` -> a sentence on the meaning of zeros in all of a stage's first batches.
    zero_means: ClassVar[Mapping[str, str]] = {}

    __deepcopy__ = _copied

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.binds == "decision" and "binds" not in vars(cls):
            cls.binds = "row"
        inherited = {
            f.name for base in cls.__mro__[1:] if dataclasses.is_dataclass(base) for f in dataclasses.fields(base)
        }
        for name in inherited & vars(cls).keys() - inspect.get_annotations(cls).keys():
            raise TypeError(f"{cls.__qualname__}: setting {name!r} needs its type again, as in `{name}: type = ...`")
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
        for field in settings_of(cls):
            # A default left on the class would hide the sub-part that nn.Module registers by that name.
            if field.name in vars(cls):
                delattr(cls, field.name)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> pydantic_core.CoreSchema:
        return pydantic_core.core_schema.is_instance_schema(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args:
            raise TypeError(f"{name_of(cls)} takes its settings by name, found {len(args)} positional")
        known = [f.name for f in settings_of(cls)]
        for key in kwargs:
            if key not in known:
                raise TypeError(f"{name_of(cls)} has no setting {key!r}{nearest(key, known)}")
        self = super().__new__(cls)
        # Before the generated __init__ assigns fields: sub-parts must find a module to register with.
        nn.Module.__init__(self)
        return self

    def __post_init__(self) -> None:
        adapters = _adapters(type(self))
        for field in settings_of(type(self)):
            name, adapter = field.name, adapters[field.name]
            value = getattr(self, name)
            if value is field.default:
                value = copy.deepcopy(value)  # state is never shared between parts
            value = list(value) if isinstance(value, Parts) else value
            value = checked_setting(adapter, value, name_of(type(self)), name)
            if isinstance(value, (list, tuple)) and any(isinstance(v, Part) for v in value):
                value = Parts(value)
            setattr(self, name, value)
        self.setup()

    def setup(self) -> None:
        """Checks ranges and registers buffers. Runs once, after the settings are in place."""

    def refusals(self, situation: Situation) -> Iterator[str]:
        """Yields reasons why this part cannot work in such a stage, which is then refused."""
        yield from ()

    def cautions(self, situation: Situation) -> Iterator[str]:
        """Yields reasons why this part runs in such a stage without fulfilling its purpose."""
        yield from ()

    def batch_metrics(self, experience: Experience) -> Mapping[str, float]:
        """Returns metrics of this part's effect on a batch, by name, for the log: a function of the batch and of the
        part's state."""
        return {}

    def on_step(self) -> None:
        """Updates this part's own state, such as a count of batches, after the policy has learned from one more
        batch."""

    def step(self) -> None:
        """Runs `on_step` of this part and of every part inside it, after the policy has learned from one more batch."""
        for part in self.parts():
            part.on_step()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Checks that every declared field is present, then runs `forward`."""
        for value in (*args, *kwargs.values()):
            if hasattr(value, "declared_as"):
                value.require(getattr(self, value.declared_as), by=self)
        return super().__call__(*args, **kwargs)

    @property
    def required_fields(self) -> frozenset[str]:
        """`reads` of this part and of every part inside it."""
        return frozenset().union(*(p.reads for p in self.parts()))

    @property
    def required_outputs(self) -> frozenset[str]:
        """`policy_outputs` of this part and of every part inside it, and their `full_batch_outputs`."""
        return frozenset().union(*(p.policy_outputs for p in self.parts()), self.required_full_batch_outputs - {"logp"})

    @property
    def required_full_batch_outputs(self) -> frozenset[str]:
        """`full_batch_outputs` of this part and of every part inside it."""
        return frozenset().union(*(p.full_batch_outputs for p in self.parts()))

    @property
    def all_writes(self) -> frozenset[str]:
        """`writes` of this part and of every part inside it."""
        return frozenset().union(*(p.writes for p in self.parts()))

    def parts(self) -> Iterator[Part]:
        """Yields this part and, depth first, every part inside it."""
        return (m for m in self.modules() if isinstance(m, Part))

    def active_children(self) -> Iterator[Part]:
        """Yields the direct children that are active now: all of them, unless a subclass activates some later."""
        for child in self.children():
            found = list(child) if isinstance(child, Parts) else [child]
            yield from (part for part in found if isinstance(part, Part))

    def active_parts(self) -> Iterator[Part]:
        """Yields this part and, depth first, every part inside it that is active now."""
        yield self
        for part in self.active_children():
            yield from part.active_parts()

    def active_fields(self, kind: Literal["reads", "policy_outputs", "full_batch_outputs"]) -> frozenset[str]:
        """Returns the union of a declaration over the parts that are active now.

        kind: the declaration, as in `required_fields`, `required_outputs` and `required_full_batch_outputs`.
        """
        parts = list(self.active_parts())
        surveys = frozenset[str]().union(*(p.full_batch_outputs for p in parts))
        if kind == "full_batch_outputs":
            return surveys
        own = frozenset[str]().union(*(getattr(p, kind) for p in parts))
        return own | (surveys - {"logp"}) if kind == "policy_outputs" else own

    def rows_read(self, field: str, experience: Experience) -> Tensor | None:
        """Returns the mask [B] of the rows whose `field`, one of `reads`, this part reads; None for all. A loop need
        not compute the field elsewhere."""
        return None

    def active_rows(self, field: str, experience: Experience) -> Tensor | None:
        """Returns the mask [B] of the rows whose `field` some active part reads; None for all."""
        masks = [part.rows_read(field, experience) for part in self.active_parts() if field in part.reads]
        known = [mask for mask in masks if mask is not None]
        return torch.stack(known).any(0) if known and len(known) == len(masks) else None

    @property
    def binding(self) -> Binding:
        """The strictest `binds` of this part and of every part inside it that is active now."""
        found = {part.binds for part in self.active_parts()}
        return "group" if "group" in found else "row" if "row" in found else "decision"

    def settings(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in settings_of(type(self))}

    def but(self, _changes: Mapping[str, Any] | None = None, /, **changes: Any) -> Self:
        """Returns a changed copy: `part.but(scale=None, **{"objective.trust.high": 0.28})`.

        Keys are settings, dotted to reach inside, with list positions as numbers. Unchanged parts keep their state; a
        rebuilt part starts with new state.
        """
        result = self
        for path, value in {**(_changes or {}), **changes}.items():
            result = _replaced(result, path.split("."), value)
        return copy.deepcopy(self) if result is self else result

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data from which `build` makes an equal part: `{"part": "credit.RelativeAdvantage", ...}`."""
        return {"part": name_of(type(self)), **{k: to_plain(v) for k, v in self.settings().items()}}

    def to_yaml(self) -> str:
        return write_yaml(self.to_dict())

    def __repr__(self) -> str:
        changed = (
            f"{f.name}={getattr(self, f.name)!r}"
            for f in settings_of(type(self))
            if not _is_default(getattr(self, f.name), f)
        )
        return f"{name_of(type(self))}({', '.join(changed)})"


def settings_of(cls: type[Part]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)  # type: ignore[arg-type]


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _is_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    return _same_plain(value, default_of(field))


def _same_plain(a: Any, b: Any) -> bool:
    """Returns True if two settings are equal as plain data (`to_plain`), without conversion of values that are plain
    already."""
    if a is None or isinstance(a, (str, int, float)):  # the most frequent case
        return bool(a == b)
    if isinstance(a, Part) and isinstance(b, Part):
        same = type(a) is type(b)
        return same and all(_same_plain(getattr(a, f.name), getattr(b, f.name)) for f in settings_of(type(a)))
    return bool(to_plain(a) == to_plain(b))


def _adapters(cls: type[Part]) -> dict[str, pydantic.TypeAdapter[Any]]:
    return setting_types(cls, tuple(f.name for f in settings_of(cls)))  # type: ignore[arg-type]


def build(spec: Any) -> Any:
    """Builds parts from plain data (see `Part.to_dict`); values without a `part` key are returned as they are.

    Nothing but parts is called.

    Raises:
        ValueError, TypeError: a name or setting that does not exist (the nearest one is named), or no part.
    """
    if isinstance(spec, Mapping) and "part" in spec:
        found = locate(spec["part"])
        if not (isinstance(found, type) and issubclass(found, Part)):
            raise ValueError(f"{spec['part']!r:.100} is not a part: expected a subclass of polopt.part.Part")
        return found(**{str(k): build(v) for k, v in spec.items() if k != "part"})
    if isinstance(spec, (list, tuple)):
        return [build(v) for v in spec]
    return spec


def from_yaml(text: str) -> Any:
    """Builds a part from the text of `Part.to_yaml`."""
    return build(read_yaml(text, "a part"))


def to_plain(value: Any) -> Any:
    """Returns settings as plain YAML data: parts become mappings, lists of parts become lists."""
    if isinstance(value, Part):
        return value.to_dict()
    if isinstance(value, (list, tuple, nn.ModuleList)):
        return [to_plain(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return value


def _replaced(part: Any, path: list[str], value: Any) -> Any:
    head, rest = path[0], path[1:]
    if isinstance(part, Parts):
        items = list(part)
        if not head.lstrip("-").isdigit() or not -len(items) <= int(head) < len(items):
            raise ValueError(f"{head!r} is not a position in a list of {len(items)} parts")
        items[int(head)] = _replaced(items[int(head)], rest, value) if rest else value
        return items
    if dataclasses.is_dataclass(part) and not isinstance(part, (Part, type)):  # plain settings, such as Support
        known = [f.name for f in dataclasses.fields(part)]
        if head not in known:
            raise ValueError(f"{type(part).__name__} has no setting {head!r}{nearest(head, known)}")
        return dataclasses.replace(part, **{head: _replaced(getattr(part, head), rest, value) if rest else value})
    if not isinstance(part, Part):
        raise ValueError(f"{'.'.join(path)!r} reaches into {part!r}, which has no settings")
    settings = part.settings()
    if head not in settings:
        raise ValueError(f"{name_of(type(part))} has no setting {head!r}{nearest(head, settings)}")
    changed = _replaced(settings[head], rest, value) if rest else build(value)
    others = {k: copy.deepcopy(v) for k, v in settings.items() if k != head}
    return type(part)(**{**others, head: changed})
