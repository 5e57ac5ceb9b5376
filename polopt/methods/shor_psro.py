"""SHOR-PSRO: PSRO with optimistic regret matching, blended with a softmax that cools as populations grow."""

import numpy as np

from polopt.method import Paper, method
from polopt.solvers import PSRO, MetaSolver, strategy_payoffs


@method(
    paper=Paper(
        title="Discovering Multiagent Learning Algorithms with Large Language Models",
        authors="Li, Zun and Schultz, John and Hennes, Daniel and Lanctot, Marc",
        year=2026,
        arxiv="2602.16928",
    ),
    changes="A meta-solver that blends optimistic regret matching with a softmax, and anneals it in training.",
    room="solvers",
    tier="reading",
)
def shor_psro(*, scale: float = 1.0, eval_meta: MetaSolver | None = None) -> PSRO:
    """PSRO whose distributions x come from n rounds in which each player in turn, with u [K] the payoffs of its
    strategies against the others' newest x, c = u - mean(u), c' that of the round before and R = 0 at first, takes

        q = (1 + b) c - b c' + d (1 - x),    q <- q / max|q| where that is over 1e-8
        R <- max(R + q, 0),    x <- (1 - l) R / sum(R) + l softmax(u / T)

    In training l falls from 0.3 to 0.05, T from 0.5 to 0.01 and d from 0.05 to 0.001, linearly in the first 75
    iterations, with b = 0.5, n = min(5,000, 1,000 + 20 (K - 1)), and the result is the mean x. In evaluation l = 0.01,
    T = 0.001, d = 0, b = 0.2, n = min(15,000, 8,000 + 50 (K - 1)), and the result is the last x.

    scale: payoffs are of this order, and are divided by it; the paper's constants are for 1.
    eval_meta: another meta-solver for the solution, as `solvers.NashLP()`.

    A program found the rule by search. The constants are a reading of the listings in the appendix, which could not be
    compared with them again. The last x need not be near an equilibrium where payoffs go round in circles, so that the
    meta-solver of the evaluation matters as much as that of the training.
    """
    if scale <= 0:
        raise ValueError(f"shor-psro: scale must be positive, found {scale}")
    last = SHORMeta(
        blend=(0.01, 0.01), temperature=(1e-3, 1e-3), bonus=(0.0, 0.0), optimism=0.2,
        rounds=8000, rounds_per_strategy=50, most_rounds=15000, mean=False, scale=scale,
    )  # fmt: skip
    return PSRO(train_meta=SHORMeta(scale=scale), eval_meta=last if eval_meta is None else eval_meta)


class SHORMeta(MetaSolver):
    """Smoothed hybrid optimistic regret: regret matching on optimistic payoffs, blended with a softmax of payoffs.

    blend, temperature, bonus: the softmax's part, its temperature, and the bonus of strategies that are rarely played,
        before and after `horizon` iterations, linear between.
    optimism: the weight of the change of payoffs since the last round. scale: the unit of payoffs.
    rounds, rounds_per_strategy, most_rounds: how many, for one strategy, for each more, and at most.
    mean: the result is the mean over the rounds, otherwise the last distribution.
    """

    blend: tuple[float, float] = (0.3, 0.05)
    temperature: tuple[float, float] = (0.5, 0.01)
    bonus: tuple[float, float] = (0.05, 0.001)
    horizon: int = 75
    optimism: float = 0.5
    rounds: int = 1000
    rounds_per_strategy: int = 20
    most_rounds: int = 5000
    mean: bool = True
    scale: float = 1.0

    def setup(self) -> None:
        if min(self.temperature) <= 0 or self.horizon < 1 or self.rounds < 1 or self.scale <= 0:
            raise ValueError(
                "methods.shor_psro.SHORMeta: need positive temperatures and scale, and horizon and rounds of at least "
                f"1, found {self.temperature}, {self.scale}, {self.horizon} and {self.rounds}"
            )

    def forward(self, payoffs: np.ndarray, k: int) -> np.ndarray:
        players, count = payoffs.shape[:2]
        part = min(1.0, k / self.horizon)
        blend, heat, bonus = (a + (b - a) * part for a, b in (self.blend, self.temperature, self.bonus))
        payoffs, x = payoffs / self.scale, np.full((players, count), 1 / count)
        before, regret, total = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
        rounds = min(self.most_rounds, self.rounds + self.rounds_per_strategy * (count - 1))
        for _ in range(rounds):
            for p in range(players):
                u = strategy_payoffs(payoffs, x, p)
                centred = u - u.mean()
                q = (1 + self.optimism) * centred - self.optimism * before[p] + bonus * (1 - x[p])
                before[p], largest = centred, np.abs(q).max()
                regret[p] = np.maximum(regret[p] + (q / largest if largest > 1e-8 else q), 0)
                mass, soft = regret[p].sum(), np.exp((u - u.max()) / heat)
                matched = regret[p] / mass if mass > 0 else np.full(count, 1 / count)
                x[p] = (1 - blend) * matched + blend * soft / soft.sum()
            total += x
        return total / rounds if self.mean else x
