"""The kinds of part that sampling is made of, and what a loop offers them."""

from __future__ import annotations

from typing import Protocol

from polopt.experience import Experience, Support
from polopt.part import Part


class Source(Protocol):
    """Where experience comes from; every training loop is one.

    rows: how many rows the loop wants in one optimiser batch.
    """

    rows: int

    def rollout(self, prompts: int, group: int, support: Support) -> Experience:
        """Play the next `prompts` tasks `group` times each, with the current policy over `support`.

        Gives `mask`, `logp`, `outcome`, `reward`, `group`, `terminated`, `truncated`, `entropy` if the sampler
        knows it, `extras["answer"]` (str a row: what the policy answered) and `extras["kind"]` (str a row: what kind of
        task it was).
        """
        ...

    def demonstrate(self, rows: int) -> Experience:
        """The next `rows` tasks with their demonstrated solutions as decisions: `mask`, `outcome` = 1."""
        ...


class Sampling(Part):
    """`sampling(source) -> Experience`: which experience one optimiser batch is made of."""

    def forward(self, source: Source) -> Experience:
        raise NotImplementedError


class Select(Part):
    """`select(experience) -> experience`: which rows are worth learning from."""

    def forward(self, experience: Experience) -> Experience:
        raise NotImplementedError
