"""These programs measure what the paper of BAPO claims."""

import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, expectation
from polopt.lab.effects import More, effect
from polopt.lab.problems import lengths
from polopt.lab.progress import learned
from polopt.methods import bapo_clip as sentence
from polopt.methods.bapo_clip import BalancedClip, Share, bapo_clip, right_pull, wrong_pull
from polopt.objectives import Clip, PolicyGradient


@claim(
    "On policy it is REINFORCE, whatever the search finds.", kind="identity", baseline="a policy away, where they part"
)
def on_policy() -> Finding:
    tree, policy = lengths()
    old = TabularPolicy(tree, spread=0.9, seed=7)
    plain = bapo_clip(group=2).but(**{"objective.trust": PolicyGradient()})

    def distance(target: float, behaviour: TabularPolicy) -> float:
        a, b = (
            expectation(s, tree, policy, behaviour=behaviour).mean for s in (bapo_clip(group=2, target=target), plain)
        )
        return ((a - b).norm() / b.norm()).item()

    on, off = max(distance(t, policy) for t in (0.0, 1.0, 10.0)), min(distance(t, old) for t in (0.0, 10.0))
    return Finding(
        measured={"relative distance on policy": on, "off policy": off},
        criterion="< 1e-10 for targets 0, 1 and 10; > 0.05 off policy",
        holds=on < 1e-10 and off > 0.05,
    )


@claim(
    "Each step of the search raises the right answers' share of the gradient.",
    kind="part",
    baseline="the published code's statistic",
)
def raises_the_share() -> Finding:
    draw = torch.Generator().manual_seed(0)
    ratio = (0.5 * torch.randn(100_000, generator=draw, dtype=torch.double)).exp()
    advantage = torch.where(torch.rand(100_000, generator=draw) < 0.6, -1.0, 1.0).double()

    def quotient(low: float, high: float, share: Share) -> float:
        right = right_pull(ratio, advantage, ratio.new_tensor([high]), share)
        return (right / wrong_pull(ratio, advantage, ratio.new_tensor([low]), share)).item()

    start = quotient(0.6, 1.2, "gradient")
    lower, upper = quotient(0.9, 1.2, "gradient"), quotient(0.6, 3.0, "gradient")
    code, code_lower = quotient(0.6, 1.2, "surrogate"), quotient(0.9, 1.2, "surrogate")
    return Finding(
        measured={
            "P / N": start,
            "c_low 0.9": lower,
            "c_high 3": upper,
            "code's P / N": code,
            "code's, c_low 0.9": code_lower,
        },
        criterion="ratios exp(N(0, 1/4)), 60 % negative: both bounds raise it by > 0.05; c_low lowers the code's",
        holds=min(lower, upper) > start + 0.05 and code_lower < code,
    )


def _fixed(low: float, high: float) -> Callable[[], Algorithm]:
    clip = Clip(low=1 - low, high=high - 1, dual=3.0)
    return lambda: bapo_clip(group=32).but(**{"objective.trust": clip})


@effect(
    "On batches used eight times it keeps 1.3 times the entropy of every fixed range.",
    kind="headline",
    method=lambda: bapo_clip(group=32),
    controls={
        f"[{low}, {high}]": _fixed(low, high)
        for low, high in ((0.8, 1.2), (0.8, 1.28), (0.9, 1.2), (0.8, 2.0), (0.6, 3.0))
    },
    step_sizes=(32.0, 64.0, 128.0, 256.0, 512.0),
    criteria=[More("entropy", times=1.3)],
    trials=2,
    cost="slow",
    refuted=True,
    note="At equal success, and each at the step size that keeps most, it keeps no more than [0.8, 1.2] and [0.9, 1.2] "
    "do. It keeps more where one step size is set for all: it then learns in longer steps, and in fewer batches.",
)
def keeps_entropy(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """Entropy when success reaches 0.99, on 16 bandits with 8 right arms of 32."""
    tree = TokenTree.bandit([[1.0] * 8 + [0.0] * 24] * 16)
    found = learned(
        algorithm, (tree, TabularPolicy(tree)), steps=200, epochs=8, goal=0.99, step_size=step_size, seed=seed
    )
    return {"entropy": found["entropy"] if found["success"] >= 0.99 else math.nan}


def _searched(ratio: Tensor, advantage: Tensor, share: Share, target: float) -> tuple[float, float]:
    """The paper's two loops, one after the other, in plain numbers."""
    pairs = list(zip(ratio.tolist(), advantage.tolist(), strict=True))

    def short(low: float, high: float) -> bool:
        if share == "surrogate":
            right = sum(a * min(r, high) for r, a in pairs if a > 0)
            wrong = sum(-a * max(r, low) for r, a in pairs if a < 0)
        else:
            right = sum(a * r for r, a in pairs if a > 0 and r <= high)
            wrong = sum(-a * r for r, a in pairs if a < 0 and low <= r <= 3)
        return right < target * wrong

    low, high = 0.6, 1.2
    while short(low, high) and low < 0.9 - 1e-9:
        low += 0.05
    while short(low, high) and high < 3 - 1e-9:
        high += 0.05
    return low, high


@claim(
    "The search ends at the first bounds that meet the target: c_low rises first, then c_high.",
    kind="identity",
    baseline="the bounds that it starts from",
)
def first_that_meets() -> Finding:
    draw = torch.Generator().manual_seed(0)
    ratio = (0.5 * torch.randn(40, 25, generator=draw, dtype=torch.double)).exp()
    advantage = torch.where(torch.rand(40, 25, generator=draw) < 0.6, -1.0, 1.0).double()
    off, starts, ends = 0.0, 0, set()
    batch = Experience(mask=torch.ones(40, 25).bool(), rollout_logp=-ratio.log(), advantage=advantage)
    batch = batch.replace(full_batch_evaluation=Evaluation(logp=torch.zeros_like(ratio)))
    for share, targets in (("gradient", (0.2, 0.31, 0.35, 0.5, 0.6, 5.0)), ("surrogate", (0.2, 0.5, 0.55, 0.6, 5.0))):
        for target in targets:
            exact = _searched(ratio.flatten(), advantage.flatten(), share, target)  # type: ignore[arg-type]
            found = BalancedClip(share=share, target=target).search(batch)  # type: ignore[arg-type]
            off = max(off, *(abs(x - y) for x, y in zip(found, exact, strict=True)))
            starts += exact == (0.6, 1.2)
            ends.add(tuple(round(bound, 2) for bound in exact))
    return Finding(
        measured={"largest error": off, "different ends": len(ends), "of 11, ends at the start": starts},
        criterion="error < 1e-9 for 11 targets of two shares, which end at 3 places or more, not all at the start",
        holds=off < 1e-9 and len(ends) >= 3 and starts < 11,
    )


@mutation("A negative advantage counts where its ratio lies below the bound, and is clipped.", kills=raises_the_share)
def clipped_ones_count(replace: Replace) -> None:
    def wrong(ratio: Tensor, advantage: Tensor, low: Tensor, share: Share, dual: float = 3.0) -> Tensor:
        weight = -advantage.clamp(max=0)
        if share == "surrogate":
            return (weight * ratio.maximum(low[:, None])).sum(1)
        return (weight * ratio * (ratio <= low[:, None])).sum(1)

    for owner in (sentence, sys.modules[__name__]):
        replace(owner, "wrong_pull", wrong)


@mutation("P / N is compared with 1, whatever the target.", kills=first_that_meets)
def target_ignored(replace: Replace) -> None:
    search = BalancedClip.search
    replace(BalancedClip, "search", lambda self, batch: search(self.but(target=1.0), batch))
