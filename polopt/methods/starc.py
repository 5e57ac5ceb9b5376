"""STARC: the distance between two rewards, which bounds the regret of optimising one in the other's place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polopt.method import Paper, method
from polopt.metrics import BoundPlot, Interval, Measured, Metric, MetricError
from polopt.metrics.reward_distance import (
    SampledRewardPair,
    TabularRewardPair,
    dard,
    epic,
    minimal_l2,
    val,
    val_potential,
)
from polopt.metrics.reward_regret import number_of_policies, return_range, return_spread, reward_regret
from polopt.metrics.reward_rows import TRANSITION_ROWS
from polopt.part import Part


@method(
    paper=Paper(
        title="STARC: A General Framework For Quantifying Differences Between Reward Functions",
        authors="Skalse, Joar and Farnik, Lucy and Motwani, Sumeet Ramesh and Jenner, Erik and Gleave, Adam and "
        "Abate, Alessandro",
        year=2023,
        arxiv="2309.15257",
    ),
    changes="A distance between two rewards that is 0 where they rank all policies alike, and bounds the regret "
    "elsewhere.",
    room="metrics",
    tier="proven",
)
def starc(
    *,
    gamma: float = 0.9,
    canonical: Canonical | None = None,
    norm: Literal["l1", "l2", "linf"] = "l2",
    metric: Literal["l1", "l2", "linf"] = "l2",
    max_policies: int = 1024,
    level: float = 0.95,
) -> RewardDistance:
    """d(R1, R2) = m(s(R1), s(R2)),  s(R) = c(R) / n(c(R)), and s(R) = c(R) where n(c(R)) = 0,

    c a canonical form, the same for rewards that differ by potential shaping and by moving reward between successors,
    n a norm, m a metric. The default c is VAL: c(R)(s, a) = E[R(s, a, S') + gamma V(S')] - V(s), V the value of a fixed
    policy. d is 0 exactly where both rewards rank all policies alike, and there are L, U > 0, of the problem, with
    L d <= the worst regret <= U d: the worst of J1(pi1) - J1(pi2) over policies with J2(pi2) >= J2(pi1), divided by
    max J1 - min J1.

    gamma: discount, the one of the problem for both rewards.
    canonical: `ValueLevelled` (VAL), `ValueShaped` (VALPotential), `LeastL2`, and for comparison `Epic`, `Dard` and
        `Uncanonical`.
    norm, metric: n and m.
    max_policies: the worst regret is computed where there are at most so many deterministic policies.
    level: of the interval of the distance on sampled decisions.

    Data are a `metrics.TabularRewardPair`, or a `metrics.SampledRewardPair` with values that were estimated elsewhere;
    a file has a row for each transition. Norms of tables are over all [S, A, S'], those of samples are means over
    decisions; the authors' norms weighted by P are not here. Two things are ours. `regret_bound` is n(c(R1)) (max - min
    over policies of the return under s(R1) - s(R2)) / (max J1 - min J1): policy iteration gives it where there are too
    many policies for the worst regret, which is never above it. With VAL, l2 and two or more successors of each sampled
    decision, norms and products are over pairs of different successors: the paper's means of their squares count the
    noise of the dynamics as reward. `Epic` with l2 is twice EPIC's distance.
    """
    return RewardDistance(
        gamma=gamma,
        canonical=ValueLevelled() if canonical is None else canonical,
        norm=norm,
        metric=metric,
        max_policies=max_policies,
        level=level,
    )


Order = Literal["l1", "l2", "linf"]
ORDERS: dict[Order, float] = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}


class Canonical(Part):
    """`canonical(problem, reward, gamma) -> [S, A, S]`, a canonical form of a reward.

    shifts_returns: it changes the returns of all policies by one constant, so that distances bound regrets.
    over_successors: it is an expectation over the successors of a decision.
    """

    shifts_returns: ClassVar[bool] = True
    over_successors: ClassVar[bool] = False

    def forward(self, problem: TabularRewardPair, reward: Tensor, gamma: float) -> Tensor:
        raise NotImplementedError

    def sampled(self, reward: Tensor, value: Tensor, next_value: Tensor, gamma: float) -> Tensor:
        """Returns the form on sampled decisions and each of their successors, [N, K]: see
        `metrics.SampledRewardPair`."""
        raise MetricError(
            f"{self!r} needs a table of the problem; on sampled decisions there are ValueLevelled, ValueShaped and "
            "Uncanonical"
        )


class ValueLevelled(Canonical):
    """VAL, `metrics.reward_distance.val`; on samples, the mean over the K successors of a decision."""

    over_successors = True

    def forward(self, problem: TabularRewardPair, reward: Tensor, gamma: float) -> Tensor:
        return val(problem, reward, gamma)

    def sampled(self, reward: Tensor, value: Tensor, next_value: Tensor, gamma: float) -> Tensor:
        return reward + gamma * next_value - value[:, None]


class ValueShaped(Canonical):
    """VALPotential, `metrics.reward_distance.val_potential`."""

    def forward(self, problem: TabularRewardPair, reward: Tensor, gamma: float) -> Tensor:
        return val_potential(problem, reward, gamma)

    def sampled(self, reward: Tensor, value: Tensor, next_value: Tensor, gamma: float) -> Tensor:
        return reward + gamma * next_value - value[:, None]


class LeastL2(Canonical):
    """The equivalent reward of least L2 norm, `metrics.reward_distance.minimal_l2`."""

    def forward(self, problem: TabularRewardPair, reward: Tensor, gamma: float) -> Tensor:
        return minimal_l2(problem, reward, gamma)


class Epic(Canonical):
    """EPIC's form under uniform coverage, `metrics.reward_distance.epic`."""

    def forward(self, problem: TabularRewardPair, reward: Tensor, gamma: float) -> Tensor:
        return epic(problem, reward, gamma)


