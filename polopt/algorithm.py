"""An algorithm as a composition of parts: sampling, reward, credit, selection, objective."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.credit import Credit, RelativeAdvantage
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.names import nearest
from polopt.networks import LearnedNetwork, Relabel, Trunk
from polopt.objectives import Objective, Surrogate
from polopt.outputs import POLICY, PROPOSAL, NetworkOutput, output_of
from polopt.part import Part
from polopt.rewards import OutcomeReward, Reward
from polopt.sampling import Rollouts, Sampling, Select, select_rows
from polopt.schedules import Schedule, now
from polopt.teachers import TeacherSpec
from polopt.updates import AdamW, UpdateRule
from polopt.values import check_values


class Algorithm(Part):
    """sampling -> reward -> credit -> select -> objective -> update.

    select: filters, in order, of the rows, and of their decisions, to learn from, given the advantages. A
    decision that is left out stays context.
    reference_tau: the reference policy's step towards the policy after each batch, 0 to 1, a number or a
    schedule: 0 keeps the initial one, 1 copies the policy, in between its weights average the policy's past. teacher:
    evaluated on the policy's decisions once their outcome is known, for parts that read its outputs. networks: trained
    beside the policy, each by a step on its own loss in every minibatch, in this order, before the policy's step.
    trunk: the policy's architecture, where the method is one of it; None for perceptrons.
    relabel: columns that networks give a minibatch before they learn from it, as a reward.
    policy_every: minibatches between steps of the policy. policy_target_tau: the step of the policy's target copy
    towards it, where 1 copies; None if it has none. policy_target_every: steps of the policy between those of the copy.
    update: how the gradient of the loss becomes a step of the policy.
    minibatch: decisions in a minibatch, so that larger batches have more of them; None leaves their number to the
    stage.

    `algorithm.but(credit=..., **{"objective.trust.high": 0.28})` is a changed copy, and
    `polopt.part_diff.diff(a, b)` lists the differences.
    """

    method_kind: ClassVar[str | None] = "algorithm"

    sampling: Sampling = Rollouts()
    reward: Reward = OutcomeReward()
    credit: Credit = RelativeAdvantage()
    select: Sequence[Select] = ()
    objective: Objective = Surrogate()
    reference_tau: float | Schedule = 0.0
    teacher: TeacherSpec | None = None
    networks: Sequence[LearnedNetwork] = ()
    trunk: Trunk | None = None
    relabel: Sequence[Relabel] = ()
    policy_every: int = 1
    policy_target_tau: float | None = None
    policy_target_every: int = 1
    update: UpdateRule = AdamW()
    minibatch: int | None = None

    def setup(self) -> None:
        tau = 1 if self.policy_target_tau is None else self.policy_target_tau
        if min(self.policy_every, self.policy_target_every) < 1 or not 0 < tau <= 1:
            raise ValueError(
                "Algorithm: policy_every and policy_target_every must be >= 1 and policy_target_tau in (0, 1], found "
                f"{self.policy_every}, {self.policy_target_every} and {self.policy_target_tau}"
            )
        if self.minibatch is not None and self.minibatch < 1:
            raise ValueError(f"Algorithm: minibatch must be >= 1, found {self.minibatch}")
        if isinstance(self.reference_tau, float) and not 0 <= self.reference_tau <= 1:
            raise ValueError(f"Algorithm: reference_tau must be in [0, 1], found {self.reference_tau}")
        self.update.check(self.objective)
        unknown = {"rollout_logp", "entropy"} & (self.reward.required_fields | self.credit.required_fields)
        if self._judges_demonstrations and unknown:
            raise ValueError(
                f"Algorithm: {self.credit!r} judges demonstrated rows, which no policy sampled, and reward or credit "
                f"read {' and '.join(sorted(unknown))} of the sampler; leave one of the two out"
            )

    def check_networks(self) -> None:
        """Checks that every output that a part reads is that of a network, or target copy, that there is.

        Raises:
            ValueError: naming the network, or its setting.
        """
        networks = {network.name: network for network in self.networks}
        if len(networks) < len(self.networks):
            raise ValueError(f"Algorithm: two networks have one name: {[network.name for network in self.networks]}")
        stepping = [n for s in networks.values() if s.objective is not None for n in (s.name, *s.together_with)]
        if sorted(stepping) != sorted(networks):
            raise ValueError(
                "Algorithm: every network needs one loss, its own objective or that of a network whose together_with "
                f"names it; the losses are of {sorted(stepping)}, the networks {sorted(networks)}"
            )
        for name in sorted(self.required_outputs):
            output = output_of(name)
            if output is None:
                continue
            if output.network not in networks.keys() | PROPOSAL | {POLICY}:
                raise ValueError(
                    f"Algorithm: a part reads the network {output.network!r}, and networks has "
                    f"{sorted(networks) or 'none'}{nearest(output.network, networks)}"
                )
            own = output.network == POLICY
            if output.target and not own and networks[output.network].target_tau is None:
                raise ValueError(
                    f"Algorithm: a part reads the target copy of the network {output.network!r}; set its target_tau"
                )
            of_copy = (own and output.target) or (output.proposal is not None and output.proposal.target)
            if of_copy and self.policy_target_tau is None:
                raise ValueError("Algorithm: a part reads the policy's target copy; set policy_target_tau")
            if output.proposal is not None and output.proposal.sequence:
                _check_imagined(output, networks)

    def minibatches(self, decisions: int, otherwise: int = 1) -> int:
        """Returns the number of minibatches of so many decisions, whose size is nearest to `minibatch`."""
        return otherwise if self.minibatch is None else max(1, round(decisions / self.minibatch))

    @property
    def _judges_demonstrations(self) -> bool:
        return any(part.judges_demonstrations for part in self.credit.parts() if isinstance(part, Credit))

    def compute_advantages(self, experience: Experience) -> Experience:
        """Computes the advantages of a batch: its rows are filtered by the sampling part's filters, then credited, then
        selected. Rows may be left out.

        A batch that this algorithm's own sampling part made is filtered already (`Experience.sampled_by`). In any other
        the outcome of each row is `outcome`, or the row's `reward` where there is none.

        Raises:
            ExperienceError: the sampling part does more than filters can reproduce; `reward` is [B, T] and the
                algorithm's reward part does not read it; as `with_advantages`.
        """
        if not self.sampling.made(experience):
            experience = self._with_outcome(experience)
            self._check_reward(experience)
            check_values(experience, by="Algorithm.compute_advantages")  # before filters, to which NaN is a low outcome
            experience = self.sampling.filtered(experience)
        return self.filtered(self.with_advantages(experience))

    def _with_outcome(self, experience: Experience) -> Experience:
        if experience.outcome is not None or experience.reward is None:
            return experience
        return experience.replace(outcome=experience.returns())

    def _check_reward(self, experience: Experience) -> None:
        if experience.reward is None or experience.reward.ndim == 1 or "reward" in self.reward.required_fields:
            return
        raise ExperienceError(
            f"Algorithm.compute_advantages: experience.reward has a reward for each decision, "
            f"{list(experience.reward.shape)}, and {self.reward!r} would put the outcome of the row in "
            "its place; compute it from these rewards with algorithm.but(reward=po.rewards.EnvironmentReward()), or "
            f"give one reward for each row, [{len(experience)}]"
        )

    def with_advantages(self, experience: Experience) -> Experience:
        """Returns the batch with its shaped `reward` and its `advantage`, computed on the whole of it; no row is left
        out but those of opponents (`Experience.is_opponent`), which only the reward sees.

        Reward and credit see no demonstrated rows, unless `judges_demonstrations` is set. Otherwise their reward is
        their outcome, and each of their decisions has advantage 1, which makes the loss a likelihood.

        Raises:
            ExperienceError: a field that a part reads is missing, or holds values that cannot be learned from
                (`values.check_values`).
        """
        experience = self._with_outcome(experience)
        check_values(experience, by="Algorithm.with_advantages")
        demonstrated = experience.is_demonstration
        if not demonstrated.any() or self._judges_demonstrations:
            return self._credited(experience)
        others = self._imitated(experience[demonstrated])
        if demonstrated.all():
            return others
        own = self._credited(experience[~demonstrated], (~demonstrated).nonzero().flatten())
        learned = ~demonstrated & ~experience.is_opponent
        reward = others.outcome if own.reward.ndim == 1 else ops.per_decision_reward(others.outcome, others.mask)
        joined = Experience.join([own, others.replace(reward=reward).with_missing_fields_of(own)])
        return joined[torch.cat([learned.nonzero(), demonstrated.nonzero()]).flatten().argsort()]

    def _credited(self, experience: Experience, rows: Tensor | None = None) -> Experience:
        """Computes reward and credit. rows: [B] the rows' numbers in messages, as in `check_values`."""
        with torch.no_grad():
            experience = self.reward.rewarded(experience)
            check_values(experience, by=self.reward, rows=rows)
            if (opponents := experience.is_opponent).any():
                experience = experience[~opponents]
            return self.credit.credited(experience)

    def _imitated(self, others: Experience) -> Experience:
        """Sets the reward of demonstrated rows to their outcome, which is a critic's target, too."""
        changes: dict[str, Any] = {"reward": others.outcome, "advantage": others.mask.to(others.precision)}
        if others.value is not None:
            with torch.no_grad():
                target = self.credit.value_target(others.replace(reward=others.outcome))
            changes |= {} if target is None else {"value_target": target}
        return others.replace(**changes)

    def filtered(self, experience: Experience) -> Experience:
        """Selects the rows and decisions to learn from, of a batch with advantages. Parts decide on demonstrations,
        too.
        """
        with torch.no_grad():
            return select_rows(self.select, experience)

    @torch.no_grad()
    def update_reference(self, reference: Iterable[torch.Tensor], policy: Iterable[torch.Tensor]) -> None:
        """Moves the reference's parameters towards the policy's by the current `reference_tau`."""
        if (share := now(self.reference_tau)) > 0:
            for target, source in zip(reference, policy, strict=True):
                target.lerp_(source, share)  # with 1 it is a copy, bit for bit


def _check_imagined(output: NetworkOutput, networks: Mapping[str, LearnedNetwork]) -> None:
    """Raises ValueError if an output is read at states that no model gives, or that do not have all that it reads."""
    assert output.proposal is not None
    model = networks.get(output.proposal.model)
    if model is None or {*model.network.inputs} != {"observation", "action"}:
        raise ValueError(
            f"Algorithm: a part reads outputs at states of the model {output.proposal.model!r}, which must be one of "
            f"networks that reads observation and action; networks has {sorted(networks) or 'none'}"
        )
    read = networks[output.network].network.inputs if output.network in networks else ()
    if further := {*read} - {"observation", "action"}:
        raise ValueError(
            f"Algorithm: the network {output.network!r} is read at states of a model, and reads {sorted(further)}, "
            "which a model does not give; leave it out"
        )
