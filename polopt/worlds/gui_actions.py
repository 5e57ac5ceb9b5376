"""Actions on a screen as a model writes them: how they are read, and when one is the right one."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
WHOLE = re.compile(r"\s*<think>.*?</think>\s*<answer>[^<]*</answer>\s*", re.DOTALL)
NO_TEXT = "no input text"
WITH_TEXT = frozenset({"type", "select", "open_app"})
DIRECTIONS = frozenset({"left", "right", "up", "down"})
# Longer answers are not read: they are no list of one action.
LONGEST = 2000


@dataclasses.dataclass(frozen=True)
class GUIAction:
    """One action. kind: as "click" or "type". point: x and y in pixels. text: what is typed, chosen or a direction."""

    kind: str
    point: tuple[int, int]
    text: str

    @property
    def is_complete(self) -> bool:
        """Returns whether it has the text that an action of its kind needs."""
        if self.kind == "scroll":
            return self.text in DIRECTIONS
        return self.kind not in WITH_TEXT or self.text.strip() not in ("", NO_TEXT)

    def written(self) -> str:
        """Returns the action as it stands in an answer."""
        return str([{"action": self.kind, "point": list(self.point), "input_text": self.text}])


def read_action(answer: str) -> GUIAction | None:
    """Reads the action in `<answer>[{'action': ..., 'point': [x, y], 'input_text': ...}]</answer>`, None if there is
    none. The text is read as a literal, and never evaluated."""
    found = ANSWER.findall(answer)
    if not found or len(found[-1]) > LONGEST:
        return None
    try:
        actions = ast.literal_eval(found[-1].strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], dict):
        return None
    action = actions[0]
    kind, point, text = action.get("action"), action.get("point"), action.get("input_text", NO_TEXT)
    if not isinstance(kind, str) or not isinstance(text, str) or not isinstance(point, list) or len(point) != 2:
        return None
    if not all(type(number) is int for number in point):
        return None
    return GUIAction(kind, (point[0], point[1]), text)


def is_well_formed(answer: str) -> bool:
    """Returns whether an answer is a thought and one complete action, and nothing else."""
    action = read_action(answer)
    return action is not None and action.is_complete and WHOLE.fullmatch(answer) is not None


def is_right(action: GUIAction, target: Mapping[str, Any], near: float = 140.0) -> bool:
    """Returns whether an action is the target's: of its kind, and

        click                    inside `target["box"]` without its edges, or nearer to `target["point"]` than `near`
        type, select, scroll     of a text whose words have an F1 of at least 0.5 with those of `target["text"]`; of two
                                 single words one is part of the other

    Other kinds need no more. near: in pixels.
    """
    if action.kind != target["action"]:
        return False
    if action.kind == "click":
        x, y = action.point
        if "box" in target:
            left, top, right, bottom = target["box"]
            return bool(left < x < right and top < y < bottom)
        return math.dist(action.point, target["point"]) < near
    if action.kind in ("type", "select", "scroll"):
        return _same_words(action.text, target["text"])
    return True


def _same_words(text: str, wanted: str) -> bool:
    own, others = text.lower().split(), wanted.lower().split()
    if len(own) == len(others) == 1:
        return own[0] in others[0] or others[0] in own[0]
    common = len(set(own) & set(others))
    if not common:
        return False
    precision, recall = common / len(set(own)), common / len(set(others))
    return 2 * precision * recall / (precision + recall) >= 0.5
