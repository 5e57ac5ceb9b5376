"""These programs measure what the paper of EconProver claims."""

from typing import cast

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.alike import PROBLEMS, Alike, alike, solved_by, switched, ways
from polopt.experience import Experience
from polopt.lab.effects import Less, More, effect
from polopt.methods.econprover import ShortestCorrect, TaggedPrompts, econprover
from polopt.methods.ppo import ppo
from polopt.sampling import Rollouts
from polopt.sampling.parts import Start


@effect(
    "Eight answers in eight voices solve 0.15 more of the problems than eight of one voice at its best temperature.",
    kind="headline",
    method=lambda: econprover(kl=0.0),
    controls={"ppo": lambda: ppo(group=8, kl=0.0)},
    step_sizes=(0.5, 1.0, 2.0, 4.0),
    seeds=5,
    trials=2,
    criteria=[More("pass@8", by=0.15)],
    cost="slow",
    note="After 200 batches of 64 answers, of the best of 12 temperatures for one voice. The policy cannot tell the "
    "problems apart, so one voice can do no better than to try all ways alike.",
)
def voices(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    texts = [TaggedPrompts().text(i) for i in range(8)] if cast(Rollouts, algorithm.sampling).guide else []
    probs, solves = ways(algorithm, texts, batches=200, seed=seed, rate=step_size)
    if texts:
        return {"pass@8": solved_by(probs[1:], solves)}
    heated = [(probs[:1].log() / t).softmax(1).expand(8, -1) for t in torch.logspace(-1, 2, 12).tolist()]
    return {"pass@8": max(solved_by(each, solves) for each in heated)}


@effect(
    "The switch halves the tokens at the same rate of success where 70 % of the problems are easy.",
    kind="headline",
    method=lambda: econprover(stage=1),
    controls={"always thinking": lambda: None},
    step_sizes=(10.0, 20.0, 40.0),
    seeds=5,
    criteria=[Less("tokens", times=0.5), More("success", by=-0.02)],
    best=More("success", by=0.0),
    cost="slow",
    note="After 200 batches.",
)
def switch(algorithm: Algorithm | None, *, seed: int, step_size: float) -> dict[str, float]:
    learner = econprover(stage=1) if algorithm is None else algorithm
    found = switched(learner, batches=0 if algorithm is None else 200, seed=seed, rate=step_size)
    tokens, success = found[2:] if algorithm is None else found[:2]
    return {"tokens": tokens, "success": success}


@claim(
    "Imitated is the shortest right answer to each task; each eighth of the tasks has a prefix of its own.",
    kind="identity",
    baseline="the longest right answer",
)
def chosen() -> Finding:
    g = torch.Generator().manual_seed(0)
    lengths, right = torch.randint(1, 30, (80,), generator=g), torch.rand(80, generator=g) < 0.5
    group = torch.arange(10).repeat_interleave(8)
    batch = Experience(
        mask=torch.arange(30) < lengths[:, None],
        outcome=right.double(),
        group=group,
        extras={"row": torch.arange(80)},
    )
    select, guide = (cast(Rollouts, econprover(stage=stage).sampling) for stage in (1, 2))
    found = select.select[0](batch).extras["row"].tolist()
    rows = [[i for i in range(80) if group[i] == task and right[i]] for task in range(10)]
    least = [min(each, key=lambda i: int(lengths[i])) for each in rows if each]
    most = [max(each, key=lambda i: int(lengths[i])) for each in rows if each]
    assert guide.guide is not None
    _, starts = guide.guide(Alike(*alike()[:2], rows=8), torch.arange(PROBLEMS))
    parts = [[number for number, start in enumerate(starts) if start.hint == f" #{i}"] for i in range(8)]
    return Finding(
        measured={
            "rows that differ": len(set(found) ^ set(least)),
            "from the longest": len(set(found) ^ set(most)),
            "prefixes with 4 neighbours": sum(part == list(range(4 * i, 4 * i + 4)) for i, part in enumerate(parts)),
        },
        criterion="none differs, and some from the longest; 8 prefixes have 4 neighbouring tasks of 32 each",
        holds=found == least and found != most and parts == [list(range(4 * i, 4 * i + 4)) for i in range(8)],
    )


@mutation("The longest right answer is imitated.", kills=chosen)
def longest_instead(replace: Replace) -> None:
    def forward(self: ShortestCorrect, experience: Experience) -> Experience:
        right = self.right(experience)
        length = torch.where(right, experience.lengths.double(), -torch.inf)
        return experience[(ops.group_place(length, experience.group) < self.count) & right]

    replace(ShortestCorrect, "forward", forward)


@mutation("Prefixes are dealt in turn, so that none has a part of its own.", kills=chosen)
def in_turn(replace: Replace) -> None:
    def forward(self: TaggedPrompts, source: Alike, tasks: Tensor) -> tuple[Tensor, list[Start]]:
        return tasks, [Start(hint=self.text(task % self.count)) for task in tasks.tolist()]

    replace(TaggedPrompts, "forward", forward)
