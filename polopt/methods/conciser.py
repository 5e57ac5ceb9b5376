"""ConciseR: first right, then brief: length counts only where every answer to a question is right."""

from typing import Literal

import torch

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.length_bandit import thrift
from polopt.method import Finding, Paper, method
from polopt.methods.dapo import dapo
from polopt.objectives import EntropyBonus
from polopt.rewards import ConditionalReward, LinearLength, OutcomeReward, SolvedGroups, SumOfRewards


@method(
    paper=Paper(
        title="Walk Before You Run! Concise LLM Reasoning via Reinforcement Learning",
        authors="Song, Mingyang and Zheng, Mao",
        year=2025,
        arxiv="2505.21178",
    ),
    changes="DAPO with an entropy bonus, then a second stage that pays what is left of the length where all are right.",
    room="rewards",
    tier="reading",
)
def conciser(
    *,
    group: int = 16,
    stage: Literal[1, 2] = 2,
    weight: float = 1.0,
    limit: int | None = None,
    low: float = 0.2,
    high: float = 0.28,
    entropy: float = 0.001,
    refills: int = 9,
) -> Algorithm:
    """Stage 1, GRPO++: DAPO's higher upper clip, dynamic sampling and token mean, with an entropy bonus, rewards 1 and
    0, no length penalty and no KL. Stage 2, L-GRPO: every group is kept, and

        R_i = 1 + weight (1 - L_i / limit)   where all answers to the question are right,
        R_i = 1 or 0                         elsewhere.

    In a group that is all right the z-score leaves nothing but length: what was useless to GRPO becomes the signal to
    be brief. limit None is the batch's horizon. That length counts only where all rollouts are right, the stages and
    the entropy bonus are the paper's; how what is left of the length is measured, the weight of the bonus and the
    group are our reading, as the authors published no training code. Dynamic sampling is off in stage 2: it would drop
    the very groups. The z-score makes length as important as being right, whatever the weight.
    """
    first = dapo(group=group, low=low, high=high, refills=refills).but(reward=OutcomeReward())
    if entropy:
        first = first.but(**{"objective.regularise": [EntropyBonus(coefficient=entropy)]})
    if stage == 1:
        return first
    brief = LinearLength(weight=weight, free=1.0, limit=limit)
    paid = SumOfRewards(terms=[OutcomeReward(), ConditionalReward(reward=brief, when=SolvedGroups(least=1.0))])
    return first.but(reward=paid, **{"sampling.select": [], "sampling.refills": 0})


@conciser.claim(
    "Answers that are all right are ranked by length alone; with one wrong among them length does not count.",
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
    right = algorithm.credited(batch)
    one_wrong = algorithm.credited(batch.replace(outcome=torch.tensor([1.0, 0.0, 1.0], dtype=torch.double)))
    off = (right.reward - torch.tensor([1.9, 1.8, 1.7], dtype=torch.double)).abs().max().item()
    spread = torch.tensor([1.5**0.5, 0.0, -(1.5**0.5)], dtype=torch.double)
    apart = (right.advantage[:, 0] - spread).abs().max().item()
    length = (one_wrong.reward - one_wrong.outcome).abs().max().item()
    plain = algorithm.but(reward=OutcomeReward()).credited(batch).advantage.abs().max().item()
    return Finding(
        measured={"rewards off": off, "advantages off": apart, "length with one wrong": length, "GRPO": plain},
        criterion="lengths 10, 20, 30 of 100: rewards 1.9, 1.8, 1.7 and advantages 1.2247, 0, -1.2247 to 1e-12; with "
        "one wrong, exactly the outcome; GRPO exactly 0",
        holds=max(off, apart) < 1e-12 and length == 0 and plain == 0,
    )


ALWAYS = {"reward.terms.1": LinearLength(weight=0.2, rows="all")}


@conciser.claim(
    "Where hard questions need long answers, easy ones lose most of their length and hard ones stay right.",
    baseline="GRPO; a penalty on every answer",
    cost="slow",
)
def no_collapse() -> Finding:
    sentence = conciser(group=8, entropy=0.0)
    ours, plain, always = (thrift(sentence.but(c)) for c in ({}, {"reward": OutcomeReward()}, ALWAYS))
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
        "easy ones: length in solved groups pulls as hard as being right does in the others.",
    )
