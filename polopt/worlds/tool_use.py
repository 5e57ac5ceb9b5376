"""Any tasks, with tools that may be called before the answer: a calculator, a Python interpreter, or a user's own."""

from __future__ import annotations

import ast
import dataclasses
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from polopt.worlds.interpreter import Interpreter
from polopt.worlds.protocol import Episode, Step, Task, Tasks
from polopt.worlds.tools import ToolEpisode, ToolTasks, described_tools
from polopt.worlds.untrusted import is_arithmetic

Tool = Callable[..., Any]
OPERATIONS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def calculator(expression: str) -> str:
    """Computes numbers with + - * / ** and brackets."""
    if not isinstance(expression, str) or not is_arithmetic(expression):
        raise ValueError("expression must be arithmetic on numbers with + - * / ** and brackets, of a bounded size")
    try:
        value = _computed(ast.parse(expression.strip(), mode="eval").body)
    except ZeroDivisionError:
        raise ValueError("division by 0") from None
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


def _computed(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as value):
            return Fraction(str(value))
        case ast.UnaryOp(op=ast.USub()):
            return -_computed(node.operand)
        case ast.UnaryOp():
            return _computed(node.operand)
        case ast.BinOp():
            left, right = _computed(node.left), _computed(node.right)
            if isinstance(node.op, ast.Pow) and right.denominator != 1:
                raise ValueError("powers must be whole numbers")
            return Fraction(OPERATIONS[type(node.op)](left, right))
    raise ValueError("not arithmetic")


def python_tool(interpreter: Interpreter) -> Tool:
    """Returns the tool `python(code)`, which runs a program and returns what it printed."""

    def python(code: str) -> str:
        """Runs a Python program and shows what it prints."""
        if not isinstance(code, str):
            raise ValueError("code must be a text")
        found = interpreter.run(code)
        told = {
            "done": "",
            "error": "",
            "seconds": f"stopped after {interpreter.seconds:g} s",
            "output": "stopped: too much was printed",
            "killed": "stopped by the system",
        }[found.end]
        return "\n".join(filter(None, (found.output.strip(), told))) or "nothing was printed"

    return python


class ToolUse(ToolTasks):
    """Tasks whose policy may call tools before it answers.

    An answer with calls, see `worlds.tools.tool_calls`, is followed by their results; one without is the answer of the
    task inside, whose rewards and signals it has. The prompt ends with the tools, and how they are called.

    tools: by name; they take JSON values by name and return text or JSON data, and the message of a ValueError is read
        by the policy. Episodes share them, so they must keep no state.
    calls: how many answers with calls an episode may have, in addition to the turns of the tasks.

    Raises:
        ValueError: no tool, or calls < 1.
    """

    def __init__(self, tasks: Tasks, tools: Mapping[str, Tool], *, calls: int = 3) -> None:
        super().__init__(tasks)
        if not tools or calls < 1:
            raise ValueError(f"with-tools: needs a tool and calls >= 1, found {len(tools)} tools and calls {calls}")
        self.tools, self.calls = dict(tools), calls

    @property
    def turns(self) -> int:
        return self.tasks.turns + self.calls

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        how = '<tool_call>{"name": NAME, "arguments": {...}}</tool_call>'
        told = f"Before you answer you may call tools, as {how}:\n{described_tools(self.tools)}"
        return dataclasses.replace(task, prompt=f"{task.prompt}\n{told}")

    def episode(self, task: Task) -> Episode:
        return ToolUseEpisode(self, task)


class ToolUseEpisode(ToolEpisode):
    """An episode of a task with tools beside it."""

    def __init__(self, world: ToolUse, task: Task) -> None:
        self.inner = world.tasks.episode(task)
        super().__init__(_Toolbox(world.tools), task)

    def reset(self) -> str:
        self.inner.reset()
        return super().reset()

    def _answered(self, action: str) -> Step:
        step = self.inner.step(action)
        self._open = not step.over
        own = self._info(step.info.get("solved", step.reward >= 1))
        signals = {**step.info.get("signals", {}), **own["signals"]}
        return step._replace(info={**own, **step.info, "signals": signals})

    def demonstrate(self) -> str | None:
        return self.inner.demonstrate()


class _Toolbox:
    """A session of tools alone."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools

    def tools(self) -> Mapping[str, Tool]:
        return self._tools

    def score(self, answer: str) -> float:
        raise NotImplementedError("the task inside scores answers")
