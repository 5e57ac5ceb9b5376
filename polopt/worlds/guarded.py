"""A wrapper that puts a guard in front of the tool calls of a world, and measures reward under rules and rule
violations."""

from __future__ import annotations

from typing import Any

from polopt.guards import Guard, GuardVerdict, ToolCall, ToolCallError
from polopt.guards.guard import strictest
from polopt.worlds.protocol import LOST, Episode, Step, Task, Tasks
from polopt.worlds.tools import FIRST_CALL, calls_tools
from polopt.worlds.wrapped import WrappedTasks


class GuardedTasks(WrappedTasks):
    """Tasks whose tool calls run only if a guard allows them.

    If the guard refuses a call of an answer, none of the answer's calls run; there is no human approval.
    `signals["refused"]` counts the refused calls, `signals["ran"]` the calls that ran.

    guard: returns a verdict on a call, given the calls that have run and those before it in the answer.
    penalty: subtracted from the reward for each refused call.

    Raises:
        ValueError: the tasks' tool calls cannot be read, or penalty < 0.
    """

    def __init__(self, tasks: Tasks, guard: Guard, *, penalty: float = 0.0) -> None:
        if not calls_tools(tasks):
            raise ValueError(
                f"guarded: {type(tasks).__name__} calls no tools that could be guarded; make the tasks with "
                "polopt.worlds.tool_environment, and put other worlds around the guarded one, not between"
            )
        if penalty < 0:
            raise ValueError(f"guarded: penalty must be >= 0, found {penalty}")
        super().__init__(tasks)
        self.guard, self.penalty = guard, penalty

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().signals, "refused", "ran")))

    def episode(self, task: Task) -> Episode:
        return GuardedEpisode(self, task, self.tasks.episode(task))

    def calls(self, text: str) -> list[ToolCall]:
        """Returns the tool calls in an answer, as the tasks parse them; none if they cannot be parsed."""
        try:
            found: list[ToolCall] = self.tasks.tool_calls(text)  # type: ignore[attr-defined]
        except ToolCallError:
            return []
        return found


class GuardedEpisode:
    """An episode behind a guard."""

    def __init__(self, world: GuardedTasks, task: Task, inner: Episode) -> None:
        self.world, self.task, self.inner = world, task, inner
        self.memory: list[ToolCall] = []
        self.refused = 0
        self._answers = 0
        self._signals: dict[str, float] = {}  # the inner episode's last ones

    def reset(self) -> str:
        self.memory, self.refused, self._answers, self._signals = [], 0, 0, {}
        return self.inner.reset()

    def step(self, action: str) -> Step:
        self._answers += 1
        calls = self.world.calls(action)
        verdicts: list[GuardVerdict] = []
        for i, call in enumerate(calls):
            verdicts.append(self.world.guard(call, (*self.memory, *calls[:i])))
        if all(verdict.allow for verdict in verdicts):
            self.memory += calls
            step = self.inner.step(action)
            return step if step is LOST else step._replace(info=self._counted(step.info))
        count = sum(not verdict.allow for verdict in verdicts)
        self.refused += count
        return self._refusal(strictest(verdicts), -self.world.penalty * count)

    def _refusal(self, verdict: GuardVerdict, reward: float) -> Step:
        info = self._counted({"solved": False, "feedback": verdict.reason})
        if verdict.fallback == "end":
            return Step("", reward, terminated=True, truncated=False, info=info)
        observation = f"error: {verdict.reason}; nothing was run. The task is still: {self.task.prompt}"
        return Step(observation, reward, terminated=False, truncated=False, info=info)

    def _counted(self, info: dict[str, Any]) -> dict[str, Any]:
        told = dict(info.get("signals", {}))
        if told.get(FIRST_CALL, -1) >= 0:
            # Of answers that were refused the inner episode knows nothing.
            known = self._signals.get(FIRST_CALL, -1.0)
            told[FIRST_CALL] = known if known >= 0 else float(self._answers - 1)
        self._signals |= told
        signals = {**self._signals, "refused": float(self.refused), "ran": float(len(self.memory))}
        return {**info, "signals": signals}

    def demonstrate(self) -> str | None:
        return self.inner.demonstrate()
