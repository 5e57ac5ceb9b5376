"""Where an optimiser batch comes from."""

from __future__ import annotations

from collections.abc import Sequence

from polopt import ops
from polopt.experience import Experience, Support
from polopt.sampling.parts import Sampling, Select, Source
from polopt.sampling.temperature import EntropyTemperature


class Rollouts(Sampling):
    """Groups of independent rollouts of the current policy.

    group: rollouts per prompt. support: the sampler's temperature, top-k and top-p. adapt: what gives each decision a
    temperature of its own around that one, if anything. select: filters, in order. refills: how many further times to
    sample when the filters left less than a full batch; rows beyond a full batch are dropped, whole groups at a time,
    so that no group's statistics lose a row.
    """

    group: int = 8
    support: Support = Support()
    adapt: EntropyTemperature | None = None
    select: Sequence[Select] = ()
    refills: int = 0

    def setup(self) -> None:
        if self.group < 1 or self.refills < 0:
            raise ValueError(
                f"sampling.Rollouts: need group >= 1 and refills >= 0, found {self.group} and {self.refills}"
            )

    def forward(self, source: Source) -> Experience:
        return self.draw(source, source.rows)

    def draw(self, source: Source, rows: int) -> Experience:
        """About so many rows: whole groups, and at least one."""
        batches: list[Experience] = []
        support = self.support if self.adapt is None else self.adapt(self.support)
        for _ in range(1 + self.refills):
            batch = source.rollout(max(1, rows // self.group), self.group, support)
            for select in self.select:
                batch = select(batch)
            batches.append(batch)
            if sum(map(len, batches)) >= rows or not self.select:
                break
        batch = _whole_groups(Experience.cat(batches), rows) if len(batches) > 1 else batches[0]
        if self.adapt is not None:
            self.adapt.observe(batch)
        return batch


def _whole_groups(experience: Experience, rows: int) -> Experience:
    """The first groups that fit into `rows`, and at least one."""
    index, size = ops.group_index(experience.group)
    fits = size.cumsum(0) <= rows
    fits[:1] = True
    return experience[fits[index]]


class Demonstrations(Sampling):
    """Solutions that come with the tasks, as if the policy had decided them."""

    def forward(self, source: Source) -> Experience:
        return source.demonstrate(source.rows)
