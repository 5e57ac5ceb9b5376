"""PDCFR+: discounted CFR+ that plays against the last regret as a prediction of the next."""

from torch import Tensor

from polopt.method import Paper, method
from polopt.solvers import PowerWeight, RegretIteration, RegretMatching, RegretMinimizer, RegretSum


@method(
    paper=Paper(
        title="Minimizing Weighted Counterfactual Regret with Optimistic Online Mirror Descent",
        authors="Xu, Hang and Li, Kai and Liu, Bingyun and others",
        year=2024,
        arxiv="2404.13891",
    ),
    changes="CFR+ with discounted regrets, and a strategy from the regrets with the last ones counted once more.",
    room="solvers",
    tier="proven",
)
def pdcfr_plus(*, alpha: float = 2.3, gamma: float = 5.0) -> RegretMinimizer:
    """CFR with alternating players and, in iteration t = 1, 2, ..., with d(t) = t^alpha / (t^alpha + 1),

        R = max(d(t - 1) R + r, 0),    sigma(I, a) ~ max(d(t) R + r, 0),    S(I, a) += t^gamma pi_i(I) sigma(I, a)

    where r are the regrets of iteration t in both places: they are the prediction of those of the next.

    alpha: the persistence of regrets; without end it is PCFR+, https://arxiv.org/abs/2007.14358.
    gamma: the weight of later strategies in the average.

    The defaults are the paper's. Where predictions are good, as in Kuhn's poker, exploitability falls much faster than
    that of DCFR; on Leduc poker it falls more slowly.
    """
    return RegretMinimizer(
        accumulate=DiscountedPositiveRegretSum(alpha=alpha),
        policy=PredictiveRegretMatching(alpha=alpha),
        average=PowerWeight(power=gamma),
        alternating=True,
    )


class DiscountedPositiveRegretSum(RegretSum):
    """Discounts the sum, adds regrets and clips at 0: max(R (t - 1)^alpha / ((t - 1)^alpha + 1) + r, 0).

    alpha: the persistence of regrets.
    """

    alpha: float = 2.3

    def forward(self, total: Tensor, regret: Tensor, t: int) -> Tensor:
        return (total * _persistence(t - 1, self.alpha) + regret).clamp(min=0)


class PredictiveRegretMatching(RegretMatching):
    """Matches the sum of regrets that the next iteration would have with this one's regrets again.

    alpha: the persistence of regrets.
    """

    alpha: float = 2.3

    def advance(self, total: Tensor, found: RegretIteration, memory: Tensor) -> tuple[Tensor, Tensor]:
        predicted = total * _persistence(found.t, self.alpha) + found.regret
        return self(found.game, predicted), memory


def _persistence(t: int, power: float) -> float:
    return float(t) ** power / (float(t) ** power + 1)
