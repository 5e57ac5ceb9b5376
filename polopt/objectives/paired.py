"""Preference losses: the rows of a group are compared two by two, by the reward that the policy implies for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import ExperienceError, policy_field
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.anchor import anchor_logp, check_anchor
from polopt.objectives.parts import Aggregate, Objective, Regulariser
from polopt.objectives.surrogate import regularised
from polopt.part import Part
from polopt.support import SupportError

Decisions = Literal["sum", "mean"]


class ImplicitReward(Part):
    """`implicit(experience, evaluation) -> [B]` reward of each row that the policy implies, with gradient."""

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        raise NotImplementedError


def _over_decisions(x: Tensor, mask: Tensor, decisions: Decisions) -> Tensor:
    """Sum or mean over each row's decisions, [B]; 0 for a row without decisions."""
    total = torch.where(mask, x, 0).sum(1)
    return total if decisions == "sum" else total / mask.sum(1).clamp(min=1)


def _check_scale(part: Part, scale: float) -> None:
    if scale <= 0:
        raise ValueError(f"objectives.{type(part).__name__}: scale must be > 0, found {scale}")


class LogRatioReward(ImplicitReward):
    """r_i = scale sum_t (logp_t - ref_logp_t), which is, up to a constant of each prompt, the reward whose
    KL-regularised optimum with strength `scale` the policy is.

    scale (> 0): beta. decisions: "sum" adds up a row's decisions, "mean" takes their mean, as TRL's IPO does. anchor:
    the policy in the reference's place: reference, previous, or the name of another one, read as `extras.<name>_logp`.
    Source: DPO, arXiv:2305.18290.
    """

    scale: float = 0.1
    decisions: Decisions = "sum"
    anchor: str = "reference"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.anchor)})

    def setup(self) -> None:
        _check_scale(self, self.scale)
        check_anchor(self, self.anchor)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        base = anchor_logp(experience, self.anchor)
        return self.scale * _over_decisions(evaluation.logp - base, experience.mask, self.decisions)


class LogProbReward(ImplicitReward):
    """r_i = scale mean_t logp_t, without a reference.

    scale (> 0): beta. decisions: "mean" normalises by length, as SimPO; "sum" does not. Source: SimPO,
    arXiv:2405.14734.
    """

    scale: float = 2.0
    decisions: Decisions = "mean"

    def setup(self) -> None:
        _check_scale(self, self.scale)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        return self.scale * _over_decisions(evaluation.logp, experience.mask, self.decisions)


class LogOddsReward(ImplicitReward):
    """r_i = log(p_i / (1 - p_i)), p_i = exp(mean_t logp_t): the log odds of an answer's geometric mean probability.

    Of an answer that is certain to rounding the odds are those of 1 - eps. Source: ORPO, arXiv:2403.07691.
    """

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        mean = _over_decisions(evaluation.logp, experience.mask, "mean")
        # A row without decisions is in no pair; its odds must be finite all the same.
        mean = torch.where(experience.mask.any(1), mean, -1.0).clamp(max=-torch.finfo(mean.dtype).eps)
        return mean - ops.log1mexp(mean)


class PairLink(Part):
    """`link(margin) -> [pairs]`: loss of each pair, with margin the implicit reward of the preferred row minus that
    of the other."""

    def forward(self, margin: Tensor) -> Tensor:
        raise NotImplementedError


class LogisticLink(PairLink):
    """-(1 - e) log sigmoid(z) - e log sigmoid(-z), z = margin - shift: the likelihood of preferences under
    Bradley-Terry.

    label_smoothing: e in [0, 0.5], the assumed rate of wrong labels (conservative DPO). shift: the target
    margin of the preferred row, SimPO's gamma. Source: DPO, arXiv:2305.18290; SimPO, arXiv:2405.14734.
    """

    label_smoothing: float = 0.0
    shift: float = 0.0

    def setup(self) -> None:
        if not 0 <= self.label_smoothing <= 0.5:
            raise ValueError(
                f"objectives.LogisticLink: label_smoothing must be in [0, 0.5], found {self.label_smoothing}"
            )

    def forward(self, margin: Tensor) -> Tensor:
        z = margin - self.shift
        return -(1 - self.label_smoothing) * F.logsigmoid(z) - self.label_smoothing * F.logsigmoid(-z)


