"""HAPO: sampling, credit and clip that follow the entropy of each token."""

import dataclasses
from typing import Literal

import torch

from polopt.algorithm import Algorithm
from polopt.credit import BoundedAdvantage, Credit, GroupMean, GroupStd, RelativeAdvantage
from polopt.lab import TreeSource
from polopt.lab.entropies import at_equal_success, fork_curve, forks_and_fillers
from polopt.lab.problems import lengths
from polopt.method import Finding, Paper, method
from polopt.methods.objectives.dapo import dapo
from polopt.objectives import EntropyAdvantage, EntropyClip, EntropyLevel, Surrogate, TokenMean, TokenRatio
from polopt.rewards import OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.sampling import EntropyTemperature, MixedGroups, Rollouts
from polopt.support import Support


@method(
    paper=Paper(
        title="From Uniform to Heterogeneous: Tailoring Policy Optimization to Every Token's Nature",
        authors="Liu, Zheng and others",
        year=2025,
        arxiv="2509.16591",
    ),
    changes="DAPO whose temperature, advantage and clip follow each token's entropy, and whose groups count tokens.",
    tier="faithful",
)
def hapo(
    *,
    group: int = 16,
    quantile: float = 0.8,
    heat: float = 0.05,
    advantage: float = 1.0,
    bounds: float = 1.0,
    clip: float = 0.2,
    refills: int = 15,
    compat: Literal["text", "released"] = "text",
) -> Algorithm:
    """With h_it in [-1, 1] where log H_it stands in the batch: 0 at its `quantile`, the ends at its extremes,

        T_it = 1 + heat h_it                                   while sampling, on the scale of the batch before
        A_i  = (R_i - m) / (s + 1e-6)                          m, s: mean and std of R over the group's tokens
        A_it = A_i (1 + advantage h_it)                        if h > 0 and r outside, or h <= 0 and r inside
                                                               (1 - low / 2, 1 + high / 2); A_i otherwise
        low_it, high_it = clip (1 + bounds max(-h, 0)), clip (1 + bounds max(h, 0))

    and PPO's clip of r_it to (1 - low_it, 1 + high_it), dual clip 10, token mean; R, filter and length penalty as in
    DAPO. A group in which some |A_i| reaches 5 takes GRPO's advantage; the release looks at its padding too, which has
    (0 - m) / s, so that with rewards far from 0 other groups fall back there. The temperature that a token was drawn at
    is recorded and divides the learner's logits again, so that r is 1 on policy; entropies that the learner sees are
    over that temperature, the release's over 1. h is taken over the whole optimiser batch, in the release over each
    micro-batch. compat "released": the release divides the low side by its negative minimum, so h is |h| everywhere and
    the rules for h <= 0 meet the pivot alone; the text has h in [-1, 1]. The release's length buffer is 0.4 of its
    limit, ours DAPO's fifth; it advises to leave the penalty out where lengths fall. Overall temperature 1.
    """
    level = EntropyLevel(quantile=quantile, compat=compat)
    trust = EntropyClip(low=clip, high=clip, strength=bounds, dual=10.0, level=level)
    by_token = RelativeAdvantage(baseline=GroupMean(unit="token"), scale=GroupStd(unit="token", correction=0))
    return Algorithm(
        sampling=Rollouts(
            group=group,
            adapt=EntropyTemperature(strength=heat, quantile=quantile, compat=compat) if heat else None,
            select=[MixedGroups()],
            refills=refills,
        ),
        reward=SumOfRewards(terms=[OutcomeReward(scale=2, shift=-1), OverlongPenalty()]),
        credit=BoundedAdvantage(credit=by_token, otherwise=RelativeAdvantage()),
        objective=Surrogate(
            ratio=TokenRatio(), trust=EntropyAdvantage(trust=trust, strength=advantage), aggregate=TokenMean()
        ),
    )


@hapo.claim(
    "The tokens of a group have advantages that sum to 0, however lengths and rewards go together.", baseline="GRPO"
)
def sums_to_zero() -> Finding:
    tree, policy = lengths()
    batch = TreeSource(tree, policy, rows=160).rollout(torch.zeros(20, dtype=torch.long), 8, Support())

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


@hapo.claim("The clip opens to (0.2, 0.4) where all is open, to (0.4, 0.2) where all is sure.", baseline="(0.2, 0.2)")
def opens() -> Finding:
    trust = hapo().objective.trust.trust  # type: ignore[union-attr]
    low, high = trust.ranges(torch.tensor([-1.0, 0.0, 1.0], dtype=torch.double))  # type: ignore[operator, union-attr]
    off = (torch.stack([low, high]) - torch.tensor([[0.4, 0.2, 0.2], [0.2, 0.2, 0.4]])).abs().max().item()
    return Finding(
        measured={"low when sure": low[0].item(), "high when open": high[2].item(), "largest error": off},
        criterion="error < 1e-7 at h = -1, 0, 1",
        holds=off < 1e-7,
    )


@hapo.claim(
    "With the recorded temperatures applied again the ratio is 1 on policy.", baseline="the learner at temperature 1"
)
def ratio_is_one() -> Finding:
    tree, policy = forks_and_fillers()
    algorithm = hapo(group=16)
    source = TreeSource(tree, policy, rows=64, needs=algorithm.all_needs)
    algorithm.sampling(source)
    batch = algorithm.sampling(source)

    def off(support: Support) -> float:
        seen = batch.replace(support=support)
        return (policy.evaluate(seen).logp - batch.logp)[batch.mask].abs().max().item()

    again, plain = off(batch.support), off(dataclasses.replace(batch.support, by_entropy=None))
    return Finding(
        measured={"largest |log r|": again, "at temperature 1": plain},
        criterion="< 1e-12, at temperature 1 > 0.01",
        holds=again < 1e-12 and plain > 0.01,
    )


def _forks(algorithm: Algorithm, steps: int) -> dict[str, float]:
    """Against DAPO at equal success; means over 3 seeds."""
    plain = {"reward": OutcomeReward(), "sampling.select": []}
    rows = []
    for seed in range(3):
        base = fork_curve(dapo().but(plain), steps=60, rate=4.0, epochs=4, seed=seed)
        rows.append(
            at_equal_success(fork_curve(algorithm.but(plain), steps=steps, rate=4.0, epochs=4, seed=seed), base)
        )
    names = ("success", "at forks", "at fillers", "DAPO at forks", "DAPO at fillers")
    return dict(zip(names, torch.tensor(rows, dtype=torch.double).mean(0).tolist(), strict=True))


@hapo.claim(
    "At equal success half as much entropy again is left at forks, and less at fillers.",
    baseline="DAPO",
    refuted=True,
)
def forks() -> Finding:
    found = _forks(hapo(), steps=60)
    return Finding(
        measured=found,
        criterion="at forks >= 1.5x, at fillers < DAPO's",
        holds=found["at forks"] >= 1.5 * found["DAPO at forks"] and found["at fillers"] < found["DAPO at fillers"],
        note="Where h <= 0 and the ratio is near 1 the advantage is A (1 + h): the surest tokens stand still, so "
        "fillers keep their slips and success has to come from the forks. It is learnt more slowly as well.",
    )


@hapo.claim(
    "As released, with |h|, more entropy is left at forks and less at fillers, at equal success.",
    baseline="DAPO",
)
def forks_as_released() -> Finding:
    found = _forks(hapo(compat="released"), steps=16)
    return Finding(
        measured=found,
        criterion="at forks > 1.05x, at fillers < DAPO's",
        holds=found["at forks"] > 1.05 * found["DAPO at forks"] and found["at fillers"] < found["DAPO at fillers"],
    )
