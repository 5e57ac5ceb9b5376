"""MPO: DPO on the pairs that a reward model tells apart, then PPO on the prompts of the others, near the DPO policy."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.method import Paper, method
from polopt.methods.dpo import dpo
from polopt.methods.ppo import ppo
from polopt.rewards import JudgedReward, KLPenalty, LearnedJudge, Reward, SumOfRewards
from polopt.sampling.parts import Select, TaskSampler
from polopt.sampling.source_protocols import PairSource

Gap = Literal["absolute", "signed"]


@method(
    paper=Paper(
        title="Mixed Preference Optimization: Reinforcement Learning with Data Selection and Better Reference Model",
        authors="Gou, Qi and Nguyen, Cam-Tu",
        year=2024,
        arxiv="2403.19443",
    ),
    changes="DPO learns from the pairs with a large gap of rewards, PPO from the prompts of the others, with the DPO "
    "policy as its reference.",
    room="sampling",
    tier="reading",
)
def mpo_easyhard(
    *,
    stage: int = 2,
    reward: Reward | None = None,
    gamma: float = 1.0,
    gap: Gap = "absolute",
    beta: float = 0.1,
    group: int = 1,
    clip: float = 0.2,
    lam: float = 0.95,
) -> Algorithm:
    """g = |r(x, y_w) - r(x, y_l)| of a pair of a preferred answer y_w and a rejected one y_l, r a reward model. Stage 1
    is DPO on the easy pairs, g > gamma. Stage 2 is PPO on the prompts of the hard ones, g <= gamma, which maximises

        R(y) = r(y) - beta log (pi(y) / pi_dpo(y))

    from the DPO policy, pi_dpo. Both stages have the same pairs for tasks, and a stage that has no start of its own
    goes on from the one before, which is its reference as well:

        easy: {method: {name: mpo-easyhard, stage: 1, reward: ...}}
        hard: {method: {name: mpo-easyhard, stage: 2, reward: ...}}

    With gamma below all gaps stage 1 is DPO, and with gamma above them stage 2 is PPO on all prompts; in each of these
    cases the other stage has nothing to learn from.

    reward: r, a part such as rewards.JudgedReward(judge=rewards.LearnedJudge(weights=folder)); None is an untrained
    scorer, of use only to try out a recipe. gamma: in the units of r. gap: "signed" counts pairs that r ranks against
    the label as hard, whatever their size. beta: of both stages. group, clip, lam: PPO's.

    The paper's text on the gap was not available: "absolute" is our reading, and so are the values of gamma and beta.
    The prompts of easy pairs are passed by before anything is sampled for them.
    """
    model = JudgedReward(judge=LearnedJudge()) if reward is None else reward
    if stage == 1:
        return dpo(beta=beta).but(select=[EasyPairs(reward=model, gamma=gamma, gap=gap)])
    if stage != 2:
        raise ValueError(f"mpo-easyhard: stage must be 1, the easy pairs, or 2, the hard prompts, found {stage}")
    terms = SumOfRewards(terms=[model, KLPenalty(coefficient=beta)])
    hard = HardPrompts(reward=model, gamma=gamma, gap=gap)
    return ppo(group=group, clip=clip, lam=lam, kl=0.0).but({"sampling.choice": hard}, reward=terms)


def reward_gaps(experience: Experience, reward: Reward, gap: Gap) -> Tensor:
    """Returns the gap of rewards of each row's pair, [B]: of the row with the higher outcome minus that of the other;
    "absolute" takes its size.

    reward: the reward model.
    """
    score = reward(experience)
    if score.ndim == 2:
        score = torch.where(experience.mask, score, 0).sum(1)
    above = (experience.outcome - ops.group_mean(experience.outcome, experience.group)).sign()
    found = ops.group_sum(above.to(score) * score, experience.group)
    return found.abs() if gap == "absolute" else found


class EasyPairs(Select):
    """Keeps the pairs whose gap of rewards exceeds `gamma`, and both rows of each.

    reward, gap: as the method's. Source: MPO, arXiv:2403.19443.
    """

    tags = frozenset({"filter=outcome"})

    reward: Reward
    gamma: float = 1.0
    gap: Gap = "absolute"

    judges_demonstrations = True

    reads = frozenset({"outcome", "group"})

    def forward(self, experience: Experience) -> Experience:
        return experience[reward_gaps(experience, self.reward, self.gap) > self.gamma]


class HardPrompts(TaskSampler):
    """Selects the tasks, in random order, whose pair of answers has a gap of rewards of at most `gamma`.

    reward, gap: as the method's. tries: how often as many tasks as are missing are drawn; then those that were found
    are repeated. Source: MPO, arXiv:2403.19443.

    Raises:
        ExperienceError: none of the drawn tasks has such a pair.
    """

    reward: Reward
    gamma: float = 1.0
    gap: Gap = "absolute"
    tries: int = 20

    source_capabilities = frozenset({"pairs"})

    def setup(self) -> None:
        if self.tries < 1:
            raise ValueError(f"methods.mpo_easyhard.HardPrompts: tries must be >= 1, found {self.tries}")

    def forward(self, source: PairSource, count: int) -> Tensor:
        found, drawn = list[int](), 0
        for _ in range(self.tries):
            tasks = source.take(count - len(found))
            drawn += len(tasks)
            pairs = source.pairs(2 * len(tasks), tasks)
            with torch.no_grad():
                hard = reward_gaps(pairs, self.reward, self.gap)[ops.group_first(pairs.group)] <= self.gamma
            found += tasks[hard.to(tasks.device)].tolist()
            if len(found) == count:
                break
        if not found:
            raise ExperienceError(
                f"methods.mpo_easyhard.HardPrompts: none of {drawn} pairs has a gap of rewards of at most gamma = "
                f"{self.gamma:g}; raise gamma, or leave stage 2 out"
            )
        return torch.tensor(found * -(-count // len(found)))[:count]
