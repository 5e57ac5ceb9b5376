"""These programs measure what the paper of ConciseR claims."""

import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.masks import SolvedGroups
from polopt.lab.length_bandit import thrift
from polopt.methods import conciser as sentence
from polopt.methods.conciser import conciser
from polopt.rewards import LinearLength, OutcomeReward


@claim(
    "Answers that are all right are ranked by length alone; with one wrong among them length does not count.",
    kind="identity",
    baseline="GRPO, which learns nothing from answers that are all right",
)
def walk_then_run() -> Finding:
    lengths = torch.tensor([10, 20, 30])
    batch = Experience(
        mask=torch.arange(30) < lengths[:, None],
        outcome=torch.ones(3, dtype=torch.double),
        group=torch.zeros(3, dtype=torch.long),
    )
    algorithm = conciser(group=3, limit=100).but(**{"credit.scale.correction": 0, "credit.scale.eps": 0.0})
    right = algorithm.with_advantages(batch)
    one_wrong = algorithm.with_advantages(batch.replace(outcome=torch.tensor([1.0, 0.0, 1.0], dtype=torch.double)))
    off = (right.reward - torch.tensor([1.9, 1.8, 1.7], dtype=torch.double)).abs().max().item()
    spread = torch.tensor([1.5**0.5, 0.0, -(1.5**0.5)], dtype=torch.double)
    advantage_error = (right.advantage[:, 0] - spread).abs().max().item()
    length = (one_wrong.reward - one_wrong.outcome).abs().max().item()
    plain = algorithm.but(reward=OutcomeReward()).with_advantages(batch).advantage.abs().max().item()
    return Finding(
        measured={
            "rewards off": off,
            "advantages off": advantage_error,
            "length with one wrong": length,
            "GRPO": plain,
        },
        criterion="lengths 10, 20, 30 of 100: rewards 1.9, 1.8, 1.7 and advantages 1.2247, 0, -1.2247 to 1e-12; with "
        "one wrong, exactly the outcome; GRPO exactly 0",
        holds=max(off, advantage_error) < 1e-12 and length == 0 and plain == 0,
    )


ALWAYS = {"reward.terms.1": LinearLength(weight=0.2, rows="all")}


@claim(
    "Where hard questions need long answers, easy ones lose most of their length and hard ones stay right.",
    kind="headline",
    baseline="GRPO; a penalty on every answer",
    cost="slow",
)
def no_collapse() -> Finding:
    algorithm = conciser(group=8, entropy=0.0)
    ours, plain, always = (thrift(algorithm.but(c)) for c in ({}, {"reward": OutcomeReward()}, ALWAYS))
    return Finding(
        measured={
            "hard questions right": ours.hard,
            "GRPO": plain.hard,
            "penalty on every answer": always.hard,
            "easy length": ours.easy_length,
            "GRPO: easy length": plain.easy_length,
            "lowest of hard on the way": ours.hard_lowest,
        },
        criterion="hard > 0.75 and easy length <= 0.3 of GRPO's; with the penalty on every answer hard < 0.1 (1,500 "
        "steps, 4 seeds)",
        holds=ours.hard > 0.75 and ours.easy_length <= 0.3 * plain.easy_length and always.hard < 0.1,
        note="On the way hard questions are all but given up, and won back only as the policy learns to tell them from "
        "easy ones: length in solved groups pulls as hard as being right does in the others. On other seeds they "
        "end at 0.71, below the criterion.",
    )


@mutation("Length counts as soon as one answer of the group is right.", kills=walk_then_run)
def one_is_enough(replace: Replace) -> None:
    replace(sentence, "SolvedGroups", lambda least: SolvedGroups(least=1e-9))


@mutation("Longer answers are paid for.", kills=walk_then_run)
def longer_pays(replace: Replace) -> None:
    replace(sentence, "LinearLength", lambda weight, free, limit: LinearLength(weight=-weight, free=free, limit=limit))
