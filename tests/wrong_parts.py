"""Parts with one deliberate mistake each. The battery must reject every one of them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from polopt import ops
from polopt.credit import Credit
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.objectives import Aggregate, Objective, Surrogate, SurrogateTerm, Weight
from polopt.rewards import Reward
from polopt.sampling import Select


class MicroBatchMean(Aggregate):
    """Divides by the micro-batch's own decisions: the mean of means."""

    def forward(self, experience: Experience, terms: Tensor) -> Tensor:
        return ops.masked_mean(terms, experience.mask)


class PaddedMean(Aggregate):
    """Divides by the width of the batch, padding included."""

    def weights(self, experience: Experience) -> Tensor:
        return experience.mask.double()

    def denominator(self, whole: Experience) -> Tensor:
        return torch.tensor(whole.mask.numel())


class UnguardedMean(Aggregate):
    """0 / 0 on a batch without decisions."""

    def forward(self, experience: Experience, terms: Tensor) -> Tensor:
        return ops.masked_sum(terms, experience.mask) / experience.full_batch.mask.sum()


class MicroBatchStd(Weight):
    """Scales by the standard deviation within the groups of the micro-batch."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        scale = ops.group_std(experience.outcome, experience.group) + 1
        return scale[:, None].expand_as(experience.mask).to(experience.rollout_logp.dtype)


class ByColumn(Weight):
    """Counts columns instead of decisions."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.arange(1.0, 1 + experience.mask.shape[1]).expand_as(experience.mask)


class ByRow(Weight):
    """Depends on where in the batch a row stands."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.arange(1.0, 1 + len(experience))[:, None].expand_as(experience.mask)


class Rounded(Weight):
    """Rounds more in float32 than float32 does."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        single = experience.rollout_logp.dtype == torch.float32
        return experience.rollout_logp.half().float() if single else experience.rollout_logp


class Leaky(Objective):
    """Multiplies by the mask, which keeps NaN."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        terms = -evaluation.logp * experience.advantage * experience.mask
        return Loss(terms.sum() / experience.full_batch.mask.sum().clamp(min=1), {})


class AverageMetric(Surrogate):
    """Metrics that are averages of the micro-batch do not add up."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        loss, _ = super().forward(experience, evaluation)
        return Loss(loss, {"logp": ops.masked_mean(evaluation.logp.detach(), experience.mask)})


