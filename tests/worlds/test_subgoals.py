"""Answers that name a subgoal: the action alone reaches the task, and each token's section is known."""

from __future__ import annotations

import pytest

from polopt.sections import SECTIONS, SectionSpan, token_sections
from polopt.worlds import EpisodeError, GuessNumber, SubgoalTasks, build_tasks, signals_of

TASKS = SubgoalTasks(GuessNumber(1, 9, turns=4, size=5))


def test_the_world_reads_the_action_alone() -> None:
    task = TASKS[2]
    assert task.prompt == f"{TASKS.tasks[2].prompt}\n<switch>, <subgoal>, <action>:"
    episode, plain = TASKS.episode(task), TASKS.tasks.episode(TASKS.tasks[2])
    with pytest.raises(EpisodeError, match="call reset"):
        episode.step("1")
    assert episode.reset() == task.prompt
    plain.reset()
    while True:
        action = plain.demonstrate() or ""
        answer = episode.demonstrate() or ""
        assert answer.endswith(f"<action>{action}</action>")
        step, own = episode.step(answer), plain.step(action)
        assert (step.observation, step.reward, step.over) == (own.observation, own.reward, own.over)
        assert step.info["signals"]["malformed"] == 0
        if step.over:
            break
    assert step.reward == 1.0
    assert step.info["signals"]["subgoals"] == 1  # the demonstration keeps its first one
    assert episode.demonstrate() is None


def test_what_an_answer_says_is_told_with_its_place() -> None:
    episode = TASKS.episode(TASKS[0])
    episode.reset()
    answer = "so <switch>switch</switch> <subgoal>low ones</subgoal><action>1</action>"
    step = episode.step(answer)
    places = {span.section: answer[span.begin : span.end] for span in step.info["sections"]}
    assert places == {
        "switch": "<switch>switch</switch>",
        "subgoal": "<subgoal>low ones</subgoal>",
        "action": "<action>1</action>",
    }
    kept = episode.step("<switch>Keep</switch><subgoal>low ones</subgoal><action>1</action>")
    assert [span.section for span in kept.info["sections"]] == ["keep", "subgoal", "action"]
    assert kept.info["signals"] == {"malformed": 0.0, "subgoals": 1.0}
    # An answer without tags is read as a whole, and counted.
    bare = episode.step("1")
    assert (bare.info["sections"], bare.info["signals"]["malformed"]) == ([], 1.0)
    assert set(signals_of(TASKS)) == {*signals_of(TASKS.tasks), "malformed", "subgoals"}


def test_the_section_of_a_token_is_that_of_its_first_character() -> None:
    """By hand, for tokens that lie across two sections, one without text, and parts of one character."""
    pieces = ["ab", "c]d", "", "ef", "</s>"]
    spans = [SectionSpan("switch", 1, 4), SectionSpan("action", 4, 7)]

    def text(ids: list[int]) -> str:
        return "".join(pieces[i] for i in ids).removesuffix("</s>")

    names = [SECTIONS[n] if n >= 0 else None for n in token_sections(range(5), spans, text)]
    assert names == [None, "switch", "action", "action", "action"]
    assert token_sections(range(5), [], text) == [-1] * 5
    letters = "aéb".encode()  # a token a byte: the two of é have no text of their own

    def decoded(ids: list[int]) -> str:
        return bytes(letters[i] for i in ids).decode(errors="ignore")

    told = token_sections(range(4), [SectionSpan("subgoal", 0, 2), SectionSpan("action", 2, 3)], decoded)
    assert [SECTIONS[n] for n in told] == ["subgoal", "subgoal", "subgoal", "action"]


def test_from_plain_data() -> None:
    spec = {"kind": "with-subgoals", "of": {"kind": "guess-number", "high": 5}, "tags": ["q", "g", "a"], "ask": "Go."}
    split = build_tasks(spec, seed=0)
    assert split.heldout[0].prompt.endswith("\nGo.")
    episode = split.train.episode(split.train[0])
    episode.reset()
    step = episode.step("<q>SWITCH</q><g>all</g><a>2</a>")
    assert step.info["signals"]["malformed"] == 0
    with pytest.raises(ValueError, match="three different words"):
        build_tasks(spec | {"tags": ["q", "q", "a"]}, seed=0)
