"""These programs measure what the paper of ConciseR claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.masks import SolvedGroups
from polopt.lab.effects import Less, More, effect
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


BRIEF = conciser(group=8, entropy=0.0)


def _thrift(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    found = thrift(algorithm, steps=300, rate=step_size, seeds=(seed,))
    share = (7 * found.easy + 3 * found.hard) / 10
    length = (7 * found.easy_length + 3 * found.hard_length) / 10
    return {"hard questions right": found.hard, "easy length": found.easy_length, "worth": share - 0.2 * length / 20}


@effect(
    "Where hard questions need long answers, easy ones lose most of their length and hard ones stay right.",
    kind="headline",
    method=lambda: BRIEF,
    controls={"grpo": lambda: BRIEF.but(reward=OutcomeReward())},
    step_sizes=(1.0, 2.0, 4.0, 8.0),
    criteria=[Less("easy length", times=0.3), More("hard questions right", by=-0.19)],
    best=More("worth", by=0.0),
    trials=2,
    cost="slow",
    refuted=True,
    note="A loss of 0.19 leaves the 0.75 that the claim is about. Most runs end there, with a sixth of the length; in "
    "two of ten, and in four on other seeds, hard questions, all but given up on the way, are not won back. Step sizes "
    "are chosen by the share of right answers less 0.2 of the length over its limit.",
)
def no_collapse(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _thrift(algorithm, seed, step_size)


@effect(
    "A penalty on every answer gives hard questions up instead.",
    kind="headline",
    method=lambda: BRIEF,
    controls={"penalty on every answer": lambda: BRIEF.but(**{"reward.terms.1": LinearLength(weight=0.2, rows="all")})},
    step_sizes=(1.0, 2.0, 4.0, 8.0),
    criteria=[More("hard questions right", by=0.65)],
    best=More("worth", by=0.0),
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="With a penalty on every answer no run keeps them, and of five runs of the method one to three do not win "
    "them back either, so that the difference is 0.72 and its interval reaches below 0.65: see the one before.",
)
def no_penalty_on_all(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _thrift(algorithm, seed, step_size)


@mutation("Length counts as soon as one answer of the group is right.", kills=walk_then_run)
def one_is_enough(replace: Replace) -> None:
    replace(sentence, "SolvedGroups", lambda least: SolvedGroups(least=1e-9))


@mutation("Longer answers are paid for.", kills=walk_then_run)
def longer_pays(replace: Replace) -> None:
    replace(sentence, "LinearLength", lambda weight, free, limit: LinearLength(weight=-weight, free=free, limit=limit))
