"""These programs measure what the paper of RLCM claims."""

from __future__ import annotations

import functools
from collections.abc import Callable
from statistics import median

import numpy as np
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.moderation import imitated, labelled, reasoned
from polopt.experience import Experience
from polopt.lab import train
from polopt.lab.effects import More, effect
from polopt.methods.grpo import grpo
from polopt.methods.rlcm_scaling import LengthEnvelope, rlcm_scaling
from polopt.metrics import fit_sigmoid


@claim(
    "From 8 runs the curve's ceiling and middle come out, and from the first 6 what the last 2 will reach.",
    kind="part",
    baseline="a straight line through the logarithm of compute",
)
def curve() -> Finding:
    compute = np.geomspace(20, 2e4, 8)
    truth = 0.5 + 0.4 / (1 + (300 / compute) ** 1.2)
    off: dict[str, list[float]] = {"ceiling": [], "middle": [], "ahead": [], "line": []}
    for seed in range(40):
        seen = truth + 0.01 * np.random.default_rng(seed).standard_normal(8)
        full, early = fit_sigmoid(compute, seen), fit_sigmoid(compute[:6], seen[:6])
        line = np.polyfit(np.log(compute[:6]), seen[:6], 1)
        off["ceiling"].append(abs(full.most.estimate - 0.9))
        off["middle"].append(abs(full.half.estimate / 300 - 1))
        off["ahead"].append(float(np.abs(early(compute[6:]) - truth[6:]).max()))
        off["line"].append(float(np.abs(np.polyval(line, np.log(compute[6:])) - truth[6:]).max()))
    found = {name: median(values) for name, values in off.items()}
    return Finding(
        measured={
            "ceiling off by": found["ceiling"],
            "middle off by": found["middle"],
            "last 2 off by": found["ahead"],
            "last 2, straight line": found["line"],
            "share of fits with all three": float(
                np.mean(
                    (np.array(off["ceiling"]) < 0.02)
                    & (np.array(off["middle"]) < 0.2)
                    & (np.array(off["ahead"]) < 0.03)
                )
            ),
        },
        criterion="medians over 40 draws of noise 0.01: ceiling within 0.02, middle within 20 %, last 2 within 0.03",
        holds=found["ceiling"] < 0.02 and found["middle"] < 0.2 and found["ahead"] < 0.03,
        note="From 8 points a single fit may miss by more; `fit_sigmoid`'s intervals say by how much.",
    )


@effect(
    "With reasoning, 32 labels teach by reward what four times as many do not teach by imitation.",
    kind="headline",
    method=lambda: functools.partial(reasoned, rlcm_scaling(form=0.0, length=0.0), 32, steps=60),
    controls={"the likelihood of 128 labels": lambda: functools.partial(imitated, 128)},
    step_sizes=(20.0, 40.0, 80.0, 160.0, 320.0),
    criteria=[More("accuracy", by=0.0)],
    trials=2,
    cost="slow",
    note="A rule over 6 attributes, each with 16 wordings. The reasoner reads an attribute rightly 9 times in 10 "
    "before training, which the imitator has to learn; it samples what it says, which is its ceiling. All answers have "
    "one form and length, so that those terms are 0. The imitator's steps are Adam's, 1/2000 of the size.",
)
def data_efficiency(accuracy: Callable[..., float], *, seed: int, step_size: float) -> dict[str, float]:
    return {"accuracy": accuracy(seed=seed, rate=step_size)}


@effect(
    "The length's term brings answers into its range, and labels are as right as without it.",
    kind="part",
    method=lambda: rlcm_scaling(form=0.0, lengths=(2, 6, 8, 11)),
    controls={"grpo, the label alone": lambda: grpo(group=8, kl=0.0)},
    step_sizes=(8.0, 16.0, 32.0, 64.0, 128.0),
    criteria=[More("in range", by=0.5), More("right labels", by=-0.05)],
    best=More("right labels", by=0.0),
    seeds=20,
    trials=2,
    cost="slow",
    note="At 128 both give 0.998 of the labels right. In steps of 512 they give all, and half of the answers leave the "
    "range. On 3 of 10 seeds a part of the answers stays out of it, so that five seeds are too few for the bound.",
)
def keeps_to_the_range(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy = labelled()
    train(algorithm, tree, policy, steps=40, rate=step_size, rows=4, seed=seed)
    p = tree.log_probabilities(policy).detach().exp()
    lengths = tree.leaves().lengths.view_as(p)
    return {
        "right labels": tree.value(policy).item(),
        "in range": (p * ((lengths >= 6) & (lengths <= 8))).sum(1).mean().item(),
    }


@mutation("The length's term is 1 beyond its range as well.", kills=keeps_to_the_range)
def never_falls(replace: Replace) -> None:
    def forward(self: LengthEnvelope, experience: Experience) -> Tensor:
        length = experience.lengths.to(experience.precision)
        return ((length - self.least) / (self.low - self.least)).clamp(0, 1)

    replace(LengthEnvelope, "forward", forward)
