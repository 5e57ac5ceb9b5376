"""Static metrics of unit tests: good habits, and the absence of smells; the tests are never executed."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
import warnings

# Desired properties, and smells, named by their absence.
HABITS = ("assertion", "focal", "name")
SMELLS = ("unique", "straight", "unguarded", "silent", "awake", "filled", "uncommented")
METRICS = ("syntax", *HABITS, *SMELLS)
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.comprehension, ast.Match)
# The most characters and levels of nesting; a requested test has about eight levels.
LONGEST, DEEPEST = 20_000, 100


def metrics(text: str, focal: str) -> dict[str, float]:
    """Returns 1 or 0 for each of `METRICS` of a Python test of the function `focal`; all 0 for text that is no Python.

    syntax: it can be parsed. assertion: it asserts something. focal: it calls the function. name: a test function is
        called test_<focal>_ and then something. unique: no assertion stands twice. straight: no branch, no loop.
        unguarded: no try, no raise. silent: no print. awake: no sleep. filled: each function does something.
        uncommented: no comment.

    The text is parsed and never executed, so the correctness of the test is not checked. Text that is nested too deeply
    to be parsed, or that contains too long a number, counts as no Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dict(_read(text, focal))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return dict.fromkeys(METRICS, 0.0)


@functools.lru_cache(maxsize=1024)
def _read(text: str, focal: str) -> dict[str, float]:
    if len(text) > LONGEST:
        raise ValueError("too long")
    tree = ast.parse(text)
    nodes = _nodes(tree)
    functions = [n for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    calls = [_called(n) for n in nodes if isinstance(n, ast.Call)]
    asserted = [ast.dump(n) for n in nodes if _asserts(n)]
    begun = f"test_{focal}_"
    found = {
        "syntax": True,
        "assertion": bool(asserted),
        "focal": focal in calls,
        "name": any(f.name.startswith(begun) and f.name != begun for f in functions),
        "unique": len(set(asserted)) == len(asserted),
        "straight": not any(isinstance(n, BRANCHES) for n in nodes),
        "unguarded": not any(isinstance(n, (ast.Try, ast.TryStar, ast.Raise)) for n in nodes),
        "silent": "print" not in calls,
        "awake": "sleep" not in calls,
        "filled": bool(functions) and all(any(not _idle(s) for s in f.body) for f in functions),
        "uncommented": not _commented(text),
    }
    return {name: float(value) for name, value in found.items()}


def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Returns all nodes of a tree.

    Raises:
        RecursionError: the nesting is deeper than `DEEPEST`, a bound that is independent of the interpreter's current
            stack.
    """
    found: list[ast.AST] = []
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        found += level
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise RecursionError
    return found


def _called(call: ast.Call) -> str:
    """Returns the name of the called function, without the object that it belongs to."""
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _asserts(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value).startswith("assert")
    )


def _idle(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _commented(text: str) -> bool:
    try:
        return any(t.type == tokenize.COMMENT for t in tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):  # errors that the parser tolerates
        return False
