"""Properties of a part's settings and state, independent of its computation."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from polopt import (
    algorithm,
    backends,
    credit,
    features,
    guards,
    methods,
    metrics,
    objectives,
    rewards,
    sampling,
    schedules,
)
from polopt.checks.calls import call_part
from polopt.checks.cases import PartRow
from polopt.checks.violation import Failure
from polopt.part import Part, from_yaml, to_plain
from polopt.part_diff import diff
from polopt.part_names import name_of
from polopt.support import Support

ROOMS = {
    "backends": backends,
    "credit": credit,
    "features": features,
    "guards": guards,
    "methods": methods,
    "metrics": metrics,
    "objectives": objectives,
    "rewards": rewards,
    "sampling": sampling,
    "schedules": schedules,
}
SCOPE = {**ROOMS, "inf": float("inf"), "Support": Support, "Algorithm": algorithm.Algorithm}


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """A property that must hold of a part whatever the batch.

    test: raises AssertionError if it does not.
    """

    name: str
    title: str
    test: Callable[[PartRow], None]
    why: str

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, row: PartRow) -> None:
        self.test(row)

    def failure(self, row: PartRow) -> Failure | None:
        """Returns the failure of the property, without a batch; None if it holds."""
        try:
            self.test(row)
        except AssertionError as error:
            return Failure(" ".join(str(error).split()), rule=self.name)
        except Exception as error:
            return Failure(f"raises {type(error).__name__}: {' '.join(str(error).split())}", rule=self.name)
        return None


def output(part: Part, row: PartRow, seed: int) -> Tensor:
    found = call_part(part, row.batch(seed))
    return found.value if found.kept is None else torch.cat([found.value, found.kept.mask.flatten()])


def exactly(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def state_resumes(row: PartRow) -> None:
    """Tests that k + m calls equal k calls, save, load into a part built from YAML, m calls: bit for bit."""
    through, stopped = copy.deepcopy(row.part), copy.deepcopy(row.part)
    for seed in (0, 1):
        output(through, row, seed)
        output(stopped, row, seed)
    resumed = from_yaml(row.part.to_yaml())
    resumed.load_state_dict(stopped.state_dict())
    for seed in (2, 3):
        exactly(output(resumed, row, seed), output(through, row, seed))


def copies_are_independent(row: PartRow) -> None:
    """Tests that using a copy changes neither the state of the original nor that of a newly built part."""
    original = copy.deepcopy(row.part)
    before = copy.deepcopy(original.state_dict())
    expected = output(copy.deepcopy(row.part), row, 0)
    used = copy.deepcopy(original)
    output(used, row, 2)
    for name, value in original.state_dict().items():
        exactly(value, before[name])
    again = from_yaml(row.part.to_yaml())
    exactly(output(again, row, 0), expected)


def yaml_returns(row: PartRow) -> None:
    again = from_yaml(row.part.to_yaml())
    assert type(again) is type(row.part), f"{type(again)} came back"
    assert again.to_dict() == row.part.to_dict(), f"{again.to_dict()} came back of {row.part.to_dict()}"
    assert diff(again, row.part) == []


def repr_builds(row: PartRow) -> None:
    code, external = as_code(row.part)
    again = eval(code, {**SCOPE, **external})
    assert to_plain(again) == to_plain(row.part), f"it prints as {row.part!r} and is {row.part.to_dict()}"
    assert repr(again) == repr(row.part), f"it prints as {row.part!r}, and what that builds as {again!r}"


def as_code(part: Part) -> tuple[str, dict[str, type[Part]]]:
    """Returns the call that builds a part, and the classes it names that are defined outside polopt.

    The repr of such a class contains the file or module where it is found, which is not valid Python.
    """
    code, external = repr(part), {}
    for inner in part.parts():
        name = name_of(type(inner))
        if ":" in name:
            external[type(inner).__name__] = type(inner)
            code = code.replace(f"{name}(", f"{type(inner).__name__}(")
    return code, external
