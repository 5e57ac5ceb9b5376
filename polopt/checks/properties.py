"""Properties that must hold between the results of calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.checks.calls import CallResult
from polopt.checks.violation import Code, Reference, Results, Violation, quoted
from polopt.experience import Experience

Key = Callable[[Experience], list[Any]]


def tensors_of(outcome: CallResult, call: str) -> Iterator[tuple[str, Tensor, Reference]]:
    """Yields the tensors of a result: name, tensor, and the reference that writes it as code."""
    yield outcome.name, outcome.value, Reference(call)
    for leaf, grad in outcome.grads.items():
        yield f"gradient of {leaf}", grad, Reference(call, "grad", leaf)


def number(x: Tensor | float) -> str:
    return f"{float(x) + 0.0:.6g}"


def about(name: str, found: Tensor, expected: Tensor) -> str:
    """Returns the kind of a violation, without its numbers."""
    kinds = ("" if x.isfinite().all() else "not finite" for x in (found, expected))
    return f"{name}: {' against '.join(kinds)}"


def worst(found: Tensor, expected: Tensor) -> str:
    """Describes the largest difference between two tensors in words."""
    if found.shape != expected.shape:
        return f"has shape {list(found.shape)}, expected {list(expected.shape)}"
    if not expected.isfinite().all():
        return "is not finite either way"
    if not found.ndim:
        return f"is {number(found)}, expected {number(expected)}"
    gap = (found.double() - expected.double()).abs().nan_to_num(torch.inf, torch.inf)
    at = torch.unravel_index(gap.argmax(), gap.shape)
    place = ", ".join(f"{name} {int(i)}" for name, i in zip(("row", "column", "choice"), at, strict=False))
    return f"is {number(found[at])} at {place}, expected {number(expected[at])}"


def close(x: Tensor, y: Tensor, rtol: float, atol: float) -> bool:
    return x.shape == y.shape and torch.allclose(x.to(y.dtype), y, rtol, atol)


@dataclasses.dataclass(frozen=True, eq=False)
class SameResult:
    """Two calls return the same: row i of `found` is row rows[i] of `expected`, whose column t is columns[t] of
    `found`.

    slack: how much coarser gradients may be than values.
    """

    found: str
    expected: str
    rows: Tensor | None = None
    columns: Tensor | None = None
    rtol: float = 1e-9
    atol: float = 1e-11
    slack: float = 1.0

    def check(self, results: Results) -> None:
        expected_tensors = {
            name: (y, reference) for name, y, reference in tensors_of(results(self.expected), self.expected)
        }
        for name, x, reference in tensors_of(results(self.found), self.found):
            y, expected_reference = expected_tensors[name]
            columns = self.columns if x.ndim > 1 else None
            rows = self.rows if x.ndim else None
            x = x if columns is None else x[:, columns]
            y = y if rows is None else y[rows]
            slack = self.slack if name.startswith("gradient") else 1.0
            rtol, atol = self.rtol * slack, self.atol * slack
            if close(x, y, rtol, atol):
                continue
            within = f"torch.allclose(found.double(), expected.double(), rtol={rtol:g}, atol={atol:g})"
            raise Violation(
                f"{name} {worst(x, y)}",
                about(name, x, y),
                Code(reference, "" if columns is None else f"[:, {columns.tolist()}]"),
                Code(expected_reference, "" if rows is None else f"[{rows.tolist()}]"),
                within if x.shape == y.shape else "found.shape == expected.shape",
            )


@dataclasses.dataclass(frozen=True, eq=False)
class PiecesAdd:
    """The losses and metrics of micro-batches add up to the whole batch's; their gradients concatenate to its own.

    rows: the row of the whole batch for each row of the micro-batches, one after another.
    """

    pieces: Sequence[str]
    whole: str
    rows: Sequence[int]
    rtol: float = 1e-9
    atol: float = 1e-11

    def check(self, results: Results) -> None:
        whole, pieces = results(self.whole), [results(p) for p in self.pieces]
        self._sums(whole.name, [p.value for p in pieces], whole.value, "value")
        for leaf, grad in whole.grads.items():
            joined, references = (
                torch.cat([p.grads[leaf] for p in pieces]),
                [Reference(p, "grad", leaf) for p in self.pieces],
            )
            order = sorted(range(len(self.rows)), key=self.rows.__getitem__)
            joined = joined[order]
            if not close(joined, grad, self.rtol, self.atol):
                code = Code.joined(", ", references, "torch.cat([", "])" if order == sorted(order) else f"])[{order}]")
                self._broken(f"gradient of {leaf}", joined, grad, code, Reference(self.whole, "grad", leaf))
        for name, value in whole.metrics.items():
            self._sums(f"metric {name}", [p.metrics[name] for p in pieces], value, "metric", name)

    def _sums(self, title: str, values: list[Tensor], whole: Tensor, what: Any, name: str = "") -> None:
        total = torch.stack([torch.as_tensor(v) for v in values]).sum()
        if not close(total, whole, self.rtol, self.atol):
            code = Code.joined(" + ", [Reference(p, what, name) for p in self.pieces])
            self._broken(title, total, whole, code, Reference(self.whole, what, name))

    def _broken(self, title: str, found: Tensor, expected: Tensor, code: Code, reference: Reference) -> None:
        raise Violation(
            f"{title} of the pieces, put together, {worst(found, expected)}",
            about(title, found, expected),
            code,
            Code(reference),
            f"torch.allclose(found, expected, rtol={self.rtol:g}, atol={self.atol:g})",
        )


@dataclasses.dataclass(frozen=True, eq=False)
class IsFinite:
    """The output of a call holds no NaN and no infinity; with `metrics`, nor do its metrics."""

    call: str
    metrics: bool = False

    def check(self, results: Results) -> None:
        outcome = results(self.call)
        everything = list(tensors_of(outcome, self.call))
        for name, value in outcome.metrics.items() if self.metrics else ():
            everything.append((f"metric {name}", torch.as_tensor(value), Reference(self.call, "metric", name)))
        for name, x, reference in everything:
            if not x.isfinite().all():
                bad = x[~x.isfinite()][0] if x.ndim else x
                raise Violation(f"{name} is {number(bad)}", name, Code(reference), check="found.isfinite().all()")


@dataclasses.dataclass(frozen=True, eq=False)
class IsZero:
    """The output of a call is exactly 0: all of it, or only a leaf's gradient, or only where `where` [B, T] is True."""

    call: str
    where: Tensor | None = None
    leaf: str | None = None

    def check(self, results: Results) -> None:
        for name, x, reference in tensors_of(results(self.call), self.call):
            if (self.where is not None and x.ndim < 2) or self.leaf not in (None, name.removeprefix("gradient of ")):
                continue
            values = x if self.where is None else x[self.where]
            if values.count_nonzero():
                raise Violation(
                    f"{name}{'' if self.where is None else ' off the mask'} is "
                    f"{number(values[values != 0][0] if values.ndim else values)}, expected 0",
                    name,
                    Code(reference, "" if self.where is None else f"[torch.tensor({self.where.tolist()})]"),
                    check="found.count_nonzero() == 0",
                )


