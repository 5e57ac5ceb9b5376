"""An app of menus: ways there and back, by hand, and goals that are held out."""

from __future__ import annotations

import re

import pytest

from polopt.backends import Chat
from polopt.config import ConfigError
from polopt.methods.mobile_r1 import mobile_r1
from polopt.rewards import HTTPJudge
from polopt.worlds import Apps, EpisodeError, build_tasks

WORLD = Apps(size=40, depth=2, buttons=3, turns=5, lost=0.5, seed=1)


def button(screen: str, letter: str) -> str:
    number = re.search(rf"(\d) {letter}\b", screen.split("; ")[2])
    assert number is not None, screen
    return f"<action>press {number[1]}</action>"


def test_buttons_lead_on_and_back_leads_back() -> None:
    task = next(task for task in map(WORLD.__getitem__, range(40)) if task.kind == "begun")
    goal, episode = task.row["goal"], WORLD.episode(task)
    with pytest.raises(EpisodeError, match="call reset"):
        episode.step("<action>back</action>")
    screen = episode.reset()
    assert screen == task.prompt
    assert screen.startswith(f"goal {goal}; at home; ")
    wrong = next(letter for letter in "abc" if letter != goal[0])
    first = episode.step(button(screen, wrong))
    assert (first.reward, first.over) == (0.0, False)
    assert first.observation.startswith(f"goal {goal}; at {wrong}; ")
    back = episode.step("<think>not here</think><action>back</action>")
    assert back.observation == screen
    on = episode.step(button(screen, goal[0]))
    done = episode.step(button(on.observation, goal[1]))
    assert (done.reward, done.terminated, done.observation) == (1.0, True, "")
    assert done.info["signals"] == {"format": 1.0}
    with pytest.raises(EpisodeError, match="is over"):
        episode.step("<action>back</action>")


@pytest.mark.parametrize("answer", ["press 1", "<action>press 9</action>", "<action>jump</action>", "", "<action>back"])
def test_other_answers_change_nothing_and_are_counted(answer: str) -> None:
    episode = WORLD.episode(WORLD[0])
    screen = episode.reset()
    step = episode.step(answer)
    assert (step.observation, step.reward, step.over) == (screen, 0.0, False)
    episode.step(episode.demonstrate() or "")
    assert step.info["signals"] == {"format": 0.0}


def test_at_a_wrong_end_only_back_leads_on() -> None:
    task = WORLD[0]
    episode = WORLD.episode(task)
    screen = episode.reset()
    at = re.search("at (\\w+)", screen)
    assert at is not None
    for _ in range(2 - (0 if at[1] == "home" else len(at[1]))):
        wrong = next(letter for letter in "abc" if letter not in task.row["goal"] or letter != task.row["goal"][-1])
        screen = episode.step(button(screen, wrong)).observation
    assert screen.endswith("no buttons")
    assert episode.demonstrate() == "<action>back</action>"


def test_demonstrations_do_every_task() -> None:
    for index in range(40):
        task = WORLD[index]
        episode = WORLD.episode(task)
        episode.reset()
        lost = task.kind == "lost"
        for turn in range(5):
            action = episode.demonstrate() or ""
            assert (action == "<action>back</action>") == (lost and turn == 0)
            step = episode.step(action)
            if step.over:
                break
        assert step.reward == 1.0
        assert turn == 1 + lost


def test_a_single_action_is_one_right_button() -> None:
    world = Apps(size=30, depth=3, buttons=2, single=True, lost=0.3, seed=2)
    assert world.turns == 1
    kinds = set()
    for index in range(30):
        task = world[index]
        kinds.add(task.kind)
        episode = world.episode(task)
        episode.reset()
        assert task.solution == episode.demonstrate()
        step = episode.step(task.solution or "")
        assert (step.reward, step.terminated) == (1.0, True)
        other = world.episode(task)
        other.reset()
        assert other.step("<action>press 1</action>").reward == float(task.solution == "<action>press 1</action>")
    assert kinds == {"begun", "lost"}


def test_goals_are_held_out_and_tasks_are_the_same_everywhere() -> None:
    split = build_tasks({"kind": "apps", "train": 60, "heldout": 30}, seed=3)
    goals = [set(Apps(size=1, seed=3, heldout=held).goals) for held in (False, True)]
    assert not goals[0] & goals[1]
    assert len(goals[0] | goals[1]) == 27
    for tasks, known in zip((split.train, split.heldout), goals, strict=True):
        assert {tasks[i].row["goal"] for i in range(len(tasks))} <= known
    again = build_tasks({"kind": "apps", "train": 60, "heldout": 30}, seed=3)
    assert [again.train[i].prompt for i in range(60)] == [split.train[i].prompt for i in range(60)]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 to 8 buttons"):
        build_tasks({"kind": "apps", "buttons": 1}, seed=0)
    with pytest.raises(ConfigError, match="lost and midway in"):
        build_tasks({"kind": "apps", "lost": 2.0}, seed=0)
    judge = HTTPJudge(chat=Chat(url="http://localhost:1/v1", model="m"))
    with pytest.raises(ValueError, match="a judge is asked in stage 3"):
        mobile_r1(stage=2, judge=judge)
