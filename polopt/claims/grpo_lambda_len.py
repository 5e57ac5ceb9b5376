"""These programs measure what the paper of GRPO-lambda (for short answers) claims."""

import math

from polopt.claim import Finding, claim
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