class Dard(Canonical):
    """DARD's form with uniform actions, `metrics.reward_distance.dard`."""

    shifts_returns = False

    def forward(self, problem: TabularRewardPair, reward: Tensor, gamma: float) -> Tensor:
        return dard(problem, reward, gamma)


class Uncanonical(Canonical):
    """The reward itself."""

    def forward(self, problem: TabularRewardPair, reward: Tensor, gamma: float) -> Tensor:
        return reward

    def sampled(self, reward: Tensor, value: Tensor, next_value: Tensor, gamma: float) -> Tensor:
        return reward


ROUNDING = 1e-12


class RewardDistance(Metric):
    """The distance between two standardised rewards; settings as those of the method `starc`.

    Of a table: `distance`, `norm` and `other_norm`, n(c(R)) of the two, and, where the canonical form shifts all
    returns alike, `regret_bound`; with few enough policies `worst_regret` and `regret_of_best`, of
    `metrics.RewardRegret`. Of samples: `distance`, with a bootstrap interval over decisions, and the norms.
    """

    gamma: float = 0.9
    canonical: Canonical = ValueLevelled()
    norm: Order = "l2"
    metric: Order = "l2"
    max_policies: int = 1024
    level: float = 0.95
    resamples: int = 1000
    random_rewards: int = 200
    seed: int = 0

    rows = TRANSITION_ROWS

    def setup(self) -> None:
        if not 0 <= self.gamma < 1:
            raise ValueError(f"methods.starc.RewardDistance: gamma must be in [0, 1), found {self.gamma}")
        if not 0 < self.level < 1 or min(self.resamples, self.random_rewards) < 1 or self.max_policies < 0:
            raise ValueError(
                "methods.starc.RewardDistance: need level in (0, 1), resamples and random_rewards >= 1, max_policies "
                f">= 0, found {self.level}, {self.resamples}, {self.random_rewards} and {self.max_policies}"
            )

    def measure(self, data: TabularRewardPair | SampledRewardPair) -> Measured:
        return self._of_samples(data) if isinstance(data, SampledRewardPair) else self._of_table(data)

    def standardised(self, problem: TabularRewardPair, reward: Tensor) -> tuple[Tensor, float]:
        """Returns s(R) [S, A, S] and n(c(R)), which is 0 where it is rounding."""
        found = self.canonical(problem, reward, self.gamma)
        scale = max(float(reward.abs().max()), 1e-300) / (1 - self.gamma)
        if float(found.abs().max()) <= ROUNDING * scale:
            return torch.zeros_like(found), 0.0
        size = float(torch.linalg.vector_norm(found, ORDERS[self.norm]))
        return found / size, size

    def distance(self, problem: TabularRewardPair) -> float:
        """Returns d(R1, R2) alone."""
        one, other = (self.standardised(problem, r)[0] for r in (problem.reward, problem.other))
        return float(torch.linalg.vector_norm(one - other, ORDERS[self.metric]))

    def _of_table(self, problem: TabularRewardPair) -> Measured:
        (one, n1), (other, n2) = (self.standardised(problem, r) for r in (problem.reward, problem.other))
        distance = float(torch.linalg.vector_norm(one - other, ORDERS[self.metric]))
        values = {"distance": distance, "norm": n1, "other_norm": n2}
        cautions = []
        if self.canonical.shifts_returns:
            values["regret_bound"] = self._bound(problem, one - other, n1)
        if number_of_policies(problem) <= self.max_policies:
            regret = reward_regret(problem, self.gamma, self.max_policies)
            values |= {"worst_regret": regret.worst, "regret_of_best": regret.of_best}
        if not n1 or not n2:
            cautions.append(
                "one of the rewards is trivial: all policies have one return under it, and its direction is none"
            )
        return Measured(values, {}, {}, tuple(cautions))

    def _bound(self, problem: TabularRewardPair, apart: Tensor, size: float) -> float:
        """Returns an upper bound on the worst regret: where J2(pi2) >= J2(pi1), J1(pi1) - J1(pi2) is at most n(c(R1))
        times the difference of the two policies' returns under s(R1) - s(R2)."""
        expected = [(problem.transitions * r).sum(-1) for r in (apart, problem.reward)]
        spread, span = (return_range(problem, r, self.gamma) for r in expected)
        return min(size * spread / span, 1.0) if size and span > 0 else 0.0

    def slope(self, problem: TabularRewardPair) -> float:
        """Returns U of worst regret <= U d(R1, R2) for all R2: n(c(R1)) times the largest spread of returns of a reward
        of norm 1, over max J1 - min J1. It is 0 where R1 is trivial, whose regret is 0.

        Raises:
            MetricError: a canonical form that moves the returns of two policies apart, for which there is no U.
            MetricDataError: more than `max_policies` deterministic policies.
        """
        if not self.canonical.shifts_returns:
            raise MetricError(f"{self.canonical!r} changes the order of policies, so its distance bounds no regret")
        size = self.standardised(problem, problem.reward)[1]
        span = return_range(problem, (problem.transitions * problem.reward).sum(-1), self.gamma)
        if not size or span <= 0:
            return 0.0
        levelled, order = self.canonical.over_successors, ORDERS[self.metric]
        return (
            size / span * return_spread(problem, self.gamma, order, levelled=levelled, max_policies=self.max_policies)
        )

    def plot(self, data: TabularRewardPair | SampledRewardPair) -> BoundPlot | None:
        """Returns distance and worst regret of random rewards in the place of R2, under U d; None of samples, of too
        many policies, and without U.

        There are `random_rewards` rewards cos(a) R1 + sin(a) noise, both divided by the norms of their canonical forms,
        with angles a from 0 to pi, so from R1 to its opposite, and standard normal noise.
        """
        if isinstance(data, SampledRewardPair) or not self.canonical.shifts_returns:
            return None
        if number_of_policies(data) > self.max_policies:
            return None
        draw = torch.Generator().manual_seed(self.seed)
        pairs, own = [data], self._scaled(data, data.reward)
        for angle in torch.linspace(0, torch.pi, self.random_rewards, dtype=torch.double):
            noise = torch.randn(data.reward.shape, generator=draw, dtype=torch.double)
            pairs.append(data.replace(other=angle.cos() * own + angle.sin() * self._scaled(data, noise)))
        table = distances_and_regrets(pairs, {"distance": self})
        return BoundPlot(
            x=table["distance"][1:],
            y=table["regret"][1:],
            at=(float(table["distance"][0]), float(table["regret"][0]), "other_reward"),
            slope=self.slope(data),
            ceiling=1.0,
            x_name="distance to the reward",
            y_name="worst regret, share of the range of returns",
            points_name="random rewards",
            bound_name="bound, U times the distance",
            title="What a reward at this distance can cost",
            caption="Each point is a random reward that is optimised in the place of the first one: its distance, and "
            "the largest loss of return that the exchange can cause. None can lie above the line, which is 1 at most.",
        )

    def _scaled(self, problem: TabularRewardPair, reward: Tensor) -> Tensor:
        return reward / (self.standardised(problem, reward)[1] or 1.0)

    def _of_samples(self, data: SampledRewardPair) -> Measured:
        one = self.canonical.sampled(data.reward, data.value, data.next_value, self.gamma).numpy()
        other = self.canonical.sampled(data.other, data.other_value, data.other_next_value, self.gamma).numpy()
        estimate = self._estimator(one, other)
        distance, *sizes = estimate(np.arange(len(data)))
        generator = np.random.default_rng(self.seed)
        drawn = [estimate(rows)[0] for rows in generator.integers(len(data), size=(self.resamples, len(data)))]
        low, high = np.quantile(drawn, [(1 - self.level) / 2, (1 + self.level) / 2])
        cautions = []
        if self.canonical.over_successors and not self._unbiased(one) and one.shape[1] > 1:
            cautions.append("norms other than l2 take the noise of the drawn successors for reward; draw many")
        if min(sizes) <= 0:
            cautions.append("the sample does not tell one of the rewards from a trivial one; draw more decisions")
        return Measured(
            {"distance": distance, "norm": sizes[0], "other_norm": sizes[1]},
            {"distance": Interval(distance, float(low), float(high), self.level, len(data))},
            {"canonical": one.mean(1), "other_canonical": other.mean(1)},
            tuple(cautions),
        )

    def _unbiased(self, draws: NDArray[np.float64]) -> bool:
        return self.canonical.over_successors and self.norm == self.metric == "l2" and draws.shape[1] > 1

    def _estimator(
        self, one: NDArray[np.float64], other: NDArray[np.float64]
    ) -> Callable[[NDArray[np.int64]], tuple[float, float, float]]:
        """Returns a function of rows that estimates the distance and both norms on them."""
        if self._unbiased(one):
            inner = [_product(x, y) for x, y in ((one, one), (other, other), (one, other))]

            def by_products(rows: NDArray[np.int64]) -> tuple[float, float, float]:
                a, b, both = (float(x[rows].mean()) for x in inner)
                if a <= 0 or b <= 0:
                    return float(a > 0 or b > 0), max(a, 0.0) ** 0.5, max(b, 0.0) ** 0.5
                return max(0.0, 2 - 2 * both / (a * b) ** 0.5) ** 0.5, a**0.5, b**0.5

            return by_products
        if self.canonical.over_successors:
            one, other = one.mean(1), other.mean(1)

        def by_norms(rows: NDArray[np.int64]) -> tuple[float, float, float]:
            x, y = one[rows], other[rows]
            a, b = _size(x, self.norm), _size(y, self.norm)
            return _size((x / a if a > 0 else x) - (y / b if b > 0 else y), self.metric), a, b

        return by_norms


