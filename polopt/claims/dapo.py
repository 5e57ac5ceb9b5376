"""These programs measure what the paper of DAPO claims."""

import torch

from polopt.experience import Experience
from polopt.lab.claims import rare_arm, unanimous
from polopt.method import Finding, claim
from polopt.methods.dapo import dapo
from polopt.rewards import OverlongPenalty


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