class SquaredLink(PairLink):
    """(margin - target)^2, with zero gradient once the preferred row is ahead by `target`. Scale 1 and target
    1 / (2 tau) give IPO, arXiv:2310.12036."""

    target: float

    def forward(self, margin: Tensor) -> Tensor:
        return (margin - self.target).square()


class HingeLink(PairLink):
    """max(0, threshold - margin). Source: SLiC-HF, arXiv:2305.10425; RSO, arXiv:2309.06657."""

    threshold: float = 1.0

    def forward(self, margin: Tensor) -> Tensor:
        return F.relu(self.threshold - margin)


class PairedObjective(Objective):
    """mean over pairs of link(r_i - r_j) + sum coefficient * aggregate(regulariser), r the implicit reward.

    Every two rows of one group whose outcomes differ are a pair, and row i of it, of the higher outcome, is preferred:
    two rows are one pair, a ranked list of n rows n (n - 1) / 2. Tied rows, rows without decisions and rows alone in
    their group are in none. Every pair of the optimiser batch counts the same; a batch without pairs has loss 0.

    aggregate: the reducer of the regularisers. Metrics are means over pairs: `pairs/accuracy`, the fraction whose
    implicit reward is higher for the preferred row; `pairs/margin`; `pairs/chosen` and `pairs/rejected`, the implicit
    rewards.

    Raises:
        ExperienceError: a micro-batch holds a part of a group.
        SupportError: batch and evaluation hold log-probabilities over different supports.
    """

    implicit: ImplicitReward = LogRatioReward()
    link: PairLink = LogisticLink()
    regularise: Sequence[Regulariser] = ()
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"outcome", "group"})
    binds = "group"

    def contributes(self, experience: Experience) -> Tensor:
        """Returns the rows that contribute: without regularisers, those in a pair."""
        return experience.mask.any(1) if len(self.regularise) else partners(experience) > 0

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        if evaluation.support != experience.support:
            raise SupportError(
                f"objectives.PairedObjective: the batch's log-probs were taken over {experience.support}, the policy's "
                f"over {evaluation.support}; evaluate the policy with the batch's support"
            )
        self._check_groups(experience)
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        reward = self.implicit(experience, evaluation)
        preferred, other = pairs(experience)
        margin = reward[preferred] - reward[other]
        count = (partners(experience.denominator_batch).sum() / 2).to(reward).clamp(min=1)
        loss = self.link(margin).sum() / count
        with torch.no_grad():
            found = {
                "pairs/accuracy": (margin > 0).to(reward),
                "pairs/margin": margin,
                "pairs/chosen": reward[preferred],
                "pairs/rejected": reward[other],
            }
            metrics = {name: value.detach().sum() / count for name, value in found.items()}
        added, more = regularised(self.regularise, self.aggregate, experience, evaluation)
        return Loss(loss + added, metrics | more)

    def _check_groups(self, experience: Experience) -> None:
        there, expected = partners(experience), experience.local_rows(partners(experience.full_batch))
        if not torch.equal(there, expected.to(there)):
            raise ExperienceError(
                "objectives.PairedObjective compares the rows of a group, and this micro-batch of "
                f"{len(experience)} rows holds a part of one; split the batch with "
                "experience.split(rows, binds=objective.binding)"
            )


def partners(experience: Experience) -> Tensor:
    """Counts each row's pairs, [B]: rows of its group with decisions and another outcome; 0 without decisions."""
    decided, group, outcome = experience.mask.any(1), experience.group, experience.outcome
    others = ops.group_sum(decided.double(), group) - ops.group_sum(decided.double(), ops.crossed(group, outcome))
    return torch.where(decided, others, 0)


def pairs(experience: Experience) -> tuple[Tensor, Tensor]:
    """Returns the pairs [P] as indices of the preferred row and of the other one."""
    decided, group, outcome = experience.mask.any(1), experience.group, experience.outcome
    index, _ = ops.group_index(group)
    found = [index.new_zeros(0, 2)]
    for rows in index.argsort(stable=True).split(index.bincount().tolist()):
        better = outcome[rows, None] > outcome[None, rows]
        found.append(rows[(better & decided[rows, None] & decided[None, rows]).nonzero()])
    both = torch.cat(found)
    return both[:, 0], both[:, 1]
