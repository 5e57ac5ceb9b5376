"""These programs measure what the paper of VADE claims."""

import torch

import polopt.methods.vade as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.budgets import mixed_found, solved_at
from polopt.lab.effects import More, effect
from polopt.lab.source import TreeSource
from polopt.methods.grpo import grpo
from polopt.methods.vade import PosteriorScore, vade
from polopt.sampling import SuccessCounts


def _mixed(algorithm: Algorithm, seed: int) -> dict[str, float]:
    """Shares of groups with right and wrong answers, of 400 tasks of logits N(-1, 3) and 16 groups of 8 a batch, over
    150 batches; and over 150 more, after every logit has jumped by 4, up or down."""
    before, after = mixed_found(algorithm, seed=seed)
    return {"before": before, "after": after}


@effect(
    "It finds tasks with right and wrong answers again when the policy has changed.",
    kind="headline",
    method=vade,
    controls={
        "grpo, tasks in random order": lambda: grpo(group=8, kl=0),
        "counts that never fade": lambda: vade(keep_all=1, keep_used=1),
    },
    criteria=[More("after", by=0.05)],
    seeds=5,
    cost="slow",
    note="While nothing changes, fading costs: two scales are between random order and counts that never fade.",
)
def finds_the_undecided(algorithm: Algorithm, *, seed: int) -> dict[str, float]:
    return _mixed(algorithm, seed)


@effect(
    "While nothing changes, Thompson sampling finds many more of them than a random order.",
    kind="part",
    method=lambda: vade(keep_all=1, keep_used=1),
    controls={"grpo, tasks in random order": lambda: grpo(group=8, kl=0)},
    criteria=[More("before", by=0.15)],
    seeds=5,
    cost="slow",
)
def while_nothing_changes(algorithm: Algorithm, *, seed: int) -> dict[str, float]:
    return _mixed(algorithm, seed)


@effect(
    "Two scales of fading find more of them after the change than one.",
    kind="limit",
    method=vade,
    controls={
        "of used tasks alone": lambda: vade(keep_all=1),
        "of all tasks alone": lambda: vade(keep_used=1),
    },
    criteria=[More("after", by=0.0)],
    seeds=5,
    cost="slow",
    refuted=True,
    note="Either scale alone finds as many, and more before the change; together they forget more than they must.",
)
def two_scales(algorithm: Algorithm, *, seed: int) -> dict[str, float]:
    return _mixed(algorithm, seed)


@claim(
    "A batch's tasks are those of the largest p (1 - p)^2, with p drawn from counts that fade by 0.995 a batch, and by "
    "half when they are used.",
    kind="identity",
    baseline="counts that never fade",
)
def faded() -> Finding:
    rates = torch.linspace(0.05, 0.95, 12, dtype=torch.double)
    tree, policy = solved_at(rates)
    algorithm = vade(group=4)
    source = TreeSource(tree, policy, rows=16, seed=0)
    choice = algorithm.sampling.choice
    assert isinstance(choice, PosteriorScore)
    right, wrong, all_right, distance = (torch.zeros(12, dtype=torch.double) for _ in range(4))
    for _ in range(30):
        p = choice.success.drawn(12, torch.Generator().set_state(source.generator.get_state()))
        batch = algorithm.sampling(source)
        index, won = batch.extras["index"], batch.outcome.double()
        used = index.unique()
        distance[0] += len(set(used.tolist()) ^ set((p * (1 - p) ** 2).argsort()[-4:].tolist()))
        for counts, outcome in ((right, won), (wrong, 1 - won)):
            counts *= 0.995
            counts[used] *= 0.5
            counts.index_add_(0, index, outcome)
        all_right.index_add_(0, index, won)
    found = choice.success.counts(12)
    off = max((a - b - 1).abs().max().item() for a, b in zip(found, (right, wrong), strict=True))
    return Finding(
        measured={"largest error of a count": off, "tasks of another score": distance[0].item()}
        | {"largest distance to counts that never fade": (found[0] - 1 - all_right).abs().max().item()},
        criterion="error < 1e-6 and no task of another score in 30 batches of 4 of 12; never faded more than 5 off",
        holds=off < 1e-6 and distance[0].item() == 0 and (found[0] - 1 - all_right).abs().max().item() > 5,
    )


@mutation("Counts fade only when they are used.", kills=faded)
def used_alone(replace: Replace) -> None:
    replace(module, "SuccessCounts", lambda keep_all, keep_used: SuccessCounts(keep_used=keep_used))


@mutation("Tasks of high success are worth more than hard ones: p^2 (1 - p).", kills=faded)
def easy_tasks(replace: Replace) -> None:
    whole = PosteriorScore.score
    replace(PosteriorScore, "score", lambda self, p: whole(self, 1 - p))