@dataclasses.dataclass(frozen=True, eq=False)
class ImprovesOutcome:
    """A gradient step raises the log-probabilities of larger advantages: -sum grad A > 0, or = 0 if `still` is set."""

    call: str
    advantage: Tensor
    still: bool = False

    def check(self, results: Results) -> None:
        found = -(results(self.call).grads["logp"] * self.advantage).sum()
        if found > 0 or (self.still and found == 0):
            return
        raise Violation(
            f"-(gradient x advantage) sums to {number(found)}, expected more than 0",
            about("along", found, torch.ones(())),
            Code("-(", Reference(self.call, "grad", "logp"), f" * {written(self.advantage)}).sum()"),
            check="found >= 0" if self.still else "found > 0",
        )


@dataclasses.dataclass(frozen=True, eq=False)
class FiniteDifference:
    """The gradient at `here` along `way` is the central difference between `up` and `down`, `step` each way."""

    here: str
    up: str
    down: str
    way: dict[str, Tensor]
    step: float
    rtol: float = 1e-5
    atol: float = 1e-7

    def check(self, results: Results) -> None:
        expected = (results(self.up).value - results(self.down).value) / (2 * self.step)
        grads = results(self.here).grads
        found = torch.stack([(grads[k] * v).sum() for k, v in self.way.items()]).sum()
        if torch.allclose(found, expected.to(found), self.rtol, self.atol):
            return
        slopes: list[str | Reference] = []
        for leaf, line in self.way.items():
            slopes += [" + (" if slopes else "(", Reference(self.here, "grad", leaf), f" * {written(line)}).sum()"]
        raise Violation(
            f"gradient along a line is {number(found)}, the value's slope there {number(expected)}",
            "slope",
            Code(*slopes),
            Code("(", Reference(self.up), " - ", Reference(self.down), f") / {2 * self.step:g}"),
            f"torch.allclose(found, expected, rtol={self.rtol:g}, atol={self.atol:g})",
        )


