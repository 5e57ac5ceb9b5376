"""Fixed-length fragments of episodes."""

from __future__ import annotations

from polopt.experience import Experience
from polopt.sampling.parts import Sampling
from polopt.sampling.policy_inputs import Memory, PolicyInput
from polopt.sampling.source_protocols import FragmentSource
from polopt.support import PLAIN, Support


class Fragments(Sampling):
    """Samples the next `steps` decisions of each of the source's environments.

    A row is one environment's fragment. It may hold the end of one episode and the beginning of the next; episodes
    continue in the next batch. `reward`, `terminated` and `truncated` are [B, T]; every row is a group of its own.

    steps: decisions in a row, T.
    policy_input: what the policy reads beside the observation; None if nothing.
    """

    tags = frozenset({"data_source=self"})

    steps: int = 128
    policy_input: PolicyInput | None = None

    source_capabilities = frozenset({"fragments"})

    def setup(self) -> None:
        if self.steps < 1:
            raise ValueError(f"sampling.Fragments: steps must be >= 1, found {self.steps}")

    @property
    def rollout_support(self) -> Support:
        return PLAIN

    @property
    def divisible_row(self) -> int:
        return 1 if isinstance(self.policy_input, Memory) else self.steps

    def forward(self, source: FragmentSource) -> Experience:
        return source.fragments(self.steps)
