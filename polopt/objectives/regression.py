"""Regression of implicit rewards on the advantages of single rows."""

from __future__ import annotations

import torch

from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.objectives.implicit import ImplicitReward, LogRatioReward
from polopt.objectives.paired import compared_by
from polopt.objectives.parts import Objective
from polopt.support import SupportError


class RegressionObjective(Objective):
    """mean over rows of (r_i - scale A_i)^2, r_i the implicit reward and A_i the advantage of the row's first decision.

    Where r_i is the log-ratio to the sampler, the minimiser over enough rows is the sampler's law times
    exp(scale A) / Z as far as log Z is 0: a step of exponential weights. Rows without decisions count nothing.

    scale (> 0): the step size eta of those weights. Metrics are means over rows: `regression/error`, the square root
    of which is that of the fit in nats; `regression/implicit`; `regression/target`. Source: SPPO, arXiv:2405.00675.

    Raises:
        SupportError: batch and evaluation hold log-probabilities over different supports.
    """

    tags = frozenset({"update_rule=regression"})

    implicit: ImplicitReward = LogRatioReward(scale=1.0, anchor="sampler")
    scale: float = 1.0

    reads = frozenset({"advantage"})
    binds = "row"

    def setup(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"objectives.RegressionObjective: scale must be > 0, found {self.scale}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation.check(experience.mask)
        if evaluation.support != experience.support:
            raise SupportError(
                f"objectives.RegressionObjective: the batch's log-probs were taken over {experience.support}, the "
                f"policy's over {evaluation.support}; evaluate the policy with the batch's support"
            )
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        decided = experience.mask.any(1)
        reward = self.implicit(experience, evaluation)
        target = self.scale * compared_by(experience, "advantage").detach().to(reward)
        count = experience.denominator_batch.mask.any(1).sum().to(reward).clamp(min=1)
        error = torch.where(decided, (reward - target).square(), 0)
        with torch.no_grad():
            found = {"error": error, "implicit": reward, "target": target}
            metrics = {
                f"regression/{name}": torch.where(decided, value.detach(), 0).sum() / count
                for name, value in found.items()
            }
        return Loss(error.sum() / count, metrics)
