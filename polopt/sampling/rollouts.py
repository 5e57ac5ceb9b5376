"""Sources of an optimiser batch: rollouts, demonstrations, preference pairs and raw texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.part import default_of, settings_of, to_plain
from polopt.sampling.batch_mixers import BatchMixer
from polopt.sampling.parts import (
    EqualRollouts,
    PromptAugmenter,
    RolloutAllocator,
    RolloutRequest,
    Sampling,
    Select,
    Start,
    TaskSampler,
    UniformTasks,
    select_rows,
)
from polopt.sampling.source_protocols import DemonstrationSource, PairSource, RatedSource, Source, TextSource
from polopt.sampling.temperature import EntropyTemperature
from polopt.support import Support


class Rollouts(Sampling):
    """Groups of independent rollouts of the current policy.

    group: rollouts per prompt.
    choice: selects the tasks.
    budget: allocates the rollouts to the tasks, `group` each on average.
    guide: sets how the rollouts begin; None for plain ones.
    support: the sampler's temperature, top-k and top-p.
    adapt: gives each decision a temperature of its own around that one; None for one temperature.
    select: filters, in order.
    refills: how many further times to sample if the filters left less than a full batch; rows beyond a full batch are
        dropped, whole groups at a time, so that no group's statistics lose a row.
    mix: parts that add rows to the rollouts in the end, in order, beyond the rows of the loop's batch: demonstrations,
        or opponents that the rollouts are compared with.
    """

    tags = frozenset({"data_source=self"})

    group: int = 8
    choice: TaskSampler = UniformTasks()
    budget: RolloutAllocator = EqualRollouts()
    guide: PromptAugmenter | None = None
    support: Support = Support()
    adapt: EntropyTemperature | None = None
    select: Sequence[Select] = ()
    refills: int = 0
    mix: Sequence[BatchMixer] = ()

    def setup(self) -> None:
        if self.group < 1 or self.refills < 0:
            raise ValueError(
                f"sampling.Rollouts: need group >= 1 and refills >= 0, found {self.group} and {self.refills}"
            )
        self.budget.check(self.group)
        learned, opponents = ([part for part in self.mix if part.learned is kind] for kind in (True, False))
        if learned and (self.support.truncated or self.support.by_entropy is not None or self.adapt is not None):
            raise ValueError(
                f"sampling.Rollouts: {learned[0]!r} adds decisions of others, which may have no probability under "
                f"top-k and top-p and have no temperature of their own; sample with top_k 0, top_p 1 and one "
                f"temperature, found {self.support} and adapt={self.adapt!r}"
            )
        if opponents and self.guide is not None:
            raise ValueError(
                f"sampling.Rollouts: {opponents[0]!r} compares answers to plain prompts, and guide = {self.guide!r} "
                "changes how rollouts begin; set guide to null, or leave the opponents out"
            )

    def forward(self, source: Source) -> Experience:
        experience = self.gather(source)
        for mix in self.mix:
            experience = mix(experience, source)
        return experience

    def filtered(self, experience: Experience) -> Experience:
        """Returns the rows of a finished batch that `select` keeps; no others are sampled in place of the dropped ones.

        Raises:
            ExperienceError: a setting other than `select`, group size and support determines how rollouts are made.
        """
        if type(self) is not Rollouts:
            raise self.too_late(repr(self))
        for name in ("choice", "budget", "guide", "adapt", "mix"):
            if to_plain(value := getattr(self, name)) != to_plain(default_of(_FIELDS[name])):
                raise self.too_late(f"sampling.Rollouts.{name} = {value!r}")
        with torch.no_grad():
            return select_rows(self.select, experience)

    def gather(self, source: Any) -> Experience:
        """Returns the rollouts of one batch."""
        return self.draw(source, source.rows)

    @property
    def group_size(self) -> int:
        return self.group

    @property
    def rollout_support(self) -> Support:
        return self.support

    @property
    def filters(self) -> Sequence[Select]:
        return self.select

    @property
    def mixers(self) -> Sequence[BatchMixer]:
        return self.mix

    @property
    def compared(self) -> int | None:
        return None if any(part.learned for part in self.mix) else self.budget.fixed(self.group)

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        """Returns the number of whole batches whose kept rows fill one batch, 1 + refills at most, and the rollouts of
        opponents for each row."""
        batches = float(min(1 + self.refills, math.ceil(1 / kept))) if self.select else 1.0
        return batches + sum(part.sampled for part in self.mix) / self.group

    def draw(self, source: Source, rows: int) -> Experience:
        """Samples about `rows` rows: whole groups, and at least one."""
        batches: list[Experience] = []
        support = self.support if self.adapt is None else self.adapt(self.support)
        for _ in range(1 + self.refills):
            batch = self.sample_groups(source, max(1, rows // self.group), support)
            for select in self.select:
                batch = select(batch)
            batches.append(batch)
            if sum(map(len, batches)) >= rows or not self.select:
                break
        batch = _whole_groups(Experience.cat(batches), rows) if len(batches) > 1 else batches[0]
        if self.adapt is not None:
            self.adapt.observe(batch)
        return batch

    def sample_groups(self, source: Source, groups: int, support: Support) -> Experience:
        """Samples the rollouts of `groups` groups, at least one, without the filters."""
        guide = self.guide
        tasks = self.choice(source, groups if guide is None else max(1, groups // guide.each))
        tasks, starts = (tasks, None) if guide is None else guide(source, tasks)
        rollout = lambda copies: self.sample_tasks(source, tasks, copies, support, starts)  # noqa: E731
        batch = self.budget(source, tasks, self.group, rollout)
        for part in (self.choice, self.budget, guide):
            if part is not None:
                part.observe(batch)
        # Rows of a group that were sampled in several requests become adjacent again.
        order = batch.group.argsort(stable=True)
        return batch if torch.equal(order, torch.arange(len(order), device=order.device)) else batch[order]

    def sample_tasks(
        self, source: Source, tasks: Tensor, copies: Tensor, support: Support, starts: Sequence[Start] | None
    ) -> Experience:
        """Samples `copies` rollouts of each task."""
        return source.rollout(RolloutRequest(tasks, copies, support, starts=starts))


_FIELDS = {field.name: field for field in settings_of(Rollouts)}


def _whole_groups(experience: Experience, rows: int) -> Experience:
    """Returns the first groups that fit into `rows`, and at least one."""
    index, size = ops.group_index(experience.group)
    fits = size.cumsum(0) <= rows
    fits[:1] = True
    return experience[fits[index]]


class _Imitated(Sampling):
    """Rows that demonstrations determine and the policy imitates."""

    def filtered(self, experience: Experience) -> Experience:
        """Returns the finished batch itself, since no row was sampled.

        Raises:
            ExperienceError: rows have the log-probabilities of a sampler and are not marked as demonstrated.
        """
        if experience.rollout_logp is not None and not experience.is_demonstration.all():
            raise ExperienceError(
                f"Algorithm.compute_advantages: {self!r} imitates demonstrated rows, and these "
                "have the log-probabilities of a sampler, experience.rollout_logp: leave rollout_logp out, or mark the "
                "rows with extras['is_demonstration']"
            )
        return experience

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        return 0.0


class Demonstrations(_Imitated):
    """Demonstrated solutions of the tasks, as decisions of the rows."""

    tags = frozenset({"data_source=demonstrations"})
    source_capabilities = frozenset({"demonstrations"})

    def forward(self, source: DemonstrationSource) -> Experience:
        return source.demonstrate(source.rows)


class PreferencePairs(_Imitated):
    """Preference pairs: of each task the preferred answer, with outcome 1, and the rejected one, with outcome 0, as one
    group; of a task with a ranked list all of its answers, with their scores as outcomes."""

    tags = frozenset({"data_source=rated"})
    source_capabilities = frozenset({"pairs"})

    def forward(self, source: PairSource) -> Experience:
        return source.pairs(source.rows)

    @property
    def group_size(self) -> int:
        return 2


class RatedAnswers(_Imitated):
    """Answers with labels or scores, one or more of each task, as groups; the outcome is the score, 1 or 0 for a label.

    mismatched: as many rows more, in which each task has the answer of another one, for parts that estimate a distance
    between policies from them: `extras.mismatched` marks these.
    """

    tags = frozenset({"data_source=rated"})

    mismatched: bool = False

    source_capabilities = frozenset({"rated"})

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras.mismatched"}) if self.mismatched else frozenset()

    def forward(self, source: RatedSource) -> Experience:
        return source.rated(source.rows, mismatched=self.mismatched)

    @property
    def group_size(self) -> int:
        return 1


class RawTexts(_Imitated):
    """Raw texts in pieces of at most `length` tokens, as decisions of the rows: continued pre-training."""

    tags = frozenset({"data_source=demonstrations"})

    length: int = 512

    source_capabilities = frozenset({"texts"})

    def setup(self) -> None:
        if self.length < 1:
            raise ValueError(f"sampling.RawTexts: length must be >= 1, found {self.length}")

    def forward(self, source: TextSource) -> Experience:
        return source.texts(source.rows, self.length)
