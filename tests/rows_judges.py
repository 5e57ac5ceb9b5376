"""Rows of the battery: rewards that somebody judges."""

from __future__ import annotations

import dataclasses

from batches import SampleBatch, random_batch
from battery import PartRow
from chat_server import ChatServer

from polopt.backends import Chat
from polopt.methods.mpo_meta import AuditedRubric, ProgramGrader
from polopt.rewards import FieldReward, HTTPGrader, HTTPJudge, HTTPMeta, Item, JudgedReward, LearnedJudge, RubricReward
from polopt.worlds import Task


def say(question: str) -> str:
    """Whatever is asked: a rubric, marks for items, or a score."""
    if "ITEM | name" in question:
        return f"Better so:\nITEM | careful {len(question) % 5} | 3 | one point each\nITEM | short | 2 | few words"
    if "ITEM N: MARK" in question:
        return f"Fine.\nITEM 1: {len(question) % 4}\nITEM 2: {len(question) % 3}"
    return f"Score: {len(question) % 11}"


SERVER = ChatServer(say)
CHAT = Chat(url=SERVER.url, model="tiny")


def task_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose rows have a task with a solution."""
    batch = random_batch(seed, clean=clean)
    groups = batch.experience.group.tolist()
    tasks = [Task(f"task/{g}", "number", f"number {g}", str(g % 10), {}) for g in groups]
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"task": tasks}))


REWARDS = {
    "learned judge": PartRow(JudgedReward(judge=LearnedJudge(seed=3)), batch=task_batch),
    "learned judge that compares": PartRow(JudgedReward(judge=LearnedJudge(compares=True)), batch=task_batch),
    "judge of chances": PartRow(JudgedReward(judge=LearnedJudge(link="sigmoid", rows=2)), batch=task_batch),
    "judge behind a server": PartRow(
        JudgedReward(judge=HTTPJudge(chat=CHAT, template="{prompt} {answer} {reference}")), batch=task_batch
    ),
    "noted": PartRow(FieldReward(name="greedy_reward")),
    "noted numbers": PartRow(FieldReward(name="row")),
    "rubric": PartRow(
        RubricReward(
            items=[Item(name="outcome", weight=2.0), Item(name="characters", most=8), Item(name="extras.row", most=5)],
            grader=ProgramGrader(),
            meta=AuditedRubric(truth="extras.greedy_reward"),
            every=1,
            samples=4,
        ),
        batch=task_batch,
    ),
    "rubric in words": PartRow(
        RubricReward(
            items=[Item(name="right", text="one point a step", most=3), Item(name="kind", most=2)],
            grader=HTTPGrader(chat=CHAT),
            meta=HTTPMeta(chat=CHAT),
            every=1,
            samples=2,
        ),
        batch=task_batch,
    ),
}
