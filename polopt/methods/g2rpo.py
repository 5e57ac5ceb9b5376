"""G2RPO: ranks of returns mapped to normal quantiles, within each kind of task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit.parts import Credit
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SameKind, SamePrompt, single_row_groups
from polopt.method import Paper, method
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.objectives.parts import Regulariser
from polopt.rewards import OutcomeReward, Reward, SumOfRewards
from polopt.sampling import MixedGroups, Rollouts
from polopt.situation import Situation


@method(
    paper=Paper(
        title="OpenVLThinkerV2: A Generalist Multimodal Reasoning Model for Multi-domain Visual Tasks",
        authors="Hu, Wenbo and others",
        year=2026,
        arxiv="2604.08539",
    ),
    changes="GRPO with each return's rank as a normal quantile, in the prompt's group and then in the kind of task.",
    room="credit",
    tier="reading",
)
def g2rpo(
    *,
    group: int = 8,
    low: float = 0.2,
    high: float = 0.3,
    dual: float | None = 3.0,
    refills: int = 19,
    lengths: Sequence[Reward] = (),
    share: float = 0.1,
    bands: Sequence[EntropyBand] = (),
) -> Algorithm:
    """The advantage is the normal quantile of a return's rank among n,

        A_i = Phi^(-1)((rank_i - 1/2) / n)

    equal returns sharing the mean of their quantiles: the optimal transport of the returns to N(0, 1). The paper's
    equations rank within a kind of task. We rank within the prompt's group, then those scores within the kind,
    `extras["kind"]`, as the authors' code is reported to do; it could not be read. PPO's clip with a dual bound, token
    mean, no KL. Groups whose outcomes are all equal are sampled again, up to `refills` times.

    lengths: an `LengthEnvelope`, its least, low, high and most length, for each kind, `ConditionalReward` by
    `TaskKindIs`; together they make `share` of the reward and the outcome the rest. bands: an `EntropyBand` for each
    set of kinds. Both are off by default, as in the code's own configuration: the paper gives their form and no
    constants. The code's constants for the entropy are EntropyBand's defaults (0.2, 0.6 nats, coefficient 0.02); those
    of lengths are not in it, and `share` is a comment.
    """
    reward: Reward = OutcomeReward()
    if lengths:
        terms = [OutcomeReward(), *(length.but() for length in lengths)]
        reward = SumOfRewards(terms=terms, weights=[1 - share] + [share] * len(lengths))
    return Algorithm(
        sampling=Rollouts(group=group, select=[MixedGroups()], refills=refills),
        reward=reward,
        credit=NormalScores(within=[SamePrompt(), SameKind()]),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=Clip(low=low, high=high, dual=dual),
            aggregate=TokenMean(),
            regularise=[band.but() for band in bands],
        ),
    )


class NormalScores(Credit):
    """Each row's rank in its group as a quantile of N(0, 1): A_i = Phi^-1((rank_i - 1/2) / n); see `ops.normal_scores`.

    Equal returns share the mean of their quantiles. The scores are invariant under increasing transformations of the
    returns, and an outlier scores no more than the best of n. within: groupings in order; the scores within the first
    are ranked again within the second, and so on. A group of one, or all equal, scores 0 within the first; ranked
    again, its score may have either sign, if the other scores are not symmetric.

    Source: Gaussian GRPO, arXiv:2604.08539.
    """

    within: Sequence[Grouping] = (SamePrompt(),)

    reads = frozenset({"reward"})

    def setup(self) -> None:
        if not len(self.within):
            raise ValueError("methods.g2rpo.NormalScores: within needs at least one grouping, found none")

    def refusals(self, situation: Situation) -> Iterator[str]:
        yield from single_row_groups(self.within[0], situation)

    def forward(self, experience: Experience) -> Tensor:
        scores = experience.returns().detach()
        for grouping in self.within:
            scores = ops.normal_scores(scores, grouping(experience))
        return torch.where(experience.mask, scores[:, None], 0)


class EntropyBand(Regulariser):
    """coefficient * sum_k [ max(0, H_k - high) + max(0, low - H_k) ], H_k the mean entropy, in nats, over the decisions
    of the rows of kind k, `extras["kind"]`.

    The formula holds under `TokenMean`: the terms have a factor N / N_k for a kind with N_k of the batch's N decisions;
    under another reducer the kinds have other weights. Which side of the band a kind is on is a property of the whole
    optimiser batch under the current policy.

    of: "exact" takes the policy's entropy at each decision. "sampled" takes -logp of the decision, an estimate of
    it whose gradient is zero on average on the policy's own samples. kinds: the kinds it applies to; None for all.
    Source: task-level entropy shaping, arXiv:2604.08539, which takes "sampled".
    """

    low: float = 0.2
    high: float = 0.6
    coefficient: float = 0.02
    of: Literal["exact", "sampled"] = "sampled"
    kinds: tuple[str, ...] | None = None

    reads = frozenset({"extras.kind"})

    def setup(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"methods.g2rpo.EntropyBand: need 0 <= low <= high, found {self.low} and {self.high}")

    @property
    def full_batch_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"entropy" if self.of == "exact" else "logp"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        slope, bound = (experience.local_rows(x)[:, None] for x in self._sides(experience.full_batch))
        return slope * (self._entropy(evaluation) - bound)

    def _entropy(self, evaluation: Evaluation) -> Tensor:
        return evaluation.entropy if self.of == "exact" else -evaluation.logp

    def _sides(self, full_batch: Experience) -> tuple[Tensor, Tensor]:
        """Returns, for each row's kind, +1, 0 or -1 times N / N_k, [B], and the bound that its entropy exceeds, [B]."""
        seen = torch.where(full_batch.mask, self._entropy(full_batch.full_batch_evaluation), 0)
        kind = torch.tensor(ops.numbered(full_batch.extras["kind"]), dtype=torch.long, device=seen.device)
        decisions = ops.group_sum(full_batch.lengths.to(seen), kind)
        entropy = ops.group_sum(seen.sum(1), kind) / decisions.clamp(min=1)
        side = (entropy > self.high).to(seen) - (entropy < self.low).to(seen)
        if self.kinds is not None:
            side = side * torch.tensor([k in self.kinds for k in full_batch.extras["kind"]], device=seen.device)
        bound = self.low + (self.high - self.low) * (side > 0).to(seen)
        return side * full_batch.mask.sum() / decisions.clamp(min=1), bound
