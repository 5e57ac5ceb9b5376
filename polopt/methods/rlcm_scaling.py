"""RLCM: classification under a written policy, with a reward of several parts, and its scaling with compute."""

from __future__ import annotations

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import Blocks, FieldReward, OutcomeReward, Reward, SumOfRewards


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
    """The reward of an answer y adds up four terms:

        R = accuracy 1[label right] + form 1[blocks alone] + length g(|y|) + rubric j

    with the first for the label, the second for an answer that is its `blocks` and nothing else, g a trapezium over
    `lengths` and j in [0, 1] a judge's score of the reasoning: an environment's signal, or any other extra of the rows,
    named by `noted`. A term of weight 0 is left out, so that (1, 0, 0, 0) is GRPO on 0 and 1. Advantages are GRPO's,
    without KL, as in the paper.

    The paper names its terms; their weights and shapes are not published, and these are ours. `rewards.JudgedReward`
    with a rubric takes the place of j where the environment has no such signal. Format and length can be earned without
    a right label: watch `metrics.balanced_accuracy` and `metrics.average_precision`, since classes are rarely even. The
    paper's curves over data, rollouts and steps are fitted by `metrics.fit_sigmoid`, which extrapolates them with
    intervals.
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


class LengthEnvelope(Reward):
    """A trapezoidal reward of the length |y|, in decisions, with least < low <= high < most:
        0 below least, rising to 1 at low, 1 up to high, falling to 0 at most, and 0 beyond.

    A `ConditionalReward` by `TaskKindIs`, with one such term for each kind of task, gives each kind its own range.
    Source: task-level length shaping, arXiv:2604.08539, equation 9.
    """

    least: int
    low: int
    high: int
    most: int

    def setup(self) -> None:
        if not 0 <= self.least < self.low <= self.high < self.most:
            raise ValueError(
                "methods.rlcm_scaling.LengthEnvelope: need 0 <= least < low <= high < most, found "
                f"{self.least}, {self.low}, {self.high}, {self.most}"
            )

    def forward(self, experience: Experience) -> Tensor:
        length = experience.lengths.to(experience.precision)
        rise, fall = (length - self.least) / (self.low - self.least), (self.most - length) / (self.most - self.high)
        return rise.minimum(fall).clamp(0, 1)
