"""These programs measure what the paper of DAPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab.claims import rare_arm, unanimous
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, uneven
from polopt.methods.dapo import dapo
from polopt.methods.grpo import grpo
from polopt.objectives import Clip
from polopt.rewards import OverlongPenalty
from polopt.sampling import MixedGroups


@claim("The length penalty is the paper's, piece by piece.", kind="identity", baseline="the hard limit alone")
def penalty() -> Finding:
    lengths, paper = [16000, 16384, 18432, 20480, 20481], [0.0, 0.0, -0.5, -1.0, -1.0]
    mask = torch.arange(20481) < torch.tensor(lengths)[:, None]
    soft = OverlongPenalty(limit=20480, buffer=4096)(Experience(mask=mask))
    off = (soft - torch.tensor(paper)).abs().max().item()
    steps = torch.unique(soft).numel()
    return Finding(
        measured={"largest error": off, "levels": float(steps)},
        criterion="error < 1e-6 at 5 lengths; 3 levels, where a hard limit has 2",
        holds=off < 1e-6 and steps == 3,
    )


@claim(
    "A higher upper clip lets one rare success grow more in 32 small steps on its batch.",
    kind="part",
    baseline="clip 0.2",
)
def rare_success() -> Finding:
    higher, lower = (rare_arm(dapo(high=high, refills=99), steps=32) for high in (0.28, 0.2))
    return Finding(
        measured={"growth at 0.28": higher, "growth at 0.2": lower, "quotient": higher / lower},
        criterion="quotient >= 1.06 (that of the bounds is 1.28 / 1.2 = 1.067)",
        holds=higher / lower >= 1.06,
    )


@claim("No group of the batch is without gradient.", kind="part", baseline="no filter, 70 % of prompts unanimous")
def dynamic() -> Finding:
    ours, plain = unanimous(dapo(group=8)), unanimous(dapo(group=8).but(**{"sampling.select": []}))
    measured = {"idle groups": ours[0], "unfiltered": plain[0], "gradient norm over unfiltered": ours[1] / plain[1]}
    return Finding(
        measured=measured,
        criterion="idle groups 0, unfiltered > 0.5; gradient norm > 1.5x",
        holds=ours[0] == 0 and plain[0] > 0.5 and ours[1] > 1.5 * plain[1],
    )


def _learned(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    return learned(algorithm, uneven(seed), steps=40, epochs=4, step_size=step_size, seed=seed)


@effect(
    "In as many steps it has learned more of tasks of very different difficulty.",
    kind="headline",
    method=lambda: dapo(group=8),
    controls={"grpo": lambda: grpo(group=8, kl=0.0)},
    step_sizes=(4.0, 8.0, 16.0, 32.0, 64.0),
    criteria=[More("mean success", by=0.02)],
    cost="slow",
    note="The paper counts steps. Its batches are refilled, and cost more answers: see the next claim.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@effect(
    "It does so at equal answers, too.",
    kind="limit",
    method=lambda: dapo(group=8),
    controls={"grpo, seven times the group": lambda: grpo(group=56, kl=0.0)},
    step_sizes=(4.0, 8.0, 16.0, 32.0, 64.0),
    criteria=[More("mean success", by=0.0)],
    budget="answers",
    cost="slow",
    refuted=True,
    note="Larger groups have fewer unanimous ones, and more answers of hard tasks: grpo spends its answers as well.",
)
def at_equal_answers(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@mutation("The upper bound of the clip is the lower one.", kills=rare_success)
def upper_is_lower(replace: Replace) -> None:
    forward = Clip.forward
    replace(Clip, "forward", lambda self, *given: forward(self.but(high=self.low), *given))


@mutation("Groups whose answers are all right, or all wrong, are kept.", kills=dynamic)
def keeps_unanimous(replace: Replace) -> None:
    replace(MixedGroups, "forward", lambda self, experience: experience)