def written(x: Tensor) -> str:
    """Formats a tensor as code; as one number if all its elements are equal."""
    alike = x.numel() and x.is_floating_point() and bool((x == x.flatten()[0]).all())
    return number(x.flatten()[0]) if alike else f"torch.tensor({x.tolist()})"


@dataclasses.dataclass(frozen=True, eq=False)
class HasType:
    """The output of a call has this dtype."""

    call: str
    dtype: torch.dtype

    def check(self, results: Results) -> None:
        found = results(self.call).value.dtype
        if found != self.dtype:
            words = [str(dtype).removeprefix("torch.") for dtype in (self.dtype, found)]
            sentence = f"{words[0]} in, {words[1]} out"
            raise Violation(sentence, "dtype", Code(Reference(self.call), ".dtype"), check=f"found == {self.dtype}")


@dataclasses.dataclass(frozen=True, eq=False)
class HasShape:
    """The output of a call has one of these shapes."""

    call: str
    shapes: Sequence[torch.Size]

    def check(self, results: Results) -> None:
        found, allowed = results(self.call).value.shape, [list(s) for s in self.shapes]
        if found not in self.shapes:
            sentence = f"has shape {list(found)}, expected {' or '.join(map(str, allowed))}"
            code = Code("list(", Reference(self.call), ".shape)")
            raise Violation(sentence, "shape", code, check=f"found in {allowed}")


@dataclasses.dataclass(frozen=True, eq=False)
class NoGradient:
    """The output of a call carries no gradient."""

    call: str

    def check(self, results: Results) -> None:
        if results(self.call).value.requires_grad:
            raise Violation(
                "carries a gradient", "gradient", Code(Reference(self.call), ".requires_grad"), check="not found"
            )


@dataclasses.dataclass(frozen=True)
class Fields:
    """A key that identifies rows by some of their fields: rows with equal fields are interchangeable."""

    names: tuple[str, ...] = ("extras.row", "mask")

    def __call__(self, experience: Experience) -> list[Any]:
        columns = []
        for name in self.names:
            column = _read(experience, name)
            columns.append(column.tolist() if isinstance(column, Tensor) else list(column))
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def code(self, call: str, experience: Experience) -> Code:
        """Returns the sorted keys of the rows that a call keeps, as code."""
        columns: list[str | Reference] = []
        for name in self.names:
            extra = name.removeprefix("extras.")
            entry = f".{name}" if extra == name else f".extras[{quoted(extra)}]"
            listed = ".tolist()" if isinstance(_read(experience, name), Tensor) else ""
            columns += [", " if columns else "", Reference(call, "kept"), f"{entry}{listed}"]
        return Code("sorted(", *columns, ")") if len(self.names) == 1 else Code("sorted(zip(", *columns, "))")


def _read(experience: Experience, name: str) -> Any:
    extra = name.removeprefix("extras.")
    return experience.extras[extra] if extra != name else getattr(experience, name)
