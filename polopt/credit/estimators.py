"""Estimators of advantages from returns, rewards and values."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.anchor import anchor_logp, check_anchor
from polopt.credit.baselines import GroupMean
from polopt.credit.parts import Baseline, Credit, Scale
from polopt.credit.scales import GroupStd
from polopt.experience import Experience
from polopt.fields import ExperienceError, check_shape, policy_field


class RelativeAdvantage(Credit):
    """A_i = (R_i - baseline_i) / scale_i on every decision of row i.

    R: [B] outcome, or the sum of a row's per-decision rewards. baseline None is 0, scale None is 1.
    A row that equals its baseline has advantage 0, whatever its scale.
    """

    baseline: Baseline | None = GroupMean()
    scale: Scale | None = GroupStd()

    reads = frozenset({"reward"})

    def forward(self, experience: Experience) -> Tensor:
        returns = experience.returns().detach()
        advantage = returns
        if self.baseline is not None:
            advantage = advantage - check_shape(self.baseline(experience, returns), returns, self.baseline)
        if self.scale is not None:
            scale = check_shape(self.scale(experience, returns), returns, self.scale)
            advantage = torch.where(advantage == 0, 0, advantage / scale)
        return torch.where(experience.mask, advantage[:, None], 0)


class ReferencePoint(Credit):
    """z = max(0, mean over the rows i that `extras.mismatched` marks of scale sum_t (old_logp - ref_logp)): an estimate
    of scale KL(pi || reference) from answers that belong to other prompts. It is written to `extras.reference_point` of
    every row, and the advantage is 0.

    scale (> 0): beta of the objective's implicit reward. anchor: the policy in the reference's place, as
    `objectives.LogRatioReward`'s. z is of the policy before the batch's updates. Source: KTO, arXiv:2402.01306.

    Raises:
        ExperienceError: no row is marked.
    """

    scale: float = 0.1
    anchor: str = "reference"

    writes = frozenset({"extras.reference_point"})

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"extras.mismatched", "old_logp", policy_field(self.anchor)})

    def setup(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"credit.ReferencePoint: scale must be > 0, found {self.scale}")
        check_anchor(self, self.anchor)

    def rows_read(self, field: str, experience: Experience) -> Tensor | None:
        return experience.extras["mismatched"] if field == "old_logp" else None

    def forward(self, experience: Experience) -> Tensor:
        return torch.zeros_like(experience.mask, dtype=experience.precision)

    def credited(self, experience: Experience) -> Experience:
        point = self._point(experience).expand(len(experience))
        return super().credited(experience).replace(extras={"reference_point": point})

    def _point(self, experience: Experience) -> Tensor:
        marked = experience.extras["mismatched"] & experience.mask.any(1)
        if not marked.any():
            raise ExperienceError(
                "credit.ReferencePoint needs answers that belong to other prompts, and extras['mismatched'] marks none "
                f"of the {len(experience)} rows; sample with sampling.RatedAnswers(mismatched=True)"
            )
        ratio = experience.old_logp - anchor_logp(experience, self.anchor)
        return self.scale * torch.where(experience.mask, ratio, 0).sum(1)[marked].mean().clamp(min=0)


class ConstantAdvantage(Credit):
    """A constant advantage on every decision: with 1, the policy gradient is the gradient of the log-likelihood."""

    value: float = 1.0

    def forward(self, experience: Experience) -> Tensor:
        return experience.mask.to(experience.precision) * self.value


class RewardToGo(Credit):
    """A_t = sum_{u >= t} gamma^(u - t) r_u over the row's decisions. An outcome [B] counts as the last reward.

    unit: what t counts. Of "turn", r_u is the sum of a turn's rewards, and all its decisions have the turn's A.

    Where `terminated` or `truncated` is [B, T], sums stop at the end of each episode inside the row, of decisions.
    """

    gamma: float = 1.0
    unit: Literal["token", "turn"] = "token"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"reward", "turn"} if self.unit == "turn" else {"reward"})

    def setup(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"credit.RewardToGo: gamma must be in [0, 1], found {self.gamma}")

    def forward(self, experience: Experience) -> Tensor:
        if self.unit == "token":
            return self.to_go(experience, self.gamma)
        mask, turn = experience.mask, experience.turn
        reward = ops.per_decision_reward(experience.reward.detach(), mask)
        number, _, _ = ops.turns(turn, mask)
        to_go = ops.turn_to_go(reward, turn, mask, self.gamma)
        return torch.where(mask, to_go[number], 0) if len(to_go) else torch.zeros_like(reward)

    @staticmethod
    def to_go(experience: Experience, gamma: float) -> Tensor:
        ended = torch.zeros_like(experience.mask)
        for flag in (experience.terminated, experience.truncated):
            if flag is not None and flag.ndim == 2:
                ended = ended | flag
        rewards = ops.per_decision_reward(experience.reward.detach(), experience.mask)
        return ops.discounted_to_go(rewards, experience.mask, gamma, ended)


class GAE(Credit):
    """Generalised advantage estimation, arXiv:1506.02438; see `ops.gae`.

    A terminated row ends with value 0. A row that was truncated, or that is a fragment of an episode, bootstraps
    from `final_value`: a time limit is not the end of the episode. lam 1 is the discounted return
    minus V, lam 0 the one-step temporal difference. A critic's target is the lambda-return A + V.

    cut "zero" makes an exception: a truncated episode has value 0 from there on, as if it had terminated. It is for
    limits that are part of the task and in the policy's control, such as a language model's token limit, where
    bootstrapping from `final_value` would reward endless answers.

    open "last" makes another one, for rows that are neither terminated nor truncated because they continue in a
    later batch: they end with the value before their last decision, as if that one had changed nothing. Its own
    advantage is then (gamma - 1) V + r, with gamma 1 and no reward exactly 0, and that of the others comes from the
    decisions after them. "cut" treats them as truncated. Source: extended GAE in T-PPO, arXiv:2506.15050.

    Raises:
        ExperienceError: a row did not terminate and the batch has no `final_value`, or only one for its last
            decision although an episode was truncated before.
    """

    tags = frozenset({"update_rule=ppo"})

    gamma: float = 1.0
    lam: float = 0.95
    cut: Literal["bootstrap", "zero"] = "bootstrap"
    open: Literal["cut", "last"] = "cut"

    reads = frozenset({"reward", "value", "terminated"})
    writes = frozenset({"value_target"})

    def setup(self) -> None:
        if not 0 <= self.gamma <= 1 or not 0 <= self.lam <= 1:
            raise ValueError(f"credit.GAE: gamma and lam must be in [0, 1], found {self.gamma}, {self.lam}")

    def forward(self, experience: Experience) -> Tensor:
        mask, value = experience.mask, torch.where(experience.mask, experience.value.detach(), 0)
        terminated, truncated = _ends(experience)
        going = truncated & ~_flagged(experience) if self.open == "last" else torch.zeros_like(truncated)
        if self.cut == "zero":
            terminated, truncated = terminated | (truncated & ~going), going
        final, bootstrapped = experience.final_value, truncated & ~going
        if final is None:
            if bootstrapped.any():
                raise ExperienceError(
                    f"credit.GAE: {int(bootstrapped.any(1).sum())} of {len(mask)} rows did not terminate and need "
                    f"experience.final_value of shape {[len(mask)]}, found None; evaluate the critic after the "
                    "last decision"
                )
            final = torch.zeros_like(value)
        if final.ndim == 1:
            inside = bootstrapped & ~ops.last_decision(mask)
            if inside.any():
                raise ExperienceError(
                    f"credit.GAE: {int(inside.any(1).sum())} rows were cut off before their last decision and need "
                    f"experience.final_value of shape {list(mask.shape)}, found {list(final.shape)}"
                )
            final = final[:, None].expand_as(value)
        reward = ops.per_decision_reward(experience.reward.detach(), mask).to(value.dtype)
        final = torch.where(going, value, torch.where(bootstrapped, final.detach(), 0).to(value.dtype))
        return ops.gae(reward, value, final, terminated, truncated, mask, self.gamma, self.lam)

    def value_target(self, experience: Experience) -> Tensor:
        """Returns the lambda-return A + V."""
        value = torch.where(experience.mask, experience.value.detach(), 0)
        return self(experience) + value


def _flagged(experience: Experience) -> Tensor:
    """Returns the flag `truncated` as [B, T]; a flag of a whole row applies to all its decisions."""
    truncated = experience.truncated
    if truncated is None:
        return torch.zeros_like(experience.mask)
    return truncated if truncated.ndim == 2 else truncated[:, None].expand_as(experience.mask)


def _ends(experience: Experience) -> tuple[Tensor, Tensor]:
    """Returns where episodes terminate and where they are truncated, [B, T]; the last decision of a row is one of the
    two.
    """
    last = ops.last_decision(experience.mask)
    terminated = ops.per_decision_end(experience.terminated, experience.mask)
    truncated = experience.truncated
    cut = torch.zeros_like(last) if truncated is None or truncated.ndim == 1 else truncated
    return terminated, (cut | last) & experience.mask & ~terminated
