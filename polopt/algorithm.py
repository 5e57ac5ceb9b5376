"""One full sentence: which experience, what it was worth, who earned it, how far to move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from polopt import ops
from polopt.credit import Credit, Relative
from polopt.experience import Experience
from polopt.objectives import Objective, Surrogate
from polopt.part import Part
from polopt.rewards import Outcome, Reward
from polopt.sampling import Rollouts, Sampling, Select
from polopt.schedules import Schedule, now
from polopt.teachers import SelfTeacher


class Algorithm(Part):
    """sampling -> reward -> credit -> select -> objective.

    select: which rows, and which of their decisions, are worth learning from, in order, now that credit is known. A
    decision that is left out stays context.
    follow: how far the reference policy moves towards the policy after each batch, 0 to 1, a number or a schedule: 0
    leaves it where it began, 1 renews it, in between its weights average the policy's past.
    teacher: who is asked about the policy's decisions once their outcome is known, for parts that read what it says.

    `algorithm.but(credit=..., **{"objective.trust.high": 0.28})` is a changed copy, and
    `polopt.part.diff(a, b)` says what differs.
    """

    sampling: Sampling = Rollouts()
    reward: Reward = Outcome()
    credit: Credit = Relative()
    select: Sequence[Select] = ()
    objective: Objective = Surrogate()
    follow: float | Schedule = 0.0
    teacher: SelfTeacher | None = None

    def setup(self) -> None:
        if isinstance(self.follow, float) and not 0 <= self.follow <= 1:
            raise ValueError(f"Algorithm: follow must be in [0, 1], found {self.follow}")
        unknown = {"logp", "entropy"} & (self.reward.all_needs | self.credit.all_needs)
        if self._judges_demonstrations and unknown:
            raise ValueError(
                f"Algorithm: {self.credit!r} judges demonstrated rows, which nobody sampled, and reward or credit read "
                f"{' and '.join(sorted(unknown))} of the sampler; leave one of the two out"
            )

    @property
    def _judges_demonstrations(self) -> bool:
        return any(part.judges_demonstrations for part in self.credit.parts() if isinstance(part, Credit))

    def judge(self, experience: Experience) -> Experience:
        """What is to be learned from the batch: credited, then selected."""
        return self.selected(self.credited(experience))

    def credited(self, experience: Experience) -> Experience:
        """The batch with its shaped `reward` and its `advantage`, computed on the whole of it.

        Reward and credit see no demonstrated rows, unless the credit judges them too. Otherwise these are paid their
        outcome, and each of their decisions has advantage 1, which makes a likelihood of the score function.
        """
        shown = experience.demonstrated
        if not shown.any() or self._judges_demonstrations:
            return self._credited(experience)
        others = experience[shown]
        advantage = others.mask.to(torch.get_default_dtype())
        if shown.all():
            return others.replace(reward=others.outcome, advantage=advantage)
        own = self._credited(experience[~shown])
        paid = others.outcome if own.reward.ndim == 1 else ops.per_decision_reward(others.outcome, others.mask)
        joined = Experience.join([own, others.replace(reward=paid, advantage=advantage).matched(own)])
        return joined[torch.cat([(~shown).nonzero(), shown.nonzero()]).flatten().argsort()]

    def _credited(self, experience: Experience) -> Experience:
        with torch.no_grad():
            experience = experience.replace(reward=self.reward(experience))
            return self.credit.credited(experience)

    def selected(self, experience: Experience) -> Experience:
        """What is worth learning from, of a credited batch. Demonstrated rows stay, unless a part judges them too."""
        with torch.no_grad():
            for select in self.select:
                shown = experience.demonstrated
                if select.judges_demonstrations or not shown.any():
                    experience = select(experience)
                elif not shown.all():
                    own = select(experience[~shown])
                    experience = Experience.join([own, experience[shown].matched(own)])
        return experience

    @torch.no_grad()
    def lead(self, reference: Iterable[torch.Tensor], policy: Iterable[torch.Tensor]) -> None:
        """Move the reference's parameters towards the policy's, as far as `follow` says for now."""
        if (share := now(self.follow)) > 0:
            for theirs, ours in zip(reference, policy, strict=True):
                theirs.lerp_(ours, share)  # with 1 it is a copy, bit for bit


def add_metrics(parts: Iterable[Mapping[str, torch.Tensor | float]]) -> dict[str, float]:
    """The metrics of a batch from those of its micro-batches, which are shares of the whole: their sum."""
    total: dict[str, float] = {}
    for metrics in parts:
        for name, value in metrics.items():
            total[name] = total.get(name, 0.0) + float(value)
    return total
