"""These programs measure what the paper of HAPO claims."""

import dataclasses
import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import Credit, GroupMean, RelativeAdvantage
from polopt.lab import TreeSource
from polopt.lab.effects import Less, More, effect
from polopt.lab.entropies import fork_curve, forks_and_fillers
from polopt.lab.problems import lengths
from polopt.methods.dapo import dapo
from polopt.methods.hapo import EntropyClip, hapo
from polopt.rewards import OutcomeReward
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support


@claim(
    "The tokens of a group have advantages that sum to 0, however lengths and rewards go together.",
    kind="identity",
    baseline="GRPO",
)
def sums_to_zero() -> Finding:
    tree, policy = lengths()
    batch = TreeSource(tree, policy, rows=160).rollout(RolloutRequest(torch.zeros(20, dtype=torch.long), 8, Support()))

    def left(credit: Credit) -> float:
        advantage = credit(batch)
        sums = torch.stack([advantage[batch.group == group].sum() for group in batch.group.unique()])
        return (sums.abs().sum() / batch.mask.sum()).item()

    ours, plain = left(hapo().credit.credit), left(RelativeAdvantage())  # type: ignore[arg-type]
    return Finding(
        measured={"left over, a token": ours, "GRPO": plain},
        criterion="< 1e-9, GRPO > 0.1",
        holds=ours < 1e-9 and plain > 0.1,
    )


@claim(
    "The clip opens to (0.2, 0.4) where all is open, to (0.4, 0.2) where all is sure.",
    kind="identity",
    baseline="(0.2, 0.2)",
)
def opens() -> Finding:
    trust = hapo().objective.trust.trust  # type: ignore[union-attr]
    low, high = trust.ranges(torch.tensor([-1.0, 0.0, 1.0], dtype=torch.double))  # type: ignore[operator, union-attr]
    off = (torch.stack([low, high]) - torch.tensor([[0.4, 0.2, 0.2], [0.2, 0.2, 0.4]])).abs().max().item()
    return Finding(
        measured={"low when sure": low[0].item(), "high when open": high[2].item(), "largest error": off},
        criterion="error < 1e-7 at h = -1, 0, 1",
        holds=off < 1e-7,
    )


@claim(
    "With the recorded temperatures applied again the ratio is 1 on policy.",
    kind="identity",
    baseline="the learner at temperature 1",
)
def ratio_is_one() -> Finding:
    tree, policy = forks_and_fillers()
    algorithm = hapo(group=16)
    source = TreeSource(tree, policy, rows=64, needs=algorithm.required_fields)
    algorithm.sampling(source)
    batch = algorithm.sampling(source)

    def off(support: Support) -> float:
        seen = batch.replace(support=support)
        return (policy.evaluate(seen).logp - batch.rollout_logp)[batch.mask].abs().max().item()

    again, plain = off(batch.support), off(dataclasses.replace(batch.support, by_entropy=None))
    return Finding(
        measured={"largest |log r|": again, "at temperature 1": plain},
        criterion="< 1e-12, at temperature 1 > 0.01",
        holds=again < 1e-12 and plain > 0.01,
    )


PLAIN = {"reward": OutcomeReward(), "sampling.select": []}


def _forks(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """Entropies at forks and at fillers when half of the answers are right, from the first batch that reaches it."""
    curve = fork_curve(algorithm, steps=60, rate=step_size, epochs=4, seed=seed)
    there = next((point for point in curve if point[0] >= 0.5), (math.nan,) * 3)
    return {"at forks": there[1], "at fillers": there[2]}


@effect(
    "At equal success half as much entropy again is left at forks, and less at fillers.",
    kind="headline",
    method=lambda: hapo().but(PLAIN),
    controls={"dapo": lambda: dapo().but(PLAIN)},
    step_sizes=(1.0, 2.0, 4.0, 8.0),
    criteria=[More("at forks", times=1.5), Less("at fillers", by=0.0)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="Where h <= 0 and the ratio is near 1 the advantage is A (1 + h): the surest tokens stand still, so "
    "fillers keep their slips and success has to come from the forks.",
)
def forks(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _forks(algorithm, seed, step_size)


@effect(
    "As released, with |h|, more entropy is left at forks and less at fillers, at equal success.",
    kind="ours",
    method=lambda: hapo(compat="released").but(PLAIN),
    controls={"dapo": lambda: dapo().but(PLAIN)},
    step_sizes=(1.0, 2.0, 4.0, 8.0),
    criteria=[More("at forks", times=1.05), Less("at fillers", by=0.0)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="A little more is left at forks, but as much at fillers.",
)
def forks_as_released(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _forks(algorithm, seed, step_size)


@mutation("The clip opens upwards for sure tokens, and downwards for undecided ones.", kills=opens)
def wrong_side(replace: Replace) -> None:
    def ranges(self: EntropyClip, level: Tensor) -> tuple[Tensor, Tensor]:
        low = self.low * (1 + self.strength * level.clamp(min=0))
        return low, self.high * (1 - self.strength * level.clamp(max=0))

    replace(EntropyClip, "ranges", ranges)


@mutation("The baseline is the mean over a group's answers, not over its tokens.", kills=sums_to_zero)
def by_answer(replace: Replace) -> None:
    forward = GroupMean.forward
    replace(GroupMean, "forward", lambda self, *given: forward(self.but(unit="row"), *given))
