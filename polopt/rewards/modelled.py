"""A small linear reward model, fitted to another reward during the first batches."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.rewards.parts import Reward


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
                "rewards.LinearTokenReward: need batches >= 1, features >= 2 and ridge > 0, found "
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
        paid = self.reward(experience)
        if paid.ndim != 1:
            raise ExperienceError(
                f"rewards.LinearTokenReward needs one reward for each row, [{len(paid)}], found {list(paid.shape)}; "
                "add what is "
                "per decision afterwards"
            )
        if self.training and len(paid):
            gram, target = self.get_buffer("gram"), self.get_buffer("target")
            gram.add_(read.T @ read)
            target.add_(read.T @ paid.double())
            held = self.ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            held[-1, -1] = 1e-9  # no penalty on the constant
            self.get_buffer("weights").copy_(torch.linalg.solve(gram + held, target))
        return paid

    def read(self, experience: Experience) -> Tensor:
        """Returns features [B, features + 1]: 1 in each bucket of one of the row's tokens or pairs, and a constant."""
        mask, tokens = experience.mask, experience.extras["tokens"].long()
        # Pairs of consecutive decisions, whatever masked positions are between them.
        order = mask.int().argsort(dim=1, descending=True, stable=True)
        said, real = tokens.gather(1, order), mask.gather(1, order)
        pairs = said[:, :-1] * 1_000_003 + said[:, 1:] + 1
        keys = torch.cat([ops.scrambled(said), ops.scrambled(-pairs)], 1) % self.features
        there = torch.cat([real, real[:, 1:]], 1)
        found = torch.zeros(len(mask), self.features + 1, dtype=torch.float64, device=mask.device)
        found = found.scatter_add(1, keys, there.double()).clamp(max=1)
        found[:, -1] = 1
        return found
