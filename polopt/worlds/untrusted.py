"""Detection of answers that a scorer would run as code, or that would keep it busy forever.

Some of reasoning_gym's scorers pass the answer to `eval`, or to sympy's `parse_expr`, which is `eval` too; some read
1e999999999 exactly, digit by digit. An answer is a model's text, so a scorer receives safe answers only. This is the
first of two defences, and saves the time that the second, a process with limits, needs.

This module imports the standard library alone, because worker processes load it without the rest of polopt.
"""

from __future__ import annotations

import ast
import math
import re
import unicodedata

# Scorers that call eval(answer) and expect a list.
EVALUATE = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
# Scorers that call sympy's parse_expr(answer) and expect arithmetic on numbers, or a formula.
ARITHMETIC = frozenset({"countdown", "puzzle24"})
FORMULA = frozenset({"intermediate_integration", "polynomial_multiplication", "simple_integration"})

# Scorers that repeat a move, one at a time, as often as the number after it.
MOVES = frozenset({"rubiks_cube", "rush_hour"})

FUNCTIONS = {"exp", "log", "ln", "sqrt", "Abs", "sec", "csc", "cot"}.union(
    f"{arc}{name}{h}" for arc in ("", "a") for name in ("sin", "cos", "tan") for h in ("", "h")
)
MAX_LENGTH = 1000
MAX_BITS = 4096
# The most terms of a formula that is multiplied out.
MAX_TERMS = 1000
# Digits of all scripts, in any of which Python reads numbers.
_HUGE = re.compile(r"[\d.][eE][-+]?\d{4,}")
_MANY = re.compile(r"\d{7,}")


def is_safe(dataset: str, answer: str) -> bool:
    """Returns True if `answer` may be passed to `dataset`'s scorer: plain data, or arithmetic of bounded size."""
    # Scorers drop commas, Python drops underscores, and both read full-width signs.
    text = unicodedata.normalize("NFKC", answer).replace(",", "").replace("_", "")
    if _HUGE.search(text) or (dataset in MOVES and _MANY.search(text)):
        return False
    if dataset in EVALUATE:
        return not _is_program(answer)
    if dataset in ARITHMETIC | FORMULA:
        return is_arithmetic(answer, names=dataset in FORMULA)
    return True


def _is_program(text: str) -> bool:
    """Returns True if eval(text) would do more than read a literal or fail on its syntax."""
    try:
        ast.parse(text.lstrip(" \t"), mode="eval")
    except (SyntaxError, ValueError):
        return False
    except (RecursionError, MemoryError):
        return True
    try:
        ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return True
    return False


def is_arithmetic(text: str, names: bool = False) -> bool:
    """Returns True for numbers under + - * / ** with, if `names`, symbols and elementary functions, without huge
    powers."""
    if len(text) > MAX_LENGTH:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _bits(tree, names)
        if names:
            _terms(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _bits(node: ast.expr, names: bool) -> int:
    """Returns a bound on log2 of the numbers that arise from `node`; raises ValueError if it is not plain or small."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            bits = max(1, value.bit_length())
        # sympy reads 1e-999999999 exactly, and dividing by it makes a huge number.
        case ast.Constant(value=float(value)) if 1e-9 <= value <= 1e15:
            bits = max(1, int(value).bit_length())
        case ast.Name() if names and not node.id.startswith("_"):
            bits = 1
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            bits = _bits(node.operand, names)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
            bits = _bits(node.left, names) + _bits(node.right, names)
        case ast.BinOp(op=ast.Pow()):
            bits = _bits(node.left, names) * 2 ** _bits(node.right, names)
        case ast.Call(func=ast.Name(id=called), keywords=[]) if names and called in FUNCTIONS:
            bits = 2 + sum(_bits(argument, names) for argument in node.args)
        case _:
            raise ValueError("not arithmetic")
    if bits > MAX_BITS:
        raise ValueError("too large")
    return bits


def _terms(node: ast.expr) -> int:
    """Returns a bound on the number of terms of `node` multiplied out, where `_bits` accepts it.

    A sum of k terms to the power n has C(n + k - 1, k - 1) of them.

    Raises:
        ValueError: the bound exceeds `MAX_TERMS`.
    """
    match node:
        case ast.UnaryOp():
            terms = _terms(node.operand)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            terms = _terms(node.left) + _terms(node.right)
        case ast.BinOp(op=ast.Pow()):
            inner = _terms(node.left)
            terms = math.comb(2 ** _bits(node.right, True) + inner - 1, inner - 1)
        case ast.BinOp():
            terms = _terms(node.left) * _terms(node.right)
        case ast.Call():
            terms = max(map(_terms, node.args), default=1)
        case _:
            terms = 1
    if terms > MAX_TERMS:
        raise ValueError("too many terms")
    return terms
