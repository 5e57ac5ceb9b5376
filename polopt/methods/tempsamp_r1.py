"""TempSamp-R1: GRPO with a known solution in every group, and a reward shaped against its dominance."""

from typing import Any, Literal

from polopt.algorithm import Algorithm
from polopt.credit import AnchoredDemonstrations, GroupMean, GroupStd, IncludeDemonstrations, RelativeAdvantage
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import RatioExceptDemonstrations, TokenRatio
from polopt.rewards import BentReward, DiscountedDemonstrations, OutcomeReward
from polopt.sampling import WithSolutions

Way = Literal["shaped", "anchored", "discounted", "raw"]


@method(
    paper=Paper(
        title="TempSamp-R1: Effective Temporal Sampling with Reinforcement Fine-Tuning for Video LLMs",
        authors="Li, Yunheng and others",
        year=2025,
        arxiv="2509.18056",
    ),
    changes="GRPO whose groups hold a known solution too; the reward is bent, so that a perfect row does not make all "
    "others look bad.",
    room="sampling",
    tier="faithful",
)
def tempsamp_r1(
    *,
    group: int = 3,
    way: Way = "shaped",
    knee: float = 0.8,
    above: float = 0.01,
    below: float = 1.0,
    factor: float | None = None,
    clip: float = 0.2,
    kl: float = 0.04,
) -> Algorithm:
    """GRPO on groups of `group` rollouts, of outcomes in [0, 1], and the prompt's demonstrated solution G, of outcome
    1:

        "shaped"      R' = rewards.bent(R) for all of them, and z-scores over all of them (the paper's choice);
        "anchored"    z-scores of the rollouts alone, and A_G = factor * max_i A_i, with factor 1.2;
        "discounted"  z-scores over all, G with reward factor * 1, with factor 0.8;
        "raw"         z-scores over all, nothing else: the problem that the others solve.

    for `way`. The objective is GRPO's. The solution has no behaviour policy, so its ratio is 1 with the gradient of the
    score, which is a likelihood of weight A_G. The paper takes one update a batch, where all ratios are 1. The
    reference's KL is taken on the solution as well. The paper's group of 4 (8 for Charades) is 3 (7) rollouts here, as
    `rows` counts them.

    Its rewards are interval overlaps (`rewards.interval_iou`), 0 where they are disjoint (its printed
    formula would be negative there), plus a reward for the format, so in [0, 1] before it is bent. Its two phases,
    answers alone and then answers after reasoning, are two stages with tasks of their own. That the discount is a share
    of the highest reward is our reading.

    The solution is that of the task; where that is the bare result, the policy learns to answer with the bare result.

    Anchored, a group without any success learns nothing: all its advantages are 0, the solution's as well.
    """
    relative = RelativeAdvantage(baseline=GroupMean(), scale=GroupStd())
    share = {"anchored": 1.2, "discounted": 0.8}.get(way, 0.0) if factor is None else factor
    changes: dict[str, Any] = {
        "sampling.mix": [WithSolutions(gate=1.0)],
        "credit": AnchoredDemonstrations(credit=relative, factor=share)
        if way == "anchored"
        else IncludeDemonstrations(credit=relative),
        "objective.ratio": RatioExceptDemonstrations(ratio=TokenRatio()),
    }
    if way == "shaped":
        changes["reward"] = BentReward(reward=OutcomeReward(), knee=knee, above=above, below=below)
    if way == "discounted":
        changes["reward"] = DiscountedDemonstrations(reward=OutcomeReward(), factor=share)
    return grpo(group=group, clip=clip, kl=kl).but(changes)