class UndeclaredPairs(Objective):
    """Compares the rows of a group, and does not declare that it binds them."""

    reads = frozenset({"ref_logp", "outcome", "group"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        reward = torch.where(experience.mask, evaluation.logp - experience.ref_logp, 0).sum(1)
        preferred, other = self.pairs(experience)
        loss = -torch.nn.functional.logsigmoid(reward[preferred] - reward[other]).sum()
        return Loss(loss / max(1, len(self.pairs(experience.full_batch)[0])), {})

    def pairs(self, experience: Experience) -> tuple[Tensor, Tensor]:
        better = experience.outcome[:, None] > experience.outcome
        better &= experience.group[:, None] == experience.group
        preferred, other = better.nonzero(as_tuple=True)
        return preferred, other


class BatchPairs(UndeclaredPairs):
    """Binds groups, and compares rows across them."""

    binds = "group"

    def pairs(self, experience: Experience) -> tuple[Tensor, Tensor]:
        preferred, other = (experience.outcome[:, None] > experience.outcome).nonzero(as_tuple=True)
        return preferred, other


class Detached(SurrogateTerm):
    """Loses half of its gradient."""

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        advantage = experience.advantage
        return -advantage * (log_ratio.exp() + log_ratio.exp().detach()) / 2, torch.zeros_like(advantage)


class Unbounded(Objective):
    """exp of a difference without a limit overflows in float32."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        log_ratio = torch.where(experience.mask, evaluation.logp - experience.rollout_logp, 0)
        return Loss(log_ratio.exp().sum(), {})


class Contiguous(Credit):
    """Takes neighbouring rows for a group."""

    def forward(self, experience: Experience) -> Tensor:
        returns = experience.returns()
        return torch.where(experience.mask, (returns - returns.roll(1))[:, None], 0)


class GroupNumber(Credit):
    """Takes a group's number for a quantity."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.mask * experience.group[:, None] * 1.0


class PlainScore(Credit):
    """(R - mean) / std with neither an exact mean nor anything against 0 / 0."""

    eps: float = 0.0

    def forward(self, experience: Experience) -> Tensor:
        returns, group = experience.returns(), experience.group
        centred = returns - ops.group_sum(returns, group) / ops.group_size(group)
        size = ops.group_size(group)
        std = (ops.group_sum(centred**2, group) / (size - 1).clamp(min=1)).sqrt()
        return torch.where(experience.mask, (centred / (std + self.eps))[:, None], 0)


class HalfCredit(Credit):
    """Goes through half precision whenever it is not given float64."""

    def forward(self, experience: Experience) -> Tensor:
        reward = experience.returns()
        reward = reward if reward.dtype == torch.float64 else reward.half().float()
        return torch.where(experience.mask, reward[:, None], 0)


class OffMask(Credit):
    """Gives credit to padding."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.returns()[:, None].expand_as(experience.mask)


class WithGradient(Credit):
    """Lets the critic learn through the advantage."""

    def forward(self, experience: Experience) -> Tensor:
        return torch.where(experience.mask, experience.returns()[:, None] - experience.value, 0)


class Forgetful(Credit):
    """Keeps its state where state_dict does not see it."""

    def setup(self) -> None:
        self.calls = 0

    def forward(self, experience: Experience) -> Tensor:
        self.calls += 1
        return experience.mask * float(self.calls)


class Shared(Credit):
    """Keeps its state on the class, so copies are not apart."""

    calls: ClassVar[list[int]] = []

    def forward(self, experience: Experience) -> Tensor:
        self.calls.append(1)
        return experience.mask * float(len(self.calls))


class Restless(Credit):
    """Changes its own setting, so that YAML tells something else than was said."""

    value: float = 1.0

    def setup(self) -> None:
        self.value *= 2

    def forward(self, experience: Experience) -> Tensor:
        return experience.mask * self.value


class Misprinted(Reward):
    """Prints as something else."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome

    def __repr__(self) -> str:
        return "rewards.OutcomeReward(scale=3.0)"


class BatchShare(Reward):
    """A reward that depends on who else is in the batch."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome - experience.outcome.mean()


class FirstComes(Reward):
    """A reward that reads the batch, says so, and pays the one that comes first."""

    reads_batch = True

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome + (torch.arange(len(experience)) == 0)


class PerToken(Reward):
    """0 / 0 for a row without decisions."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.mask.sum(1) / experience.mask.sum(1)


class FilledShare(Reward):
    """Takes the width of the batch for the most that a row may hold."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.lengths / experience.mask.shape[1]


class Everywhere(Reward):
    """Sums over the padding, too."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.rollout_logp.sum(1)


class HalfReward(Reward):
    """Rounds differently in each precision."""

    def forward(self, experience: Experience) -> Tensor:
        return experience.outcome * (1 + 1e-3 * experience.rollout_logp.dtype.itemsize)


class FirstRows(Select):
    """Keeps what happens to come first."""

    def forward(self, experience: Experience) -> Experience:
        return experience[: len(experience) // 2]


class Shuffled(Select):
    """Keeps everything, in another order."""

    def forward(self, experience: Experience) -> Experience:
        return experience[torch.arange(len(experience)).flip(0)]


class LongRows(Select):
    """Takes the width of the batch for a length."""

    def forward(self, experience: Experience) -> Experience:
        return experience[experience.lengths > experience.mask.shape[1] // 2]


class HalfAgain(Select):
    """Keeps the better half of whatever it is given."""

    def forward(self, experience: Experience) -> Experience:
        order = experience.outcome.argsort(descending=True, stable=True)
        return experience[order[: len(order) // 2].sort().values]


class Unmasked(Select):
    """Looks at what stands where nobody decided."""

    def forward(self, experience: Experience) -> Experience:
        return experience[experience.entropy.sum(1) > 0]


class Invented(Select):
    """Has every row decide at its first column."""

    def forward(self, experience: Experience) -> Experience:
        mask = experience.mask.clone()
        mask[:, :1] = True
        return experience.replace(mask=mask)
