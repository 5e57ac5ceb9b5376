"""RLCM: classification under a written policy, rewarded in parts, and how far more compute carries it."""

from __future__ import annotations

from statistics import median

import numpy as np

from polopt.algorithm import Algorithm
from polopt.lab.moderation import imitated, reasoned
from polopt.method import Finding, Paper, method
from polopt.methods.grpo import grpo
from polopt.metrics import fit_sigmoid
from polopt.rewards import Blocks, FieldReward, LengthEnvelope, OutcomeReward, Reward, SumOfRewards


@method(
    paper=Paper(
        title="Scaling Reinforcement Learning for Content Moderation with Large Language Models",
        authors="Firooz, Hamed and others",
        year=2025,
        arxiv="2512.20061",
    ),
    changes="GRPO on classification with reasoning: the reward adds up the label, the format, the length and a rubric.",
    room="rewards",
    tier="reading",
)
def rlcm_scaling(
    *,
    group: int = 8,
    accuracy: float = 1.0,
    form: float = 0.1,
    length: float = 0.1,
    rubric: float = 0.0,
    blocks: tuple[str, ...] = ("reasoning", "label"),
    lengths: tuple[int, int, int, int] = (0, 16, 256, 512),
    noted: str = "signal_rubric",
) -> Algorithm:
    """R = accuracy 1[label right] + form 1[the answer is its blocks] + length g(|y|) + rubric j

    with g a trapezium over `lengths` and j in [0, 1] what a judge made of the reasoning: a world's signal, or whatever
    else is noted of a row as `noted`. A term of weight 0 is left out, so that (1, 0, 0, 0) is GRPO on 0 and 1.
    Advantages are GRPO's, without KL, as in the paper.

    The paper names its terms; their weights and shapes we do not know, and these are ours. `rewards.JudgedReward` with
    a rubric takes the place of j where there is no world to note it. Format and length can be had without a right
    label: watch `metrics.balanced_accuracy` and `metrics.average_precision`, since classes are rarely even. The paper's
    curves over data, rollouts and steps are fitted by `metrics.fit_sigmoid`, with what lies ahead and how sure that is.
    """
    terms: list[tuple[float, Reward]] = [
        (accuracy, OutcomeReward()),
        (form, Blocks(names=blocks)),
        (length, LengthEnvelope(least=lengths[0], low=lengths[1], high=lengths[2], most=lengths[3])),
        (rubric, FieldReward(name=noted)),
    ]
    kept = [(weight, term) for weight, term in terms if weight]
    if not kept:
        raise ValueError("rlcm-scaling: some weight must not be 0")
    plain = len(kept) == 1 and kept[0][0] == 1
    reward = kept[0][1] if plain else SumOfRewards(terms=[t for _, t in kept], weights=[w for w, _ in kept])
    return grpo(group=group, kl=0.0).but(reward=reward)


@rlcm_scaling.claim(
    "From 8 runs the curve's ceiling and middle come out, and from the first 6 what the last 2 will reach.",
    baseline="a straight line through the logarithm of compute",
)
def curve() -> Finding:
    compute = np.geomspace(20, 2e4, 8)
    truth = 0.5 + 0.4 / (1 + (300 / compute) ** 1.2)
    off: dict[str, list[float]] = {"ceiling": [], "middle": [], "ahead": [], "line": []}
    for seed in range(40):
        seen = truth + 0.01 * np.random.default_rng(seed).standard_normal(8)
        whole, early = fit_sigmoid(compute, seen), fit_sigmoid(compute[:6], seen[:6])
        line = np.polyfit(np.log(compute[:6]), seen[:6], 1)
        off["ceiling"].append(abs(whole.most.estimate - 0.9))
        off["middle"].append(abs(whole.half.estimate / 300 - 1))
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


@rlcm_scaling.claim(
    "With reasoning, some number of labels teaches by reward what four times as many do not teach by imitation.",
    baseline="the likelihood of the labels alone, 4 N of them, with a weight decay chosen on a fifth of them",
    cost="slow",
)
def data_efficiency() -> Finding:
    plain, seeds = rlcm_scaling(form=0.0, length=0.0), range(5)
    measured: dict[str, float] = {}
    ahead = []
    for labels in (16, 32, 64, 128):
        ours = sum(reasoned(plain, labels, steps=60, rate=20.0, seed=s) for s in seeds) / len(seeds)
        same, more = (sum(imitated(n, s) for s in seeds) / len(seeds) for n in (labels, 4 * labels))
        measured |= {f"{labels} labels": ours, f"{labels}, imitated": same, f"{4 * labels}, imitated": more}
        ahead.append(ours >= more)
    return Finding(
        measured=measured,
        criterion="accuracy on fresh contents, mean of 5 seeds: RL on N labels >= imitation on 4 N, for some N",
        holds=any(ahead),
        note="A rule over 6 attributes, each with 16 wordings. The reasoner reads an attribute rightly 9 times in 10 "
        "before training, which the imitator has to learn. The reasoner samples what it says, which is its ceiling. "
        "It holds by a point, for 32 labels: from 64 on four times as many labels are worth more than reasoning. A "
        "hundredfold, as the paper reports of a model that knows the world, is not to be seen here.",
    )
