"""Properties of the rows and tokens that a selection keeps."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from polopt.checks.calls import CallResult
from polopt.checks.properties import Fields, Key
from polopt.checks.violation import Code, Reference, Results, Violation
from polopt.experience import Experience


def kept_by(outcome: CallResult) -> Experience:
    assert outcome.kept is not None, "only a selection keeps rows"
    return outcome.kept


@dataclasses.dataclass(frozen=True, eq=False)
class KeepsRows:
    """A selection keeps the rows of these keys, in any order."""

    found: str
    expected: str
    key: Key

    def check(self, results: Results) -> None:
        found, expected = (sorted(self.key(kept_by(results(name)))) for name in (self.found, self.expected))
        if found != expected:
            key = self.key if isinstance(self.key, Fields) else Fields()
            codes = [key.code(name, kept_by(results(name))) for name in (self.found, self.expected)]
            raise Violation(f"keeps {found}, expected {expected}", "kept", codes[0], codes[1], "found == expected")


@dataclasses.dataclass(frozen=True, eq=False)
class KeepsOrder:
    """A selection returns its rows in order and unchanged.

    keeps: which rows or decisions may be missing, as in `PartRow`.
    """

    call: str
    given: Experience
    keeps: str = "rows"
    fields: tuple[str, ...] = ("rollout_logp", "advantage", "outcome", "group", "turn", "terminated")

    def check(self, results: Results) -> None:
        index, kept = results(self.call).value, kept_by(results(self.call))
        rows, expected = index.tolist(), self.given[index]
        input_batch, kept_batch = Reference(self.call, "batch"), Reference(self.call, "kept")
        step = 0 if self.keeps == "repeats" else 1
        if not (index.diff() >= step).all():
            sentence = f"keeps rows {rows}, in another order or twice"
            raise Violation(sentence, "order", Code(Reference(self.call)), check=f"(found.diff() >= {step}).all()")
        if (kept.mask & ~expected.mask).any():
            code = Code(kept_batch, ".mask & ~", input_batch, f"[{rows}].mask")
            raise Violation("makes decisions of what was none", "mask", code, check="not found.any()")
        if self.keeps == "decisions" and len(index) < len(self.given):
            code = Code("len(", kept_batch, ")")
            raise Violation(f"drops all but rows {rows}", "rows", code, check=f"found == {len(self.given)}")
        for name in (*self.fields, *(["mask"] if self.keeps != "decisions" else [])):
            x, y = getattr(kept, name), getattr(expected, name)
            if y is not None and not torch.allclose(x.double(), y.double(), rtol=0, atol=0, equal_nan=True):
                codes = Code(kept_batch, f".{name}"), Code(input_batch, f"[{rows}].{name}")
                raise Violation(f"changes {name}", name, codes[0], codes[1], "torch.equal(found, expected)")


@dataclasses.dataclass(frozen=True, eq=False)
class KeepsFewer:
    """A selection of a fraction, applied twice, keeps some of the decisions: not all, and no more than before."""

    found: str
    before: str
    given: Experience

    def check(self, results: Results) -> None:
        counts = [int(kept_by(results(name)).mask.sum()) for name in (self.found, self.before)]
        if not 0 < counts[0] <= counts[1] < int(self.given.mask.sum()):
            raise Violation(
                f"keeps {counts[1]} of {int(self.given.mask.sum())} decisions, then {counts[0]}",
                "share",
                Code(Reference(self.found, "kept"), ".mask.sum()"),
                Code(Reference(self.before, "kept"), ".mask.sum()"),
                f"0 < found <= expected < {int(self.given.mask.sum())}",
            )


@dataclasses.dataclass(frozen=True, eq=False)
class KeepsDecisions:
    """A selection keeps the decisions that another call keeps, whose column t is columns[t] of `found`; without another
    call, it keeps none."""

    found: str
    expected: str = ""
    columns: Tensor | None = None

    def check(self, results: Results) -> None:
        mask, found_reference = kept_by(results(self.found)).mask, Reference(self.found, "kept")
        if not self.expected:
            if mask.any():
                raise Violation(
                    "decisions come out of nothing", "mask", Code(found_reference, ".mask"), check="not found.any()"
                )
            return
        assert self.columns is not None, "decisions are compared column by column"
        expected_mask, expected_reference = kept_by(results(self.expected)).mask, Reference(self.expected, "kept")
        if not torch.equal(mask[:, self.columns], expected_mask):
            codes = Code(found_reference, f".mask[:, {self.columns.tolist()}]"), Code(expected_reference, ".mask")
            raise Violation("keeps other decisions", "mask", codes[0], codes[1], "torch.equal(found, expected)")
        if mask.sum() != expected_mask.sum():
            codes = Code(found_reference, ".mask.sum()"), Code(expected_reference, ".mask.sum()")
            raise Violation("decides in the padding", "padding", codes[0], codes[1], "found == expected")
