"""GRPO with a reward that no two answers share: what the learner does then depends on no task and no stop token."""

from __future__ import annotations

from typing import Any

import polopt
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.rewards import Reward


class FirstToken(Reward):
    """The id of the answer's first token, over a thousand. An answer cut off by the limit has a reward as well."""

    reads = frozenset({"extras.tokens"})

    def forward(self, experience: Experience) -> Any:
        first = experience.mask.int().argmax(1, keepdim=True)
        return experience.extras["tokens"].gather(1, first).squeeze(1) / 1000


def grpo(**settings: Any) -> Algorithm:
    return polopt.method("grpo", **settings).but(reward=FirstToken())
