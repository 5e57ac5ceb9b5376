"""Counterfactual regret minimisation: accumulation of regrets, regret matching, weights of iterations."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems import ExtensiveGame
from polopt.solvers.solver import Solver, State


class RegretSum(Part):
    """`sum(total [E], regret [E], t) -> [E]`: the regrets so far with those of iteration t = 1, 2, ...: R + r."""

    def forward(self, total: Tensor, regret: Tensor, t: int) -> Tensor:
        return total + regret


class PositiveRegretSum(RegretSum):
    """Adds regrets and clips the sum at 0: max(R + r, 0), the regrets of regret matching+.

    Source: Tammelin (2014), arXiv 1407.5042.
    """

    def forward(self, total: Tensor, regret: Tensor, t: int) -> Tensor:
        return (total + regret).clamp(min=0)


class DiscountedRegretSum(RegretSum):
    """Adds regrets, then multiplies positive sums by t^alpha / (t^alpha + 1) and the others by t^beta / (t^beta + 1).

    alpha: the persistence of positive regrets; larger is longer. beta: the same of negative regrets.

    Source: Brown and Sandholm (2019), arXiv 1809.04040.
    """

    alpha: float = 1.5
    beta: float = 0.0

    def forward(self, total: Tensor, regret: Tensor, t: int) -> Tensor:
        found = total + regret
        return found * torch.where(found > 0, _discount(t, self.alpha), _discount(t, self.beta))


def _discount(t: int, power: float) -> float:
    return 1 / (1 + float(t) ** -power)


class RegretMatching(Part):
    """`policy(game, total [E]) -> [E]`: each action in proportion to its positive regret; uniform where none is.

    Source: Hart and Mas-Colell (2000), "A Simple Adaptive Procedure Leading to Correlated Equilibrium".
    """

    def forward(self, game: ExtensiveGame, total: Tensor) -> Tensor:
        return game.normalised(total.clamp(min=0))


class IterationWeight(Part):
    """`weight(t)`: the weight of iteration t = 1, 2, ... in the average strategy; here 1."""

    def forward(self, t: int) -> float:
        return 1.0


class LinearWeight(IterationWeight):
    """max(t - delay, 0): later strategies count more.

    delay: iterations that do not count.

    Source: Tammelin (2014), arXiv 1407.5042.
    """

    delay: int = 0

    def setup(self) -> None:
        if self.delay < 0:
            raise ValueError(f"solvers.LinearWeight: delay must be at least 0, found {self.delay}")

    def forward(self, t: int) -> float:
        return float(max(t - self.delay, 0))


class PowerWeight(IterationWeight):
    """t^power.

    power: 0 is a plain mean, 1 counts an iteration by its number.
    """

    power: float = 2.0

    def forward(self, t: int) -> float:
        return float(t) ** self.power


class RegretMinimizer(Solver):
    """Counterfactual regret minimisation on a game of perfect recall. In each iteration t, for each pair of an
    information set I and an action a, with sigma the present strategy and q its counterfactual values,

        r(I, a) = q(I, a) - sum_b sigma(I, b) q(I, b)
        R <- accumulate(R, r, t),    S(I, a) += average(t) pi_i(I) sigma(I, a),    sigma <- policy(R)

    with pi_i(I) the probability of the player's own choices that lead to I. The solution is S, normalised in each set.

    accumulate: sums regrets over iterations.
    policy: computes the strategy from the regrets.
    average: weight of each iteration's strategy in the solution.
    alternating: the players update in turn within an iteration, each against the others' newest strategies; otherwise
        all at once.

    The state holds regret R, average S, strategy sigma ([E] float64 each) and the number of iterations.

    Source: Zinkevich and others (2007), "Regret Minimization in Games with Incomplete Information".
    """

    solves: ClassVar[type] = ExtensiveGame

    accumulate: RegretSum = RegretSum()
    policy: RegretMatching = RegretMatching()
    average: IterationWeight = IterationWeight()
    alternating: bool = False

    def start(self, problem: Any) -> dict[str, Tensor]:
        strategy = problem.uniform()
        zeros = torch.zeros_like(strategy)
        return {
            "regret": zeros,
            "average": zeros.clone(),
            "strategy": strategy,
            "iteration": torch.zeros((), dtype=torch.long),
        }

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        regret, average, strategy = state["regret"], state["average"], state["strategy"]
        t = int(state["iteration"]) + 1
        everybody = torch.ones_like(problem.player_of, dtype=torch.bool)
        turns = [problem.player_of == p for p in range(problem.players)] if self.alternating else [everybody]
        for moves in turns:
            own = problem.realisation(strategy)[: len(strategy)]  # pi_i(I) sigma(I, a)
            average = average + torch.where(moves, self.average(t) * own, 0.0)
            values = problem.counterfactual(strategy)[: len(strategy)]
            found = values - problem.total(strategy * values)[problem.set_of]
            regret = torch.where(moves, self.accumulate(regret, found, t), regret)
            strategy = torch.where(moves, self.policy(problem, regret), strategy)
        iteration = torch.tensor(t, dtype=torch.long)
        return {"regret": regret, "average": average, "strategy": strategy, "iteration": iteration}

    def solution(self, problem: Any, state: State) -> Tensor:
        return problem.normalised(state["average"])
