"""AOD-CFR: CFR whose discounts harden over the first iterations, with optimism along the trend of regrets."""

import torch
from torch import Tensor

from polopt.method import Paper, method
from polopt.solvers import IterationWeight, RegretIteration, RegretMatching, RegretMinimizer, RegretSum


@method(
    paper=Paper(
        title="Discovering Multiagent Learning Algorithms with Large Language Models",
        authors="Li, Zun and Schultz, John and Hennes, Daniel and Lanctot, Marc",
        year=2026,
        arxiv="2602.16928",
    ),
    changes="Scheduled discounts, regrets scaled by their sign beside that of the sum, and optimism along the trend.",
    room="solvers",
    tier="reading",
)
def aod_cfr(*, horizon: int = 500) -> RegretMinimizer:
    """CFR with alternating players and, in iteration t = 1, 2, ..., with p = min(1, (t - 1) / horizon),

        alpha = 1 + 1.5 p,    beta = 0.5 - 0.5 p,    g = 1 + 4 p,    d(x) = t^x / (t^x + 1)
        R <- d(alpha) R + s r where R > 0, otherwise d(beta) R + s r
        sigma(a) ~ max(R + (R - E) / 2, 0)^2,    E <- 0.1 R + 0.9 E
        S(I, a) <- d(g) S(I, a) + t^g pi_i(I) sigma(I, a)

    where s is, by the signs of R and r: 1.1 for + and +, 0.9 for + and -, 0.7 for - and +, 1.2 for - and -, and 1 if
    either is 0.

    horizon: iterations until the schedules have ended; 500 is half of the paper's 1,000.

    The paper's search found this rule beside `vad-cfr-shor-psro`, and there is no bound. The constants are a reading of
    the listing in the appendix, which could not be compared with it again.
    """
    return RegretMinimizer(
        accumulate=AODRegretSum(horizon=horizon),
        policy=AODRegretMatching(),
        average=AODAverage(horizon=horizon),
        alternating=True,
    )


def _progress(t: int, horizon: int) -> float:
    return min(1.0, (t - 1) / horizon)


def _persistence(t: int, power: float) -> float:
    return 1 / (1 + float(t) ** -power)


class AODRegretSum(RegretSum):
    """Adds regrets, scaled by the signs of sum and regret, to the sum, discounted by a schedule.

    horizon: iterations until the schedule has ended.
    """

    horizon: int = 500

    def setup(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"methods.aod_cfr.AODRegretSum: horizon must be at least 1, found {self.horizon}")

    def forward(self, total: Tensor, regret: Tensor, t: int) -> Tensor:
        p = _progress(t, self.horizon)
        # Two numbers of Python would make a tensor of float32.
        kept = torch.where(total > 0, total * _persistence(t, 1 + 1.5 * p), total * _persistence(t, 0.5 - 0.5 * p))
        rises, falls = regret.clamp(min=0), regret.clamp(max=0)
        above, below = 1.1 * rises + 0.9 * falls, 0.7 * rises + 1.2 * falls
        return kept + torch.where(total > 0, above, torch.where(total < 0, below, regret))


class AODRegretMatching(RegretMatching):
    """Matches powers of the sum, extrapolated from its moving average.

    optimism: the factor of the difference. decay: the persistence of the average. exponent: of the positive sums.
    """

    has_memory = True
    optimism: float = 0.5
    decay: float = 0.9
    exponent: float = 2.0

    def advance(self, total: Tensor, found: RegretIteration, memory: Tensor) -> tuple[Tensor, Tensor]:
        projected = total + self.optimism * (total - memory)
        strategy = self(found.game, projected.clamp(min=0) ** self.exponent)
        return strategy, (1 - self.decay) * total + self.decay * memory


class AODAverage(IterationWeight):
    """Weights by a power of t that grows by a schedule, and discounts the sum by the same power.

    horizon: iterations until the schedule has ended.
    """

    horizon: int = 500

    def add(self, total: Tensor, plan: Tensor, found: RegretIteration) -> Tensor:
        power = 1 + 4 * _progress(found.t, self.horizon)
        return total * _persistence(found.t, power) + float(found.t) ** power * plan
