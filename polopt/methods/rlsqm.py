"""RLSQM: a reward for unit tests from static analysis, without execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import KLPenalty, Reward, SumOfRewards
from polopt.rewards.blocks import TextReward
from polopt.rewards.unit_tests import METRICS, metrics
from polopt.situation import Situation


@method(
    paper=Paper(
        title="Reinforcement Learning from Automatic Feedback for High-Quality Unit Test Generation",
        authors="Steenhoek, Benjamin and others",
        year=2023,
        arxiv="2310.02368",
    ),
    changes="PPO whose reward is a static analysis of the unit test: good habits, and no smells.",
    room="rewards",
    tier="reading",
)
def rlsqm(
    *, group: int = 1, metrics: Sequence[str] = METRICS, model: bool = False, batches: int = 20, kl: float = 0.05
) -> Algorithm:
    """PPO on the static quality of a test y, by M of the `metrics`, q_m(y) = 1 or 0 each:

        R = 1/M sum_m q_m(y) if y is Python, else -1
        r_t = R 1[t last] - kl (logp_t - ref_logp_t)

    with the supervised policy as the reference. One metric alone is the paper's training on single metrics, all of them
    its combined reward. model=True takes a small reward model instead, fitted to the metrics on the first `batches`
    batches: the paper fits one of the policy's size on scored samples before PPO begins.

    The paper's tests are C#, these are Python's, read by `ast` and `tokenize` and never executed. Its levels of reward
    and its KL coefficient are not known to us; 1, 0 and -1 are our reading. The function under test is named by the
    task's row as `focal`, as in the world unit-tests. Every single metric can be met by a test that tests nothing.
    """
    quality: Reward = UnitTest(metrics=list(metrics))
    if model:
        quality = LinearTokenReward(reward=quality, batches=batches)
    return ppo(group=group, kl=kl).but(
        reward=SumOfRewards(terms=[quality, KLPenalty(coefficient=kl)]) if kl else quality
    )


class LinearTokenReward(Reward):
    """A linear model's prediction of `reward` from the row's tokens: the tokens that occur, and the pairs of
    consecutive tokens.

    The model is fitted to the first `batches` batches by least squares with a penalty `ridge` |w|^2; these batches get
    the reward itself. From then on the model is fixed and the reward is no longer computed. The model is exact where
    the reward is a sum over tokens and pairs, and approximate otherwise; a policy trained on it exploits its errors.

    features: the number of hash buckets for tokens and pairs.

    Raises:
        ExperienceError: the reward is per decision.
    """

    reward: Reward
    batches: int = 20
    features: int = 512
    ridge: float = 1.0

    reads = frozenset({"extras.tokens"})

    def setup(self) -> None:
        if self.batches < 1 or self.features < 2 or self.ridge <= 0:
            raise ValueError(
                "methods.rlsqm.LinearTokenReward: need batches >= 1, features >= 2 and ridge > 0, found "
                f"{self.batches}, {self.features} and {self.ridge}"
            )
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.register_buffer("gram", torch.zeros(self.features + 1, self.features + 1, dtype=torch.float64))
        self.register_buffer("target", torch.zeros(self.features + 1, dtype=torch.float64))
        self.register_buffer("weights", torch.zeros(self.features + 1, dtype=torch.float64))

    def on_step(self) -> None:
        self.get_buffer("seen").add_(1)

    def forward(self, experience: Experience) -> Tensor:
        read = self.read(experience)
        if self.get_buffer("seen") >= self.batches:
            return (read @ self.get_buffer("weights")).to(experience.precision)
        reward = self.reward(experience)
        if reward.ndim != 1:
            raise ExperienceError(
                f"methods.rlsqm.LinearTokenReward needs one reward for each row, [{len(reward)}], found "
                f"{list(reward.shape)}; "
                "add what is "
                "per decision afterwards"
            )
        if self.training and len(reward):
            gram, target = self.get_buffer("gram"), self.get_buffer("target")
            gram.add_(read.T @ read)
            target.add_(read.T @ reward.double())
            penalty = self.ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            penalty[-1, -1] = 1e-9  # no penalty on the constant
            self.get_buffer("weights").copy_(torch.linalg.solve(gram + penalty, target))
        return reward

    def read(self, experience: Experience) -> Tensor:
        """Returns features [B, features + 1]: 1 in each bucket of one of the row's tokens or pairs, and a constant."""
        mask, tokens = experience.mask, experience.extras["tokens"].long()
        # Pairs of consecutive decisions, whatever masked positions are between them.
        order = mask.int().argsort(dim=1, descending=True, stable=True)
        packed, real = tokens.gather(1, order), mask.gather(1, order)
        pairs = packed[:, :-1] * 1_000_003 + packed[:, 1:] + 1
        keys = torch.cat([ops.scrambled(packed), ops.scrambled(-pairs)], 1) % self.features
        there = torch.cat([real, real[:, 1:]], 1)
        found = torch.zeros(len(mask), self.features + 1, dtype=torch.float64, device=mask.device)
        found = found.scatter_add(1, keys, there.double()).clamp(max=1)
        found[:, -1] = 1
        return found


class UnitTest(TextReward):
    """Mean of some `metrics` of the answer, a unit test of the function named in `field` of its task's row; -1 if it is
    no Python.

    Each metric can be satisfied without the others: the only smell of a test that does nothing is that it is empty.
    Source: RLSQM, arXiv:2310.02368.
    """

    metrics: Sequence[str] = METRICS
    field: str = "focal"

    reads = frozenset({"extras.answer", "extras.task"})

    def refusals(self, situation: Situation) -> Iterator[str]:
        if self.field not in situation.fields:
            yield (
                f"it reads unit tests of the function that a task's row names as {self.field!r}, and the tasks name "
                "none; take tasks of kind unit-tests, or of an environment whose rows do"
            )

    def setup(self) -> None:
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown or not self.metrics:
            raise ValueError(
                f"methods.rlsqm.UnitTest: metrics are some of {', '.join(METRICS)}, found {list(self.metrics)}"
            )

    def read(self, text: str, row: int, experience: Experience) -> float:
        found = metrics(text, str(experience.extras["task"][row].row.get(self.field, "")))
        return sum(found[name] for name in self.metrics) / len(self.metrics) if found["syntax"] else -1.0
