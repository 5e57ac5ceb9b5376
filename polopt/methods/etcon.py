"""EtCon: knowledge editing by supervised fine-tuning within a trust region, then consolidation by GRPO."""

from __future__ import annotations

import re
from typing import Any

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.methods.sft import sft
from polopt.objectives import Clip, OldPolicyRatio
from polopt.rewards import ConditionalReward, OutcomeReward, PositiveReward, SumOfRewards
from polopt.rewards.blocks import TextReward


@method(
    paper=Paper(
        title="EtCon: Edit-then-Consolidate for Reliable Knowledge Editing",
        authors="Li, Ruilin and others",
        year=2025,
        arxiv="2512.04753",
    ),
    changes="SFT with a clipped ratio to the policy before each batch, on a few layers; then GRPO on edited questions.",
    room="objectives",
    tier="reading",
)
def etcon(*, stage: int = 2, group: int = 5, clip: float = 0.2, kl: float = 0.01, bundle: bool = False) -> Algorithm:
    r"""Stage 1, on demonstrations of the new facts:

        L = -(1 / sum_i |y_i|) sum_it min(rho_it, clip(rho_it, 1 - clip, 1 + clip)),    rho = pi / pi_before

    with pi_before the policy before its first update on the batch: a token that has already moved by more than `clip`
    has no gradient, and the first step is SFT's. Only several epochs on a batch differ from SFT. Which layers
    learn is the stage's `train:` in the recipe; the paper takes some feed-forward layers, and answers that reason
    first. Stage 2 is GRPO on questions about the new facts. bundle=True is the paper's reward for it,

        R = 0.7 correct + 0.05 form + 0.15 clean + 0.1 consistent if form, else 0

    for answers in <answer>\boxed{...}</answer>; without, the environment's reward. See `methods.etcon.EtConCorrectness`
    and the other terms.

    Only the second stage's code is public. The clipped loss is that of proximal SFT (arXiv:2508.17784), which the paper
    builds on; how often pi_before is renewed is our reading. The reward is the code's, without its model of
    meaning; words that call the old fact wrong or right count as whole words here, and not inside the fact itself.
    """
    if stage not in (1, 2):
        raise ValueError(f"etcon: stage must be 1 or 2, found {stage}")
    if stage == 1:
        return sft().but(**{"objective.ratio": OldPolicyRatio(), "objective.trust": Clip(low=clip, high=clip)})
    form = EtConForm()
    terms = [EtConCorrectness(), EtConForm(), EtConCleanness(), EtConConsistency()]
    reward = ConditionalReward(
        reward=SumOfRewards(terms=terms, weights=[0.7, 0.05, 0.15, 0.1]), when=PositiveReward(reward=form)
    )
    return grpo(group=group, kl=kl).but(reward=reward if bundle else OutcomeReward())


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


def correct(answer: str, reference: str) -> float:
    """Returns 1 for the same words; 0.75 if all words of `reference` are in `answer` and none of the others is a
    negation; else 0."""
    answer, reference = plain(answer), plain(reference)
    if not answer or not reference:
        return 0.0
    if answer == reference:
        return 1.0
    words, gold = set(answer.split()), set(reference.split())
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
                f"methods.etcon.EtConCorrectness needs the solution of each task, found none for {task.id}; add "
                "solutions to the tasks, or take the environment's outcome, rewards.OutcomeReward"
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
