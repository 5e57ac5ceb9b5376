"""VAD-CFR: discounts, optimism and weights of CFR that follow the volatility of regrets."""

import torch
from torch import Tensor

from polopt.method import Paper, method
from polopt.part import Part
from polopt.problems import ExtensiveGame
from polopt.solvers import IterationWeight, RegretIteration, RegretMatching, RegretMinimizer, RegretSum


@method(
    paper=Paper(
        title="Discovering Multiagent Learning Algorithms with Large Language Models",
        authors="Li, Zun and Schultz, John and Hennes, Daniel and Lanctot, Marc",
        year=2026,
        arxiv="2602.16928",
    ),
    changes="Discounts and optimism by the volatility of regrets, boosted positive regrets, and a late average.",
    room="solvers",
    tier="reading",
)
def vad_cfr_shor_psro(*, scale: float = 1.0, warm_start: int = 500) -> RegretMinimizer:
    """CFR with alternating players and, in iteration t = 1, 2, ..., in each information set, with m = max_a |r(a)|, its
    moving average E = 0.1 m + 0.9 E (m at first) and the volatility v = min(1, E / 2),

        alpha = max(0.1, 1.5 - v / 2),    beta = min(alpha, -0.1 - v / 2),    b(a) = 1.1 r(a) if r(a) > 0, else r(a)
        D(R) = R t^alpha / (t^alpha + 1) where R >= 0, otherwise R t^beta / (t^beta + 1)
        R = max(D(R) + b, -20),    sigma(a) ~ max(D(R) + o b, 0)^1.5,    o = max(0, 1 - v / 2) / (1 + (t - 1) / 100)
        S(I, a) += w pi_i(I) sigma(I, a),    w = t^g max(0.1, (1 + m / 2)^(1/2)) / (1 + m^1.5)

    with g = min(4, 2 + 1.5 min(1, m / 2)) and w = 0 for t <= warm_start, up to which the solution is the present
    strategy. The discount D(R) in sigma is of the sum that holds r already.

    scale: payoffs are of this order; regrets, -20 and E / 2 above are in its unit. The paper's constants are for 1.
    warm_start: iterations that do not count in the average; the paper's 500 is half of its 1,000 iterations.

    A program found the rule by search, scored on small games, and there is no bound. The paper's other rules are
    `aod-cfr` and `shor-psro`. The constants are a reading of the listings in the appendix, which the text does not
    always agree with; they could not be compared with them again. Ours: E is kept for each information set, where the
    listing has one for all that depends on the order of the sets, and the scale.
    """
    if scale <= 0:
        raise ValueError(f"vad-cfr-shor-psro: scale must be positive, found {scale}")
    discount = VolatilityDiscount(sensitivity=0.5 / scale)
    return RegretMinimizer(
        accumulate=VADRegretSum(discount=discount, floor=-20.0 * scale),
        policy=VADRegretMatching(discount=discount),
        average=VADWeight(scale=scale, warm_start=warm_start),
        alternating=True,
    )


class VolatilityDiscount(Part):
    """`discount(total [E], volatility [E], t) -> [E]`: the sum of regrets, of which more is forgotten where regrets
    vary.

    sensitivity: v is this times the moving average of the largest regret, at most 1; 0 is no adaptation.
    decay: the persistence of the moving average. alpha, beta: exponents for v = 0. slope: how far v lowers them.
    """

    sensitivity: float = 0.5
    decay: float = 0.9
    alpha: float = 1.5
    beta: float = -0.1
    slope: float = 0.5

    def remember(self, found: RegretIteration, memory: Tensor) -> Tensor:
        """Returns the moving average E after one more iteration, [E]."""
        largest = found.game.largest(found.regret.abs())[found.game.set_of]
        return largest if found.t == 1 else (1 - self.decay) * largest + self.decay * memory

    def volatility(self, memory: Tensor) -> Tensor:
        """Computes v [E] from the moving average."""
        return (self.sensitivity * memory).clamp(max=1)

    def forward(self, total: Tensor, volatility: Tensor, t: int) -> Tensor:
        alpha = (self.alpha - self.slope * volatility).clamp(min=0.1)
        beta = torch.minimum(alpha, self.beta - self.slope * volatility)
        return total / (1 + float(t) ** -torch.where(total >= 0, alpha, beta))


def _boosted(regret: Tensor, boost: float) -> Tensor:
    return torch.where(regret > 0, boost * regret, regret)


class VADRegretSum(RegretSum):
    """Adds regrets, of which positive ones are boosted, to the discounted sum, and bounds it from below.

    discount: of the sum. boost: factor of positive regrets. floor: the least sum.
    """

    has_memory = True
    discount: VolatilityDiscount = VolatilityDiscount()
    boost: float = 1.1
    floor: float = -20.0

    def advance(self, total: Tensor, found: RegretIteration, memory: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.discount.remember(found, memory)
        kept = self.discount(total, self.discount.volatility(memory), found.t)
        return (kept + _boosted(found.regret, self.boost)).clamp(min=self.floor), memory


class VADRegretMatching(RegretMatching):
    """Matches powers of the discounted sum with part of this iteration's regrets counted again.

    discount: of the sum. boost: factor of positive regrets. exponent: of the positive sums.
    optimism: the part for v = 0 in the first iteration. horizon: iterations in which it falls to a half.
    """

    has_memory = True
    discount: VolatilityDiscount = VolatilityDiscount()
    boost: float = 1.1
    exponent: float = 1.5
    optimism: float = 1.0
    horizon: float = 100.0

    def advance(self, total: Tensor, found: RegretIteration, memory: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.discount.remember(found, memory)
        volatility = self.discount.volatility(memory)
        part = self.optimism * (1 - 0.5 * volatility).clamp(min=0) / (1 + (found.t - 1) / self.horizon)
        projected = self.discount(total, volatility, found.t) + part * _boosted(found.regret, self.boost)
        return self(found.game, projected.clamp(min=0) ** self.exponent), memory


class VADWeight(IterationWeight):
    """Weights by a power of t that grows with the largest regret of the set, and less where that is large.

    scale: the unit of regrets. warm_start: iterations that do not count.
    """

    scale: float = 1.0
    warm_start: int = 500

    def setup(self) -> None:
        if self.scale <= 0 or self.warm_start < 0:
            raise ValueError(
                "methods.vad_cfr_shor_psro.VADWeight: need scale > 0 and warm_start >= 0, found "
                f"{self.scale} and {self.warm_start}"
            )

    def add(self, total: Tensor, plan: Tensor, found: RegretIteration) -> Tensor:
        if found.t <= self.warm_start:
            return total
        m = found.game.largest(found.regret.abs())[found.game.set_of] / self.scale
        power = (2 + 1.5 * (m / 2).clamp(max=1)).clamp(max=4)
        weight = float(found.t) ** power * (1 + m / 2).sqrt().clamp(min=0.1) / (1 + m**1.5)
        return total + weight * plan

    def solution(self, game: ExtensiveGame, total: Tensor, strategy: Tensor) -> Tensor:
        return game.normalised(total) if total.any() else strategy
