"""Rewards of knowledge editing: the answer is correct, well-formed and clean, and rejects the old fact."""

from __future__ import annotations

import re
from typing import Any

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.rewards.blocks import TextReward

TAG, BOX = "answer", r"\boxed{"
NEGATIONS = {"no", "not"}
DROPPED = ("incorrect", "invalid", "superseded", "no longer", "outdated")
KEPT = ("correct", "valid", "remains")
# From the section's title to the word that ends it; a section without an end does not count.
SECTION = re.compile(r"re-evaluate knowledge network.*?(?:synthesize|formulate|<answer>)", re.IGNORECASE | re.DOTALL)
# A box, empty or not, somewhere between the first <answer> and the last </answer>.
BOX_INSIDE = re.compile(rf"<{TAG}>.*{re.escape(BOX)}.*\}}.*</{TAG}>", re.DOTALL)


def plain(text: str) -> str:
    """Returns the text in lower case, without the marks . , ! ? and quotes, with one space between words."""
    return " ".join(re.sub(r"[.,!?\"'`]", "", text.lower()).split())


def boxed(text: str) -> str:
    r"""Returns the content of the first \boxed{...}, "" if there is none."""
    found = re.search(r"\\boxed\{([^}]+)\}", text)
    return found[1].strip() if found else ""


def in_form(text: str) -> float:
    r"""Returns a score of the answer's form in [0, 1].

    1, less 0.5 unless there is exactly one block <answer>, less 0.5 unless there is exactly one \boxed{} and it stands
    between the first <answer> and the last </answer>, less 0.1 for a doubled backslash before it.
    """
    loss = 0.5 * (text.count(f"<{TAG}>") != 1 or text.count(f"</{TAG}>") != 1)
    loss += 0.5 * (text.count(BOX) != 1 or BOX_INSIDE.search(text) is None)
    return max(0.0, 1.0 - loss - 0.1 * ("\\" + BOX in text))


def correct(said: str, wanted: str) -> float:
    """Returns 1 for the same words; 0.75 if all words of `wanted` are in `said` and none of the others is a negation;
    else 0."""
    said, wanted = plain(said), plain(wanted)
    if not said or not wanted:
        return 0.0
    if said == wanted:
        return 1.0
    words, gold = set(said.split()), set(wanted.split())
    return 0.75 if gold <= words and not NEGATIONS & (words - gold) else 0.0


def clean(text: str, most: int = 2000) -> float:
    """Returns a score of the answer's cleanness in [0, 1].

    1, less 0.2 for each block <answer> beyond the first, 0.8 at most; less 0.6 for text after the only one; less 0.4
    beyond `most` characters.
    """
    count = text.count(f"<{TAG}>")
    loss = min(0.8, 0.2 * max(0, count - 1)) + 0.4 * (len(text) > most)
    loss += 0.6 * (count == 1 and bool(text.partition(f"</{TAG}>")[2].strip()))
    return max(0.0, 1.0 - loss)


def consistent(text: str, old: str | None) -> float:
    """Returns 1 if the section "Re-evaluate Knowledge Network" rejects the old fact, 0 if it upholds it or is missing,
    else 0.5.

    The marks of rejection and support must stand within 15 words of the fact. The section ends with "synthesize",
    "formulate" or <answer>; without an end it counts as missing. Without an old fact the value is 1.
    """
    if old is None:
        return 1.0
    section = SECTION.search(text)
    if section is None:
        return 0.0
    words, fact = plain(section[0]).split(), plain(old).split()
    for start in range(len(words) - len(fact) + 1):
        if words[start : start + len(fact)] == fact:
            # Without the fact's own words, which may contain one of the marks.
            around = f" {' '.join(words[max(0, start - 15) : start])} | {' '.join(words[start + len(fact) :][:15])} "
            if any(f" {mark} " in around for mark in DROPPED):
                return 1.0
            return 0.0 if any(f" {mark} " in around for mark in KEPT) else 0.5
    return 0.5


class EtConForm(TextReward):
    """The reward `in_form` of the answer. Source: EtCon, arXiv:2512.04753."""

    def read(self, text: str, row: int, experience: Experience) -> float:
        return in_form(text)


class EtConCleanness(TextReward):
    """The reward `clean` of the answer. Source: EtCon, arXiv:2512.04753."""

    most: int = 2000

    def read(self, text: str, row: int, experience: Experience) -> float:
        return clean(text, self.most)


class EtConCorrectness(TextReward):
    r"""The reward `correct` of the answer's \boxed{} content, compared with its task's reference answer.

    A list of many words gets 0.75 as soon as the right ones are among them. The paper also gives 0.4 to 0.6 for a
    similar meaning, which needs a text-similarity model. Source: EtCon, arXiv:2512.04753.

    Raises:
        ExperienceError: a task has no solution.
    """

    reads = frozenset({"extras.answer", "extras.task"})

    def read(self, text: str, row: int, experience: Experience) -> float:
        task = experience.extras["task"][row]
        if task.reference is None:
            raise ExperienceError(
                f"rewards.EtConCorrectness needs the solution of each task, found none for {task.id}; give the "
                "tasks solutions, "
                "or let the world judge, with rewards.OutcomeReward"
            )
        return correct(boxed(text), task.reference)


class EtConConsistency(TextReward):
    """The reward `consistent` of the answer; the old fact is in `field` of its task's row. Source: EtCon,
    arXiv:2512.04753."""

    field: str = "old"

    reads = frozenset({"extras.answer", "extras.task"})

    def read(self, text: str, row: int, experience: Experience) -> float:
        old: Any = experience.extras["task"][row].row.get(self.field)
        return consistent(text, None if old is None else str(old))