def _product(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns, of each row of draws [N, K], an unbiased estimate of the product of the two means: over pairs of
    different draws, whose noise is independent."""
    K = x.shape[1]
    return (x.sum(1) * y.sum(1) - (x * y).sum(1)) / (K * (K - 1))


def _size(x: NDArray[np.float64], order: Order) -> float:
    """Returns the norm under the sample's distribution, (E |x|^p)^(1/p)."""
    size = np.abs(x)
    return float(size.max() if order == "linf" else (size ** ORDERS[order]).mean() ** (1 / ORDERS[order]))


def distances_and_regrets(
    pairs: Iterable[TabularRewardPair], distances: Mapping[str, RewardDistance]
) -> dict[str, NDArray[np.float64]]:
    """Returns the columns of a figure: of each pair, the distance by each of `distances`, by name, and the normalised
    worst-case regret, `regret`.

    Raises:
        MetricDataError: a problem with more policies than `max_policies`.
        ValueError: distances of different discounts.
    """
    gammas = {d.gamma for d in distances.values()}
    if len(gammas) != 1:
        raise ValueError(f"distances_and_regrets: distances need one gamma, found {sorted(gammas)}")
    columns: dict[str, list[float]] = {name: [] for name in (*distances, "regret")}
    gamma, most = gammas.pop(), max(d.max_policies for d in distances.values())
    for pair in pairs:
        for name, metric in distances.items():
            columns[name].append(metric.distance(pair))
        columns["regret"].append(reward_regret(pair, gamma, most).worst)
    return {name: np.array(values) for name, values in columns.items()}
