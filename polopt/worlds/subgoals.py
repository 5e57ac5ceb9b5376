"""A wrapper in which every answer names the subgoal that its action is for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from polopt.sections import SectionSpan
from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, Tasks
from polopt.worlds.wrapped import WrappedTasks

TAGS = ("switch", "subgoal", "action")
SUBGOAL_PROMPT = "<switch>, <subgoal>, <action>:"
FIRST_SUBGOAL = "begin"


class SubgoalTasks(WrappedTasks):
    """Tasks whose answers are `<switch>SWITCH</switch><subgoal>...</subgoal><action>...</action>`, of which the world
    `tasks` reads the action.

    An answer that says KEEP, or nothing, goes on with the subgoal before it. One without an action is read as a whole,
    and counts as `malformed`; so does one without the other two. What the subgoal says is for the policy alone.

    tags: the names of the three tags. ask: what the prompt ends with.
    """

    has_sections = True

    def __init__(self, tasks: Tasks, *, tags: Sequence[str] = TAGS, ask: str = SUBGOAL_PROMPT) -> None:
        if len({*tags}) != 3 or not all(re.fullmatch(r"\w+", tag) for tag in tags):
            raise ValueError(
                f"with-subgoals: tags must be three different words, of the switch, the subgoal and the action, found "
                f"{list(tags)}"
            )
        super().__init__(tasks)
        self.tags, self.ask = tuple(tags), ask

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*super().signals, "malformed", "subgoals"]))

    def __getitem__(self, index: int) -> Task:
        task = self.tasks[index]
        solution = None if task.solution is None else self.written("SWITCH", FIRST_SUBGOAL, task.solution)
        return dataclasses.replace(
            task, prompt=f"{task.prompt}\n{self.ask}", solution=solution, answer=task.reference, rated=()
        )

    def episode(self, task: Task) -> Episode:
        return SubgoalEpisode(self, task)

    def written(self, switch: str, subgoal: str, action: str) -> str:
        """Returns an answer of the form."""
        return "".join(f"<{tag}>{text}</{tag}>" for tag, text in zip(self.tags, (switch, subgoal, action), strict=True))

    def spans(self, answer: str) -> dict[str, tuple[SectionSpan, str]]:
        """Returns the place of each tag of an answer, with the tag itself, and what it holds, by the name of its
        section."""
        found: dict[str, tuple[SectionSpan, str]] = {}
        for tag, section in zip(self.tags, TAGS, strict=True):
            match = re.search(f"<{tag}>(.*?)</{tag}>", answer, re.DOTALL)
            if match is not None:
                text = match[1].strip()
                name = "keep" if section == "switch" and text.upper() in ("KEEP", "") else section
                found[name] = SectionSpan(name, *match.span()), text
        return found


class SubgoalEpisode:
    """An episode whose answers name a subgoal."""

    def __init__(self, world: SubgoalTasks, task: Task) -> None:
        self.world, self.task = world, task
        self.inner = world.tasks.episode(task)
        self.open = False
        self.malformed = self.subgoals = 0

    def reset(self) -> str:
        self.inner.reset()
        self.open, self.malformed, self.subgoals = True, 0, 0
        return self.task.prompt

    def step(self, action: str) -> Step:
        if not self.open:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        found = self.world.spans(action)
        whole = {*found} >= {"subgoal", "action"} and ("keep" in found or "switch" in found)
        self.malformed += not whole
        self.subgoals += "switch" in found or not self.subgoals
        step = self.inner.step(found["action"][1] if "action" in found else action)
        self.open = not step.over
        own = {"malformed": float(self.malformed), "subgoals": float(self.subgoals)}
        inner = step.info.get("signals", {})
        own["malformed"] += inner.get("malformed", 0.0)
        sections = [span for span, _ in found.values()]
        return step._replace(info={**step.info, "signals": {**inner, **own}, "sections": sections})

    def demonstrate(self) -> str | None:
        """Returns the task's own demonstration, for a subgoal that begins with the episode and is kept."""
        action = self.inner.demonstrate() if self.open else None
        if action is None:
            return None
        return self.world.written("KEEP" if self.subgoals else "SWITCH", FIRST_SUBGOAL, action)
