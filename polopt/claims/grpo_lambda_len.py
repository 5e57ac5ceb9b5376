"""These programs measure what the paper of GRPO-lambda (for short answers) claims."""

import math

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.masks import TopGroups
from polopt.lab.length_bandit import stable_for, thrift
from polopt.methods.grpo_lambda_len import grpo_lambda_len
from polopt.rewards import LinearLength, OutcomeReward, RelativeLength

PLAIN = {"reward": OutcomeReward()}
EVERY = {"reward.terms.1": LinearLength(weight=0.2, rows="all")}
RIGHT = {"reward.terms.1": RelativeLength()}


@claim(
    "Training stays stable for at least 2.5 times as many steps: hard questions are not given up for brevity.",
    kind="headline",
    baseline="a penalty on every answer",
)
def stable() -> Finding:
    fallen = [stable_for(grpo_lambda_len(group=8).but(EVERY), most=400, seed=seed) for seed in range(2)]
    ours = [stable_for(grpo_lambda_len(group=8), most=math.ceil(2.5 * n), seed=seed) for seed, n in enumerate(fallen)]
    quotients = [lasted / base for lasted, base in zip(ours, fallen, strict=True)]
    return Finding(
        measured={"least quotient of steps": min(quotients), "penalty on every answer: steps": sum(fallen) / 2},
        criterion="steps until hard questions are half as often right as at first: >= 2.5x in each of 2 seeds (no "
        "longer was looked)",
        holds=min(quotients) >= 2.5,
        note="The very first step does not tell them apart: from lengths that are all as likely, it helps hard "
        "questions under either reward.",
    )


@claim(
    "Where hard questions need long answers, easy ones are answered with half the tokens and hard ones still right.",
    kind="headline",
    baseline="GRPO; a penalty on every answer; a penalty on right answers in all groups",
    cost="slow",
)
def no_collapse() -> Finding:
    ours = thrift(grpo_lambda_len(group=8))
    plain, every, right = (thrift(grpo_lambda_len(group=8).but(change)) for change in (PLAIN, EVERY, RIGHT))
    return Finding(
        measured={
            "hard questions right": ours.hard,
            "GRPO": plain.hard,
            "penalty on every answer": every.hard,
            "penalty on right answers": right.hard,
            "easy length": ours.easy_length,
            "GRPO: easy length": plain.easy_length,
            "lowest of hard on the way": ours.hard_lowest,
        },
        criterion="hard >= 0.75 and >= with the penalty on right answers; easy length <= half of GRPO's; with the "
        "penalty on every answer hard < 0.1 (1,500 steps, 4 seeds)",
        holds=ours.hard >= max(0.75, right.hard) and ours.easy_length <= 0.5 * plain.easy_length and every.hard < 0.1,
    )


@claim(
    "Right answers of the groups that are solved best pay for their length, by its place among the group's right "
    "ones; nobody else does.",
    kind="identity",
    baseline="outcomes alone",
)
def who_pays() -> Finding:
    right = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.double)
    length = torch.tensor([[2, 4, 6, 9], [3, 5, 7, 9], [1, 2, 3, 9], [4, 4, 4, 4]])
    batch = Experience(
        mask=torch.arange(9) < length.view(-1, 1),
        outcome=right.flatten(),
        group=torch.arange(16) // 4,
        terminated=torch.ones(16, dtype=torch.bool),
    )
    expected = right.clone()
    # The first group is the best of four, so that a quarter of the groups is this one: lengths 2, 4 and 6 among the
    # right, of mean 4 and standard deviation sqrt(8 / 3).
    expected[0, :3] -= 0.3 * torch.sigmoid(torch.tensor([-2.0, 0.0, 2.0], dtype=torch.double) / math.sqrt(8 / 3))
    found = grpo_lambda_len(group=4, share=0.25, weight=0.3).reward(batch)
    off = (found - expected.flatten()).abs().max().item()
    moved = (found - right.flatten()).abs().max().item()
    return Finding(
        measured={"largest error": off, "largest price": moved},
        criterion="error < 1e-12 in four groups, of which one pays; somebody pays > 0.2",
        holds=off < 1e-12 and moved > 0.2,
    )


@mutation("The share of groups is ignored: every group with a right answer pays.", kills=who_pays)
def share_ignored(replace: Replace) -> None:
    replace(TopGroups, "forward", lambda self, experience: torch.ones_like(experience.outcome, dtype=torch.bool))


@mutation("Mean and deviation of the length are those of all answers, wrong ones too.", kills=who_pays)
def all_lengths(replace: Replace) -> None:
    def forward(self: RelativeLength, experience: Experience) -> Tensor:
        length = self.length(experience).view(-1, 4)
        place = (length - length.mean(1, keepdim=True)) / length.std(1, correction=0, keepdim=True).clamp(min=1e-9)
        return torch.where(experience.outcome > 0, -self.weight * torch.sigmoid(place.flatten()), 0)

    replace(RelativeLength, "forward", forward)
