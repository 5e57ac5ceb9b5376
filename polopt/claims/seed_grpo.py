"""These programs measure what the paper of SEED-GRPO claims."""

import math

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.noisy import accuracy
from polopt.experience import Experience
from polopt.lab.effects import More, effect
from polopt.methods.dr_grpo import dr_grpo
from polopt.methods.seed_grpo import SemanticEntropy, seed_grpo


def entropy(answers: list[str], logp: float = -1.0) -> float:
    """SE / log G of one group of equally likely answers."""
    n = len(answers)
    rows = Experience(
        mask=torch.ones(n, 1, dtype=torch.bool),
        rollout_logp=torch.full((n, 1), logp, dtype=torch.double),
        group=torch.zeros(n, dtype=torch.long),
        extras={"answer": answers},
    )
    return SemanticEntropy()(rows)[0].item()


@claim("From 0, where all answers agree, to 1, where no two do.", kind="identity", baseline="Shannon's entropy")
def ends() -> Finding:
    one, all_, uneven = entropy(["4", "4.0", " 4.", "+4"]), entropy(["1", "2", "3", "4"]), entropy(["1", "1", "1", "2"])
    shares = torch.tensor([0.75, 0.25], dtype=torch.double)
    shannon = (-(shares * shares.log()).sum() / torch.log(torch.tensor(4.0))).item()
    mean = (-shares.log().mean() / torch.log(torch.tensor(4.0))).item()
    return Finding(
        measured={"all agree": one, "none agree": all_, "three to one": uneven, "Shannon, three to one": shannon},
        criterion="0 and 1 to 1e-12; three to one is -(log 3/4 + log 1/4) / 2 log 4, above Shannon's",
        holds=abs(one) < 1e-12 and abs(all_ - 1) < 1e-12 and abs(uneven - mean) < 1e-6 and uneven > shannon,
        note="The mean of -log p over clusters weighs a rare answer as much as a common one, so it is larger.",
    )


@claim("With clean rewards it costs little.", kind="part", baseline="Dr. GRPO, rate 16, 60 batches", cost="slow")
def clean() -> Finding:
    ours, base = (accuracy(s, rate=16.0, flip=0.0) for s in (seed_grpo(length=1), dr_grpo(length=1)))
    return Finding(
        measured={"accuracy": ours.final, "Dr. GRPO": base.final, "batches to 0.9": ours.batches, "its": base.batches},
        criterion="final accuracy at most 0.01 lower, 0.9 no later than 1.3 times its batches (10 seeds)",
        holds=ours.final >= base.final - 0.01 and ours.batches <= 1.3 * base.batches,
        note="A bound on what it costs, which Dr. GRPO meets, too; it shows no gain.",
    )


@effect(
    "Where answers are dispersed and rewards noisy, it ends at least a point higher.",
    kind="headline",
    method=lambda: seed_grpo(length=1),
    controls={"dr-grpo": lambda: dr_grpo(length=1)},
    step_sizes=(16.0, 64.0, 256.0, 1024.0),
    criteria=[More("accuracy", by=0.01)],
    cost="slow",
    refuted=True,
    note="It damps the prompts that have most to learn, as a smaller step does.",
)
def noisy(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """30 % of the outcomes of the prompts of dispersed answers are turned round, 60 batches."""
    return {"accuracy": accuracy(algorithm, rate=step_size, flip=0.3, seeds=1, first=seed).final}


@claim(
    "The advantage is Dr. GRPO's times 1 - alpha SE / log G of its prompt.",
    kind="identity",
    baseline="Dr. GRPO",
)
def damped() -> Finding:
    answers, alpha = ["1", "1", "1", "1", "1", "1", "2", "2", "1", "2", "3", "4"], 0.4
    batch = Experience(
        mask=torch.ones(12, 1, dtype=torch.bool),
        rollout_logp=torch.full((12, 1), -1.0, dtype=torch.double),
        reward=torch.tensor([a == "1" for a in answers]).double() + torch.arange(12).double() / 10,
        group=torch.arange(3).repeat_interleave(4),
        extras={"answer": answers},
    )
    plain = dr_grpo(group=4).credit(batch)[:, 0]
    quotient = (seed_grpo(group=4, alpha=alpha).credit(batch)[:, 0] / plain).view(3, 4)
    expected = torch.tensor([0.0, math.log(2) / math.log(4), 1.0], dtype=torch.double)
    off = (quotient - (1 - alpha * expected)[:, None]).abs().max().item()
    return Finding(
        measured={"all agree": quotient[0, 0].item(), "none agree": quotient[2, 0].item(), "largest error": off},
        criterion="error < 1e-6: 1 where all agree, 0.8 where they are halved, 0.6 where no two agree (alpha 0.4)",
        holds=off < 1e-6,
    )


@mutation("Every answer counts, not every cluster: Shannon's entropy.", kills=ends)
def shannon(replace: Replace) -> None:
    def forward(self: SemanticEntropy, experience: Experience) -> Tensor:
        group, weight = experience.group, self._log_weight(experience)
        cluster = ops.crossed(group, self._meaning(experience))
        surprise = ops.group_logsumexp(weight, group) - ops.group_logsumexp(weight, cluster)
        return ops.group_mean(surprise, group) / ops.group_size(group).double().log()

    replace(SemanticEntropy, "forward", forward)


@mutation("Prompts on which answers agree are damped, and not the others.", kills=damped)
def damps_the_certain(replace: Replace) -> None:
    forward = SemanticEntropy.forward
    replace(SemanticEntropy, "forward", lambda self, experience: 1 - forward(self, experience))
