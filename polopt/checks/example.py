"""Scripts of the smallest failing example: a few lines to paste and run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy
from torch import Tensor, float32

from polopt.checks.calls import PartCall
from polopt.checks.plain_loss import PlainLoss
from polopt.checks.state import ROOMS, SCOPE, as_code
from polopt.checks.violation import Failure, quoted
from polopt.evaluation import OUTPUTS, Evaluation
from polopt.experience import Experience
from polopt.fields import SHAPES
from polopt.objectives import Objective
from polopt.part import Part, to_plain
from polopt.part_names import name_of
from polopt.sampling import Select
from polopt.support import PLAIN

WIDTH = 110


def script(part: Part, failure: Failure, made_by: list[str]) -> str:
    """Returns lines that end in an AssertionError, or in the part's own error, on the smallest failing batch.

    made_by: the lines that make `part`, or `loss` if it is a plain function.
    """
    trial, broken = failure.trial, failure.broken
    if trial is None or broken is None:
        imports = [f"from polopt.checks.state import {failure.rule}", "from polopt.checks import PartRow"]
        return "\n".join(_with_imports([*made_by, *imports], [f"{failure.rule}(PartRow(part))"]))
    writer: FunctionWriter | PartWriter = FunctionWriter(part) if isinstance(part, PlainLoss) else PartWriter(part)
    end, message = [f"found = {broken.found.write(writer)}"], "found"
    if broken.expected is not None:
        end.append(f"expected = {broken.expected.write(writer)}")
        message = 'f"{found} against {expected}"'
    if broken.check:
        end.append(f"assert {broken.check}, {message}")
    built = {name: writer.build(name, call) for name, call in trial.calls.items()}
    used = [n for n, lines in built.items() if any(re.search(rf"\b{n}\b", line) for line in [*end, *_others(built, n)])]
    lines = [line for name in used for line in built[name]] + end
    return "\n".join(_with_imports(made_by, lines))


def _others(built: dict[str, list[str]], name: str) -> list[str]:
    """Returns the lines that build the other calls."""
    return [line for other, lines in built.items() if other != name for line in lines]


def _with_imports(made_by: list[str], lines: list[str]) -> list[str]:
    """Returns the lines after the imports and the definitions that they use."""
    imports = [line for line in made_by if line.startswith(("from ", "import "))]
    rest = [line for line in made_by if line not in imports]
    text = "\n".join([*rest, *lines])
    numbers = [name for name in ("inf", "nan") if re.search(rf"\b{name}\b", text)]
    modules = [module for module in ROOMS if re.search(rf"\b{module}\.", "\n".join(rest))]
    candidates = {
        "import copy": "copy.deepcopy(" in text,
        f"from math import {', '.join(numbers)}": bool(numbers),
        "import torch": True,
        "import polopt as po": "po." in text,
        f"from polopt import {', '.join(modules)}": bool(modules),
        "from polopt.part_names import locate": "locate(" in text,
    }
    found = [*(line for line, is_used in candidates.items() if is_used), *imports, ""]
    found.append("torch.set_default_dtype(torch.float64)")
    if "grad(" in text:
        found.append("grad = lambda loss, of: torch.autograd.grad(loss, of, materialize_grads=True)[0]")
    return [*found, *rest, "", *lines]


def made_from(part: Part) -> list[str]:
    """Returns the lines that build a part."""
    code, external = as_code(part)
    try:
        rebuilds = to_plain(eval(code, {**SCOPE, **external})) == to_plain(part)
    except Exception:
        rebuilds = False
    if not rebuilds:  # its repr does not rebuild it
        return ["from polopt.part import build", f"part = build({part.to_dict()!r})"]
    return [*(f"{name} = locate({quoted(name_of(cls))})" for name, cls in external.items()), f"part = {code}"]


def literal(x: Any) -> str:
    """Formats a value as code; a tensor without a dtype in the code is float64."""
    if isinstance(x, list):
        return f"[{', '.join(map(literal, x))}]"
    if not isinstance(x, Tensor):
        return quoted(x) if isinstance(x, str) else repr(x)
    options = (", dtype=torch.float32" if x.dtype == float32 else "") + (", requires_grad=True" * x.requires_grad)
    if not x.numel():
        return f"torch.zeros({list(x.shape)}, dtype={x.dtype})"
    return f"torch.tensor({_shortest(x.tolist()) if x.dtype == float32 else x.tolist()}{options})"


def _shortest(numbers: Any) -> Any:
    """Rounds float32 numbers to the fewest digits that distinguish them."""
    return [_shortest(n) for n in numbers] if isinstance(numbers, list) else float(str(numpy.float32(numbers)))


def called(function: str, arguments: Mapping[str, str], indent: str = "") -> str:
    """Formats a call with its arguments, on one line if it fits."""
    flat = f"{function}({', '.join(f'{k}={v}' for k, v in arguments.items())})"
    if len(indent) + len(flat) <= WIDTH:
        return flat
    inner = "".join(f"{indent}    {k}={v},\n" for k, v in arguments.items())
    return f"{function}(\n{inner}{indent})"


class FunctionWriter:
    """Writes calls of a plain function: `found = loss(**narrow)`."""

    def __init__(self, part: PlainLoss) -> None:
        self.part = part

    def build(self, name: str, call: PartCall) -> list[str]:
        experience = call.batch.experience if call.experience is None else call.experience
        arguments = self.part.arguments(experience, call.batch.evaluation())
        return [f"{name} = {called('dict', {k: literal(v) for k, v in arguments.items()})}"]

    def value(self, call: str) -> str:
        return f"loss(**{call})"

    def grad(self, call: str, name: str) -> str:
        meaning = "policy" if name == "logp" else name
        argument = next(key for key, what in self.part.meanings.items() if what == meaning)
        return f"grad({self.value(call)}, {call}[{quoted(argument)}])"

    def metric(self, call: str, name: str) -> str:
        raise AssertionError("a plain loss has no metrics")

    def batch(self, call: str) -> str:
        raise AssertionError("a plain loss selects no rows")

    kept = batch


class PartWriter:
    """Writes calls of a part: `found = part(*narrow).loss`, or `found = part(narrow)` where there is no evaluation."""

    def __init__(self, part: Part) -> None:
        self.part, self.is_objective = part, isinstance(part, Objective)
        # A part with state is copied, so that its calls do not affect each other.
        self.name = "copy.deepcopy(part)" if part.state_dict() else "part"

    def build(self, name: str, call: PartCall) -> list[str]:
        batch = call.batch
        if not self.is_objective:
            return [f"{name} = {called('po.Experience', _fields(batch.experience))}"]
        evaluation = called("po.Evaluation", _outputs(batch.evaluation()), "    ")
        if call.piece is not None:
            rows, index = call.piece
            whole = (
                "whole[0].replace(full_batch_evaluation=whole[1].detach())"
                if self.part.required_full_batch_outputs
                else "whole[0]"
            )
            evaluation = called("po.Evaluation", _outputs(batch.evaluation()))
            binds = "" if self.part.binding != "group" else f", binds={quoted(self.part.binding)}"
            return [f"{name} = list({whole}.split({rows}{binds}))[{index}], {evaluation}"]
        experience = called("po.Experience", _fields(batch.experience), "    ")
        return [f"{name} = (\n    {experience},\n    {evaluation},\n)"]

    def value(self, call: str) -> str:
        if self.is_objective:
            return f"{self.name}(*{call}).loss"
        return self.kept(call) + ('.extras["row"]' if isinstance(self.part, Select) else "")

    def grad(self, call: str, name: str) -> str:
        extra = name.removeprefix("extras.")
        leaf = f".{name}" if extra == name else f".extras[{quoted(extra)}]"
        return f"grad({self.value(call)}, {call}[1]{leaf})"

    def metric(self, call: str, name: str) -> str:
        return f"{self.name}(*{call}).metrics[{quoted(name)}]"

    def batch(self, call: str) -> str:
        return call

    def kept(self, call: str) -> str:
        return f"{self.name}({call})"


def _fields(experience: Experience) -> dict[str, str]:
    found = {n: literal(v) for n in SHAPES if (v := getattr(experience, n)) is not None}
    if experience.support != PLAIN:
        found["support"] = f"po.{experience.support!r}"
    if experience.horizon is not None:
        found["horizon"] = repr(experience.horizon)
    if experience.extras:
        found["extras"] = _dictionary(experience.extras)
    return found


def _outputs(evaluation: Evaluation) -> dict[str, str]:
    found = {n: literal(v) for n in OUTPUTS if (v := getattr(evaluation, n)) is not None}
    if evaluation.extras:
        found["extras"] = _dictionary(evaluation.extras)
    return found


def _dictionary(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{quoted(k)}: {literal(v)}" for k, v in values.items()) + "}"
