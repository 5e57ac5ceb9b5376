"""Screens: what is told and what is right agree, held-out screens are others, and no answer is run or hangs."""

from __future__ import annotations

import re

import pytest

from polopt.config import ConfigError
from polopt.worlds import Screens, build_tasks
from polopt.worlds.gui_actions import GUIAction, is_right, is_well_formed, read_action
from polopt.worlds.screens import CELL, HEIGHT, KINDS, WIDTH

TASKS = Screens(size=120, widgets=6, seed=4)


def widgets(prompt: str) -> list[tuple[str, list[int]]]:
    told = prompt.partition(": ")[2].partition(". ")[0].split("; ")
    return [(line.split()[0], [int(n) for n in line.split()[1:]]) for line in told]


def test_what_is_told_and_what_is_right_agree() -> None:
    for i in range(120):
        task = TASKS[i]
        found, target = widgets(task.prompt), task.row["target"]
        assert task == TASKS[i]
        assert (task.kind, len(found)) == (KINDS[i % len(KINDS)], 6)
        assert len({tuple(box) for _, box in found}) == len({name for name, _ in found}) == 6
        assert all(0 <= a < c <= WIDTH and 0 <= b < d <= HEIGHT for _, (a, b, c, d) in found)
        goal = task.prompt.partition(". ")[2]
        if task.kind == "click":
            assert [box for name, box in found if f"Press {name}." in goal] == [target["box"]]
        elif task.kind in ("type", "select", "scroll", "open_app"):
            assert re.search(rf"(Enter|Choose|Scroll|Open) {target['text']}", goal)
        score, info = TASKS.score(task.solution or "", task)
        assert (score, info["solved"], info["signals"]) == (1.0, True, {"format": 1.0})


def test_held_out_screens_are_others() -> None:
    split = build_tasks({"kind": "screens", "train": 200, "heldout": 200}, seed=1)
    first = [
        {widgets(part[i].prompt)[0][1][1] // CELL % 2 for i in range(200)} for part in (split.train, split.heldout)
    ]
    assert first == [{1}, {0}]
    with pytest.raises(ConfigError, match="2 to 8 widgets, found 5 and 9"):
        build_tasks({"kind": "screens", "widgets": 9, "train": 5}, seed=0)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "<answer></answer>",
        "<answer>__import__('os').system('x')</answer>",
        f"<answer>{'[' * 900}{']' * 900}</answer>",
        f"<answer>{'(' * 5000}</answer>",
        "<answer>[{'action': 'click', 'point': [True, 1]}]</answer>",
        "<answer>[{'action': ['click'], 'point': [1, 1]}]</answer>",
        "<answer>[{'action': 'click', 'point': [1, 1]}, {'action': 'click', 'point': [1, 1]}]</answer>",
        "<answer>[{'action': 'type', 'point': [1, 1], 'input_text': 7}]</answer>",
        "<answer>[{[]: 1}]</answer>",
        "<answer>1 + </answer>",
    ],
)
def test_what_is_no_action(answer: str) -> None:
    assert read_action(answer) is None
    assert not is_well_formed(answer)
    assert TASKS.score(answer, TASKS[0]) == (0.0, {"solved": False, "signals": {"format": 0.0}})


def test_an_action_is_read_as_it_is_written() -> None:
    for kind, text in (("type", 'it\'s "so"'), ("scroll", "left"), ("press_back", "no input text")):
        action = GUIAction(kind, (3, 40), text)
        answer = f"<think>x</think> <answer>{action.written()}</answer>"
        assert read_action(answer) == action
        assert is_well_formed(answer)
    assert not is_well_formed(f"<think>x</think><answer>{GUIAction('open_app', (0, 0), ' ').written()}</answer>")
    assert is_right(GUIAction("open_app", (0, 0), "Clock"), {"action": "open_app", "text": "Mail"})
