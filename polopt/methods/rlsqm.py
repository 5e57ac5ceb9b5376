"""RLSQM: a reward for unit tests from static analysis, without execution."""

from collections.abc import Sequence

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import KLPenalty, LinearTokenReward, Reward, SumOfRewards, UnitTest
from polopt.rewards.unit_tests import METRICS


@method(
    paper=Paper(
        title="Reinforcement Learning from Automatic Feedback for High-Quality Unit Test Generation",
        authors="Steenhoek, Benjamin and others",
        year=2023,
        arxiv="2310.02368",
    ),
    changes="PPO paid for what a static reading of the unit test finds: good habits, and no smells.",
    room="rewards",
    tier="reading",
)
def rlsqm(
    *, group: int = 1, metrics: Sequence[str] = METRICS, model: bool = False, batches: int = 20, kl: float = 0.05
) -> Algorithm:
    """R = the mean of some `metrics` of the answer, 1 or 0 each, -1 for what is no Python; PPO with the distance to the
    supervised policy in the reward. One metric alone is the paper's training on single metrics, all of them its
    combined reward. model=True takes a small reward model instead, fitted to the metrics on the first `batches`
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
