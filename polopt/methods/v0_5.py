"""V0.5: a baseline that combines a predicted success rate with the mean of few rollouts."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.credit.parts import Baseline
from polopt.experience import Experience
from polopt.features.base import Grouping, RowFeature
from polopt.features.groupings import SamePrompt
from polopt.features.rows import RowField
from polopt.fields import ExperienceError
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import InContext
from polopt.sampling.parts import RolloutAllocator, RolloutFn
from polopt.sampling.predicted import UsesPredictor, noted
from polopt.sampling.predictor import Predictor
from polopt.sampling.source_protocols import PromptSource


@method(
    paper=Paper(
        title="V_0.5: Generalist Value Model as a Prior for Sparse RL Rollouts",
        authors="Zhang, Yi-Kai and others",
        year=2026,
        arxiv="2603.10848",
    ),
    changes="GRPO on few rollouts: the baseline is a predicted success rate until they speak against it, and then more "
    "are bought.",
    room="credit",
    tier="reading",
)
def v0_5(
    *, group: int = 4, most: int = 16, cost: float = 0.0039, model: str | None = None, others: bool = False
) -> Algorithm:
    """With v the predicted value of a prompt and m the mean of k rollouts, both in [-1, 1],

        D = max(0, (m - v)^2 - 1/k),   w = D / (D + 1/k),   A_i = R_i - (w m + (1 - w) v)

    and one more rollout of the prompt is bought while D/(kD + 1) - D/((k + 1)D + 1) > cost, from `group` up to `most`.
    w = 1 is GRPO without its std, w = 0 a baseline by prediction alone. A group whose rewards are all equal still
    has a gradient, in proportion to the prediction's error.

    v comes from `sampling.InContext`, which stands for the paper's pre-trained V0: `model` names a folder with one that
    `sampling.fit` trained; None starts from a predictor that uses only this policy's recent scores. Outcomes are 0
    and 1 here, and 1/k becomes 1/4k. Whether the paper divides A by a std is not known to us: we do not, since an equal
    group has none. others: w and m leave row i out, which takes the bias of order 1/k from the gradient; the paper does
    not. The number of rows of a batch varies, `group` a prompt at least: it is the paper's k_init, 4, and a stage's
    `group:` in a recipe sets it, so that the usual 8 there begins with twice the paper's rollouts.
    """
    return grpo(group=group, kl=0.0).but(
        credit=RelativeAdvantage(baseline=ShrunkMean(prior=RowField(name="predicted"), others=others), scale=None),
        **{"sampling.budget": SequentialAllocator(predictor=InContext(model=model), most=most, cost=cost)},
    )


def trust_in_mean(mean: Tensor, prior: Tensor, variance: Tensor) -> Tensor:
    """Estimates the weight w of least error in w mean + (1 - w) prior, for a mean of this variance.

    w = D / (D + variance),   D = max(0, (mean - prior)^2 - variance)   (`ops.prior_error`)
    """
    error = ops.prior_error(mean, prior, variance)
    return torch.where(error > 0, error / (error + variance), 0)


class ShrunkMean(Baseline):
    """w mean + (1 - w) prior, with `mean` of the n returns of the row's group and w from `trust_in_mean`: the prior as
    long as the rollouts are consistent with it.

    prior: a success rate in [0, 1] for each row, known before its rollouts; rows of a group agree. low, high: the least
    and the greatest possible return, (0, 1) or (-1, 1); the prior is low + rate (high - low), and
    (high - low)^2 / 4n bounds the variance of the mean. weight: w itself, None estimates it; 1 is `GroupMean`, 0 the
    prior. others: mean and w are those of the *other* rows of the group, so that the baseline does not depend on the
    row and adds no bias; a group of one has the prior. within: the grouping.

    Source: V0.5, arXiv:2603.10848.

    Raises:
        ExperienceError: a return outside [low, high], or a prior outside [0, 1].
    """

    prior: RowFeature
    low: float = 0.0
    high: float = 1.0
    weight: float | None = None
    others: bool = False
    within: Grouping = SamePrompt()

    def setup(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"methods.v0_5.ShrunkMean: need low < high, found {self.low} and {self.high}")
        if self.weight is not None and not 0 <= self.weight <= 1:
            raise ValueError(f"methods.v0_5.ShrunkMean: weight must be in [0, 1], found {self.weight}")

    def forward(self, experience: Experience, returns: Tensor) -> Tensor:
        rate = self.prior(experience).to(returns.dtype)
        self._check(rate, "a prior success rate", 0, 1)
        self._check(returns, "returns", self.low, self.high)
        group, size = self.within(experience), self.high - self.low
        count = ops.group_size(group)
        if self.others:
            mean, count = ops.leave_one_out_mean(returns, group), count - 1
        else:
            mean = ops.group_mean(returns, group)
        prior = self.low + size * rate
        weight = self.weight
        if weight is None:
            trust = trust_in_mean(mean, prior, size**2 / (4 * count.clamp(min=1).to(returns.dtype)))
        else:
            trust = torch.full_like(returns, weight)
        fused = trust * mean + (1 - trust) * prior
        return torch.where(count > 0, fused, prior)

    @staticmethod
    def _check(x: Tensor, what: str, low: float, high: float) -> None:
        if len(x) and not ((x >= low) & (x <= high)).all():
            raise ExperienceError(
                f"methods.v0_5.ShrunkMean needs {what} in [{low:g}, {high:g}] for every row, found "
                f"{float(x.min()):g} to "
                f"{float(x.max()):g}; set low and high to the least and the greatest possible return, and give a rate "
                "as the prior"
            )


class SequentialAllocator(UsesPredictor, RolloutAllocator):
    """Samples `group` rollouts of every task, then one more at a time of tasks for which it lowers the error enough, up
    to `most`.

    With outcomes scaled to [-1, 1], fusing k rollouts of mean m with a prior v leaves the error

        MSE(k) = D / (k D + 1),   D = max(0, (m - v)^2 - 1 / k),

    and one more rollout is sampled while MSE(k) - MSE(k + 1) > cost. If the mean agrees with the prior, D is 0 and no
    rollout is added; if it clearly disagrees, the decrease tends to 1 / (k (k + 1)): with the default cost up to 16
    rollouts. The additional rollouts make the batch larger than the loop's.

    Source: V0.5, arXiv:2603.10848.
    """

    predictor: Predictor = InContext()
    context: int = 256
    low: float = 0.0
    high: float = 1.0
    most: int = 16
    cost: float = 0.0039

    def setup(self) -> None:
        super().setup()
        if self.most < 1 or self.cost < 0:
            raise ValueError(
                f"methods.v0_5.SequentialAllocator: need most >= 1 and cost >= 0, found {self.most} and {self.cost}"
            )

    def forward(self, source: PromptSource, tasks: Tensor, group: int, rollout: RolloutFn) -> Experience:
        rate = self.predict(source, tasks)
        batch = rollout(torch.full_like(tasks, group))
        while (going := self.goes_on(batch, rate)).any():
            batch = Experience.join([batch, rollout(going.to(tasks))])
        return noted(batch, rate)

    def goes_on(self, batch: Experience, rate: Tensor) -> Tensor:
        """Returns the mask [M] of tasks that get one more rollout."""
        group, none = batch.group.to(rate.device), torch.zeros_like(rate)
        count = none.index_add(0, group, torch.ones_like(group, dtype=rate.dtype))
        won = none.index_add(0, group, self.scores(batch).to(rate.device))
        mean = 2 * won / count.clamp(min=1) - 1
        gain = marginal_gain(ops.prior_error(mean, 2 * rate - 1, 1 / count.clamp(min=1)), count)
        return (gain > self.cost) & (count > 0) & (count < self.most)


def marginal_gain(error: Tensor, count: Tensor) -> Tensor:
    """MSE(k) - MSE(k + 1) of a mean of k values of variance 1, fused with a prior of squared error D: D / (k D + 1) -
    D / ((k + 1) D + 1)."""
    return error**2 / ((count * error + 1) * ((count + 1) * error + 1))
