"""Scorers by name: reasoning_gym's, math-verify, regular expressions, and user-defined functions.

This module imports the standard library alone, because worker processes load it without the rest of polopt.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import operator
import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from polopt.worlds.numbers import read_number
from polopt.worlds.untrusted import is_safe

# (answer, row) -> value
Scorer = Callable[[str, Mapping[str, Any]], Any]
# A scorer as plain data: `scorer` names an entry of `BUILDERS`, the rest are its settings.
Spec = Mapping[str, Any]


def reasoning_gym(dataset: str, settings: Mapping[str, Any]) -> Scorer:
    """Returns the scorer of one of reasoning_gym's datasets; an answer that it would run as code has value 0 without
    being run."""
    import reasoning_gym as library
    from reasoning_gym.factory import DATASETS

    defaults = {field.name: field for field in dataclasses.fields(DATASETS[dataset][1])}
    options = {name: _as_declared(defaults[name], value) for name, value in settings.items()}
    # Of its dataset a scorer reads the settings only, so one task is enough.
    library_dataset = library.create_dataset(dataset, **options, seed=0, size=1)

    def score(answer: str, row: Mapping[str, Any]) -> float:
        if answer != row.get("answer") and not is_safe(dataset, answer):
            return 0.0
        if dataset in COMPARED:
            return float(COMPARED[dataset](answer, row))
        value = float(library_dataset.score_answer(answer, row))
        return value if value <= 1 else NEARLY

    return score


def _same_word(answer: str, row: Mapping[str, Any]) -> bool:
    return answer.strip().casefold() == row["answer"].casefold()


def _same_probability(answer: str, row: Mapping[str, Any]) -> bool:
    found, expected = read_number(answer), read_number(row["answer"])
    return found is not None and expected is not None and abs(found - expected) <= Fraction(1, 10_000)


def _same_complex(answer: str, row: Mapping[str, Any]) -> bool:
    text = answer.replace(" ", "").casefold().replace("i", "j").strip("()")
    try:
        return abs(complex(text) - complex(*row["metadata"]["result"])) <= 1e-9
    except (ValueError, OverflowError):
        return False


def _makes_24(answer: str, row: Mapping[str, Any]) -> bool:
    try:
        tree = ast.parse(answer.strip(), mode="eval").body
        used: list[Any] = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        return sorted(used) == sorted(row["metadata"]["numbers"]) and _arithmetic(tree) == 24
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError, MemoryError):
        return False


def _arithmetic(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int(value)):
            return Fraction(value)
        case ast.UnaryOp(op=ast.USub()):
            return -_arithmetic(node.operand)
        case ast.BinOp():
            left, right = _arithmetic(node.left), _arithmetic(node.right)
            if type(node.op).__name__ in OPERATIONS:
                return OPERATIONS[type(node.op).__name__](left, right)
    raise ValueError("not arithmetic")


OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
}
# The value of an answer whose shares a scorer adds up to more than 1, which is nearly right but not right.
NEARLY = 1 - 2**-20
# Comparisons that replace scorers which give 1, or nearly 1, to one and the same answer for every task: the originals
# accept any text as halting, "nan" as any complex number, the first digits of a probability as the whole of it, and any
# four numbers that make 24, or 24 and a fraction, in place of the given ones.
COMPARED: dict[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "game_of_life_halting": _same_word,
    "complex_arithmetic": _same_complex,
    "coin_flip": _same_probability,
    "puzzle24": _makes_24,
}


def _as_declared(field: Any, value: Any) -> Any:
    """Rebuilds the dataclass where a setting is one and arrived as a mapping."""
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
    kind: Any = type(default)
    nested = dataclasses.is_dataclass(default) and isinstance(value, Mapping)
    return kind(**value) if nested else value


def regex(pattern: str | None) -> Scorer:
    """Returns a scorer: 1 if the pattern, the row's own if None, is found in the answer, else 0."""
    return lambda answer, row: float(re.search(pattern or row["pattern"], answer) is not None)


def math_verify(timeout: int | None) -> Scorer:
    """Returns a scorer: 1 if the answer and the row's answer are mathematically equal, else 0.

    timeout: as for `read_mathematics`.
    """
    import math_verify as library

    def score(answer: str, row: Mapping[str, Any]) -> float:
        found = library.parse(answer, parsing_timeout=timeout)
        right = library.verify(read_mathematics(row["answer"], timeout), found, timeout_seconds=timeout)
        return float(bool(right))

    return score


def read_mathematics(answer: str, timeout: int | None) -> Any:
    """Parses a row's answer with math-verify; the result is empty if nothing is found.

    timeout: seconds, enforced by a signal that only the main thread of a process may set; None for no limit.
    """
    import math_verify as library

    marked = "$" in answer or "\\boxed" in answer
    return library.parse(answer if marked else f"${answer}$", parsing_timeout=timeout)


def function(name: str) -> Scorer:
    """Loads a user's function `reward(completion, row)` as a scorer, from `package.module:f` or `path/to/file.py:f`."""
    where, _, attribute = name.rpartition(":")
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(where).stem, where)
        if spec is None or spec.loader is None:
            raise ImportError(f"{where} cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    found = getattr(module, attribute)
    return lambda answer, row: found(answer, dict(row))


BUILDERS: dict[str, Callable[..., Scorer]] = {
    "reasoning-gym": reasoning_gym,
    "regex": regex,
    "math-verify": math_verify,
    "function": function,
}


def build(spec: Spec) -> Scorer:
    """Builds the scorer that `spec` describes."""
    settings = dict(spec)
    return BUILDERS[settings.pop("scorer")](**settings)
