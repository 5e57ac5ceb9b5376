"""MPO: the rubric that the policy has learned to please is written again."""

import copy
from collections.abc import Sequence

import torch

from polopt.algorithm import Algorithm
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.method import Finding, Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import AuditedRubric, Grader, Item, Meta, ProgramGrader, RubricReward

ITEMS = (Item(name="outcome"), Item(name="characters", most=32))


@method(
    paper=Paper(
        title="Toward Evaluative Thinking: Meta Policy Optimization with Evolving Reward Models",
        authors="Kim, Zae Myung and others",
        year=2025,
        arxiv="2504.20157",
    ),
    changes="PPO's reward is a judge's marks by a rubric, which is changed every few batches: rewritten by a second "
    "judge where there is one, weighed anew by an audit where there is none.",
    room="rewards",
    tier="reading",
)
def mpo_meta(
    *,
    group: int = 1,
    items: Sequence[Item] = ITEMS,
    grader: Grader | None = None,
    meta: Meta | None = None,
    every: int = 10,
    samples: int = 20,
    kl: float = 0.05,
) -> Algorithm:
    """R_i = mean over the items of mark / most, weighted, less PPO's KL. After every `every` batches, `samples` rows of
    the last one are shown to `meta`, with the marks that they got, and its new rubric holds from then on; value head
    and KL go on as they were. every = infinity, or a meta that changes nothing, is PPO with a fixed judge.

    The paper's judges are language models: `HTTPGrader` writes reasons and marks, `HTTPMeta` says of each row where the
    rubric over- and under-scores, writes it again, and merges what it wrote. By default no model is asked:
    `ProgramGrader` takes marks from programs, here the outcome and the length, and `AuditedRubric` believes an item as
    far as it goes with a careful look at these few rows, here the outcome again: it changes weights and rewrites
    nothing. That is the smallest working example, and ours; it pays for length, up to 32 characters, until the audit
    has found that out.

    The authors' code adds integer scores in the paper's formula, and divides each by its most and takes the mean in the
    version that was read; we take the mean, which keeps the scale where the number of items changes. It asks for each
    item apart and runs what it cannot read as a number as code; here one reply marks all items, and a mark is a line of
    its own or none. Rows come from the last batch, not from all since the last rubric; the first screening of rows, and
    clusters of problems with rubrics of their own, are left out.
    """
    reward = RubricReward(
        items=[item.but() for item in items],
        grader=ProgramGrader() if grader is None else grader,
        meta=AuditedRubric() if meta is None else meta,
        every=every,
        samples=samples,
    )
    return ppo(group=group, kl=kl).but({"reward.terms.0" if kl else "reward": reward})


FEATURES = 9


def arms() -> tuple[TokenTree, dict[str, torch.Tensor], torch.Tensor]:
    """60 honest answers of quality 0.1 to 0.9, seen through 9 features; 4 poor ones, seldom found, that have all of
    feature h. What an answer is worth is the mean of the 9. The tree, the features, the chances at first."""
    generator = torch.Generator().manual_seed(0)
    quality = torch.cat([torch.linspace(0.1, 0.9, 60), torch.full((4,), 0.3)])
    seen = (quality + 0.1 * torch.randn(FEATURES, 64, generator=generator)).clamp(0, 1).double()
    signals = {f"f{k}": seen[k][None] for k in range(FEATURES)}
    signals["h"] = (torch.arange(64) >= 60).double()[None]
    odds = torch.where(torch.arange(64) >= 60, 0.15, 1.0).double()
    return TokenTree.bandit(seen.mean(0).tolist()), signals, odds / odds.sum()


def curve(every: int, seed: int, steps: int = 100) -> list[float]:
    """What the policy is worth after each batch. The rubric gives h as many points as the rest together."""
    tree, signals, odds = arms()
    items = [Item(name=f"extras.signal_f{k}") for k in range(FEATURES)]
    items.append(Item(name="extras.signal_h", weight=float(FEATURES)))
    policy = TabularPolicy(tree, critic=True).set_probabilities(odds)
    algorithm = mpo_meta(items=items, meta=AuditedRubric(), every=every)
    return train(
        algorithm,
        tree,
        policy,
        steps=steps,
        rate=1.5,
        rows=64,
        epochs=2,
        seed=seed,
        reference=copy.deepcopy(policy),
        watch=lambda: tree.value(policy).item(),
        signals=signals,
    )


@mpo_meta.claim(
    "A fixed rubric is learned to be pleased at the cost of what it is for; one that is rewritten is not.",
    baseline="the same, never rewritten",
)
def keeps_up() -> Finding:
    kept = {}
    for name, every in (("fixed", 10**9), ("every 10 batches", 10)):
        runs = [curve(every, seed) for seed in range(2)]
        kept[f"{name}: peak"] = sum(max(run) for run in runs) / 2
        kept[f"{name}: end over peak"] = sum(run[-1] / max(run) for run in runs) / 2
    return Finding(
        measured=kept,
        criterion="true worth at the end: fixed <= 0.6 of its peak, rewritten >= 0.95 of its peak",
        holds=kept["fixed: end over peak"] <= 0.6 and kept["every 10 batches: end over peak"] >= 0.95,
        note="2 runs of 100 batches. The poor answers have 1% of the chances at first. With 0.3% a fixed rubric is "
        "pleased in one run of two, with 0.01% in none: what is never sampled is never found.",
    )
