"""The surrogate objective: ratio x trust x weights x aggregate + regularisers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.fields import check_shape
from polopt.objectives.aggregates import TokenMean
from polopt.objectives.parts import Aggregate, Objective, Ratio, Regulariser, SurrogateTerm, Weight, unused
from polopt.objectives.ratios import TokenRatio
from polopt.objectives.surrogate_terms import Clip
from polopt.schedules import now
from polopt.support import SupportError


class Surrogate(Objective):
    """aggregate( trust(ratio, A) * prod weights ) + sum coefficient * aggregate(regulariser).

    ratio: importance ratio; None stands for exp(logp - sg(logp)): 1, with the gradient of the score.
    trust: the per-decision term. weights: factors without gradient; a decision of weight 0 counts as clipped.
    aggregate: the reducer, shared by the regularisers. Positions outside the mask contribute neither value nor
    gradient, whatever they hold.

    Raises:
        ExperienceError: the advantage, or a field that a part declares, is missing or mis-shaped.
        SupportError: batch and evaluation hold log-probabilities over different supports.
    """

    binds = "decision"

    ratio: Ratio | None = TokenRatio()
    trust: SurrogateTerm = Clip()
    weights: Sequence[Weight] = ()
    aggregate: Aggregate = TokenMean()
    regularise: Sequence[Regulariser] = ()

    reads = frozenset({"advantage"})

    def contributes(self, experience: Experience) -> Tensor:
        """Returns the rows that contribute: without regularisers, and if the trust region's terms are 0 at advantage 0,
        those of non-zero advantage."""
        if len(self.regularise) or not self.trust.zero_at_zero_advantage:
            return experience.mask.any(1)
        return (experience.mask & (experience.advantage != 0)).any(1)

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        if evaluation.support != experience.support:
            raise SupportError(
                f"objectives.Surrogate: behaviour log-probs were taken over {experience.support}, the policy's over "
                f"{evaluation.support}: their ratio would be a bias; evaluate the policy with the batch's support"
            )
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        log_ratio = (
            self.ratio(experience, evaluation) if self.ratio is not None else evaluation.logp - evaluation.logp.detach()
        )
        check_shape(log_ratio, experience.mask, self.ratio)
        terms, clipped = self.trust(log_ratio, experience, evaluation)
        check_shape(terms, experience.mask, self.trust)
        for weight in self.weights:
            factor = check_shape(weight(experience, evaluation), terms, weight).detach()
            terms, clipped = terms * factor, clipped.masked_fill(factor == 0, 1.0)
        loss = self.aggregate(experience, terms)
        with torch.no_grad():
            metrics = self._ratio_metrics(experience, log_ratio.detach(), clipped)
        added, found = regularised(self.regularise, self.aggregate, experience, evaluation)
        return Loss(loss + added, metrics | found)

    def _ratio_metrics(self, experience: Experience, log_ratio: Tensor, clipped: Tensor) -> dict[str, Tensor]:
        """Computes means over the whole batch's contributing decisions, so that those of micro-batches add up."""
        active = lambda e: e.mask & self.contributes(e)[:, None]  # noqa: E731
        decisions, mask = active(experience.full_batch).sum().clamp(min=1).to(log_ratio.device), active(experience)
        ratio = log_ratio.exp()
        share = lambda x: ops.masked_sum(x, mask) / decisions  # noqa: E731
        metrics = {"ratio/mean": share(ratio), "ratio/square": share(ratio.square()), "clip_fraction": share(clipped)}
        # A number of the whole batch, divided among its micro-batches.
        part = share(torch.ones_like(ratio))
        return metrics | {name: value.to(part) * part for name, value in self.trust.measured().items()}


class AuxiliaryLoss(Objective):
    """sum coefficient * aggregate(regulariser), without a policy term: for instance a critic's loss for decisions
    without a policy gradient."""

    binds = "decision"

    regularise: Sequence[Regulariser]
    aggregate: Aggregate = TokenMean()

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        return Loss(*regularised(self.regularise, self.aggregate, experience, evaluation))


def regularised(
    parts: Iterable[Regulariser], aggregate: Aggregate, experience: Experience, evaluation: Evaluation
) -> tuple[Tensor, dict[str, Tensor]]:
    """Computes the sum of the regularisers' losses, and each one's value before its coefficient."""
    total, metrics = evaluation.logp.new_zeros(()), dict[str, Tensor]()
    for regulariser in parts:
        terms = check_shape(regulariser(experience, evaluation), experience.mask, regulariser)
        value = aggregate(experience, terms)
        metrics[unused(type(regulariser).__name__, metrics)] = value.detach()
        total = total + now(regulariser.coefficient) * value
    return total, metrics
