"""Rows of the battery: rewards that somebody judges."""

from __future__ import annotations

import dataclasses

from batches import Batch, random_batch
from battery import Row
from chat_server import ChatServer

from polopt.rewards import Chat, HTTPJudge, Judged, LearnedJudge
from polopt.worlds import Task

SERVER = ChatServer(lambda question: f"Score: {len(question) % 11}")
CHAT = Chat(url=SERVER.url, model="tiny")


def task_batch(seed: int = 0, clean: bool = False) -> Batch:
    """A random batch whose rows have a task with a solution."""
    batch = random_batch(seed, clean=clean)
    groups = batch.experience.group.tolist()
    tasks = [Task(f"task/{g}", "number", f"number {g}", str(g % 10), {}) for g in groups]
    return dataclasses.replace(batch, experience=batch.experience.replace(extras={"task": tasks}))


REWARDS = {
    "learned judge": Row(Judged(judge=LearnedJudge(seed=3)), batch=task_batch),
    "learned judge that compares": Row(Judged(judge=LearnedJudge(compares=True)), batch=task_batch),
    "judge of chances": Row(Judged(judge=LearnedJudge(link="sigmoid", rows=2)), batch=task_batch),
    "judge behind a server": Row(
        Judged(judge=HTTPJudge(chat=CHAT, template="{prompt} {answer} {reference}")), batch=task_batch
    ),
}
