"""These programs measure what the paper of EconProver claims."""

from typing import cast

import torch
from torch import Tensor

from polopt import ops
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.alike import PROBLEMS, Alike, alike, solved_by, switched, ways
from polopt.experience import Experience
from polopt.methods.econprover import ShortestCorrect, TaggedPrompts, econprover
from polopt.methods.ppo import ppo
from polopt.sampling import Rollouts
from polopt.sampling.parts import Start


@claim(
    "Eight answers in eight voices solve 0.15 more of the problems than eight of one voice.",
    kind="headline",
    baseline="one policy of as many samples, at the best of 12 temperatures",
    refuted=True,
)
def voices() -> Finding:
    ours, base, hot = [], [], []
    texts = [TaggedPrompts().text(i) for i in range(8)]
    for seed in range(2):
        probs, solves = ways(econprover(kl=0.0), texts, batches=60, seed=seed)
        ours.append(solved_by(probs[1:], solves))
        single, _ = ways(ppo(group=8, kl=0.0), [], batches=60, seed=seed)
        base.append(solved_by(single[:1].expand(8, -1), solves))
        heated = [(single[:1].log() / t).softmax(1).expand(8, -1) for t in torch.logspace(-1, 2, 12).tolist()]
        hot.append(max(solved_by(probs, solves) for probs in heated))
    measured = {
        "pass@8, eight voices": sum(ours) / 2,
        "one voice": sum(base) / 2,
        "at its best temperature": sum(hot) / 2,
    }
    return Finding(
        measured=measured,
        criterion=">= 0.15 over one voice at any temperature (2 seeds, 60 batches of 64 answers)",
        holds=sum(ours) / 2 >= sum(hot) / 2 + 0.15,
        note="It comes later: after 200 batches, when each voice is sure of its way, it is 0.994 against 0.778. The "
        "policy cannot tell the problems apart, so one voice can do no better than to try all ways alike.",
    )


@claim(
    "The switch halves the tokens at the same rate of success where 70 % of the problems are easy.",
    kind="headline",
    baseline="always thinking",
    refuted=True,
)
def switch() -> Finding:
    tokens, success, all_tokens, all_success = switched(econprover(stage=1), batches=60)
    return Finding(
        measured={"tokens over always thinking": tokens / all_tokens, "success": success, "always": all_success},
        criterion="tokens <= 0.5, success at most 0.02 lower, after 60 batches",
        holds=tokens <= 0.5 * all_tokens and success >= all_success - 0.02,
        note="After 200 batches it holds, with 37 % of the tokens and 0.009 less success: a hard problem whose direct "
        "answer was right once by luck is slow to forget it.",
    )


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
