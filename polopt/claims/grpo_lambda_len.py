"""These programs measure what the paper of GRPO-lambda (for short answers) claims."""

import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.masks import TopGroups
from polopt.lab.effects import Less, More, effect
from polopt.lab.length_bandit import thrift
from polopt.methods.grpo_lambda_len import grpo_lambda_len
from polopt.rewards import LinearLength, OutcomeReward, RelativeLength

PLAIN = {"reward": OutcomeReward()}
EVERY = {"reward.terms.1": LinearLength(weight=0.2, rows="all")}
RIGHT = {"reward.terms.1": RelativeLength()}


@effect(
    "Hard questions are not given up for brevity.",
    kind="headline",
    method=lambda: grpo_lambda_len(group=8),
    controls={"penalty on every answer": lambda: grpo_lambda_len(group=8).but(EVERY)},
    step_sizes=(0.0375, 0.15, 0.6, 2.4, 9.6),
    criteria=[More("hard questions right", by=0.5), Less("easy length", by=0.5)],
    best=More("worth", by=0.0),
    seeds=5,
    cost="slow",
    note="Step sizes are chosen by the share of right answers less 0.2 of the length over its limit. The control is "
    "best in short steps, with which it has learned little: in longer ones it gives all hard questions up. The "
    "method learns no more in steps of 38 than of 10.",
)
def stable(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _thrift(algorithm, seed, step_size)


@effect(
    "At no more length it answers more of them than with the penalty on right answers in all groups.",
    kind="headline",
    method=lambda: grpo_lambda_len(group=8),
    controls={"penalty on right answers": lambda: grpo_lambda_len(group=8).but(RIGHT)},
    step_sizes=(0.6, 1.2, 2.4, 4.8),
    criteria=[More("hard questions right", by=0.0), Less("easy length", by=1.0)],
    best=More("worth", by=0.0),
    trials=1,
    cost="slow",
    refuted=True,
    note="Single runs differ by more than the two means do.",
)
def best_groups(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _thrift(algorithm, seed, step_size)


def _thrift(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    found = thrift(algorithm, steps=300, rate=step_size, seeds=(seed,))
    share = (7 * found.easy + 3 * found.hard) / 10
    length = (7 * found.easy_length + 3 * found.hard_length) / 10
    return {"hard questions right": found.hard, "easy length": found.easy_length, "worth": share - 0.2 * length / 20}


@claim(
    "Where hard questions need long answers, easy ones are answered with half the tokens and hard ones still right.",
    kind="part",
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
