"""Tools before an answer: results, errors, the answer of the task inside, and arithmetic against Python's own."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polopt.config import ConfigError
from polopt.worlds import GuessNumber, ToolUse, build_tasks, calculator, signals_of


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def double(number: int) -> int:
    """Doubles a number."""
    if number > 100:
        raise ValueError("too large")
    return 2 * number


INSIDE = GuessNumber(1, 9, turns=2, size=3)
TASKS = ToolUse(INSIDE, {"double": double, "calculator": calculator}, calls=2)


def test_calls_come_before_the_answer() -> None:
    task = TASKS[1]
    assert task.prompt.startswith(INSIDE[1].prompt)
    assert "double(number: 'int'): Doubles a number." in task.prompt
    assert (TASKS.turns, signals_of(TASKS)) == (4, ("calls", "first_call", "malformed"))
    episode = TASKS.episode(task)
    assert episode.reset() == task.prompt
    step = episode.step(call("double", number=21) + call("calculator", expression="6*7"))
    assert (step.observation, step.reward, step.over) == ("42\n42", 0.0, False)
    assert step.info["signals"] == {"calls": 2.0, "first_call": 0.0, "malformed": 0.0}
    assert episode.step(call("double", number=500)).observation == "error: double: too large"
    assert "there is no tool rm" in episode.step(call("rm")).observation
    wrong = 1 if task.row["number"] > 1 else 2
    step = episode.step(str(wrong))
    assert step.observation in ("higher", "lower")
    step = episode.step(str(task.row["number"]))
    assert (step.reward, step.terminated, step.info["solved"], step.info["guess"]) == (
        1,
        True,
        True,
        task.row["number"],
    )
    assert step.info["signals"] == {"calls": 4.0, "first_call": 0.0, "malformed": 0.0}
    episode.reset()
    last = episode.step(str(task.row["number"]))
    assert last.info["signals"] == {"calls": 0.0, "first_call": -1.0, "malformed": 0.0}


numbers = st.one_of(st.integers(0, 99).map(str), st.decimals("0.01", 9, places=2).map(str))
sums = st.recursive(
    numbers,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=6,
)


@given(sums)
@settings(max_examples=150, deadline=None)
def test_arithmetic_is_exact(text: str) -> None:
    exact = re.sub(r"\d+(\.\d+)?", lambda m: f"Fraction('{m[0]}')", text)
    try:
        expected = eval(exact, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(ValueError, match="division by 0"):
            calculator(text)
        return
    found = calculator(text)
    assert Fraction(found) == expected if expected.denominator == 1 else float(found) == float(expected)


@pytest.mark.parametrize("text", ["", "2 +", "__import__('os')", "9**9**9**9", "a + 1", "1 if 2 else 3", "'a' * 9", 7])
def test_what_is_no_arithmetic(text: object) -> None:
    with pytest.raises(ValueError, match="must be arithmetic"):
        calculator(text)  # type: ignore[arg-type]
    assert calculator(" -2 ** 3 / 4 ") == "-2"
    with pytest.raises(ValueError, match="whole numbers"):
        calculator("2 ** 0.5")


def test_in_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('def half(number: float) -> float:\n    """Halves."""\n    return number / 2\n')
    inside = {"kind": "guess-number", "train": 4, "heldout": 2}
    spec = {"kind": "with-tools", "of": inside, "tools": ["calculator", f"{tmp_path / 'mine.py'}:half"], "calls": 1}
    split = build_tasks(spec, seed=0)
    episode = split.heldout.episode(split.heldout[0])
    episode.reset()
    assert episode.step(call("half", number=5)).observation == "2.5"
    with pytest.raises(ConfigError, match="'abacus' is none of calculator and python"):
        build_tasks({**spec, "tools": ["abacus"]}, seed=0)
    with pytest.raises(ValueError, match="needs a tool and calls >= 1"):
        ToolUse(INSIDE, {})
