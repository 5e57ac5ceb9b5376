"""Counterfactual regret minimisation: accumulation of regrets, regret matching, weights of iterations."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems import ExtensiveGame
from polopt.solvers.solver import Solver, State


@dataclasses.dataclass(frozen=True, eq=False)
class RegretIteration:
    """One update of a regret minimizer, as its parts read it: the game, the number t = 1, 2, ... of the iteration, and
    the regrets r [E]."""

    game: ExtensiveGame
    t: int
    regret: Tensor


class RegretSum(Part):
    """`sum(total [E], regret [E], t) -> [E]`: the regrets so far with those of iteration t = 1, 2, ...: R + r.

    A sum that depends on more than that overrides `advance`, and has a memory [E], 0 at the start, if it declares one.
    """

    has_memory: ClassVar[bool] = False

    def forward(self, total: Tensor, regret: Tensor, t: int) -> Tensor:
        return total + regret

    def advance(self, total: Tensor, found: RegretIteration, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the sum and the memory after one more iteration, [E] each."""
        return self(total, found.regret, found.t), memory


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
        return torch.where(found > 0, found * _discount(t, self.alpha), found * _discount(t, self.beta))


def _discount(t: int, power: float) -> float:
    return 1 / (1 + float(t) ** -power)


class RegretMatching(Part):
    """`policy(game, total [E]) -> [E]`: each action in proportion to its positive regret; uniform where none is.

    A rule that depends on more than the sums overrides `advance`, and has a memory [E], 0 at the start, if it declares
    one.

    Source: Hart and Mas-Colell (2000), "A Simple Adaptive Procedure Leading to Correlated Equilibrium".
    """

    has_memory: ClassVar[bool] = False

    def forward(self, game: ExtensiveGame, total: Tensor) -> Tensor:
        return game.normalised(total.clamp(min=0))

    def advance(self, total: Tensor, found: RegretIteration, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the strategy, from sums with this iteration's regrets in them, and the memory, [E] each."""
        return self(found.game, total), memory


class IterationWeight(Part):
    """`weight(t)`: the weight of iteration t = 1, 2, ... in the average strategy; here 1.

    An average of strategies in a game whose weights depend on more than t overrides `add`.
    """

    def forward(self, t: int) -> float:
        return 1.0

    def add(self, total: Tensor, plan: Tensor, found: RegretIteration) -> Tensor:
        """Returns the sum S [E] with one more iteration's pi_i(I) sigma(I, a) in it, the plan [E]."""
        return total + self(found.t) * plan

    def solution(self, game: ExtensiveGame, total: Tensor, strategy: Tensor) -> Tensor:
        """Returns the average strategy [E] of a sum S; `strategy` is the present one."""
        return game.normalised(total)


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
        S(I, a) += average(t) pi_i(I) sigma(I, a),    R <- accumulate(R, r, t),    sigma <- policy(R)

    with pi_i(I) the probability of the player's own choices that lead to I. The solution is S, normalised in each set.
    The parts may also depend on the regrets r themselves, and keep a memory of earlier ones.

    accumulate: sums regrets over iterations.
    policy: computes the strategy from the regrets.
    average: weight of each iteration's strategy in the solution.
    alternating: the players update in turn within an iteration, each against the others' newest strategies; otherwise
        all at once.

    The state holds regret R, average S, strategy sigma ([E] float64 each), the number of iterations, and the memories
    of parts that have one.

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
        memories = {name: zeros.clone() for name in self._memories()}
        return {
            "regret": zeros,
            "average": zeros.clone(),
            "strategy": strategy,
            "iteration": torch.zeros((), dtype=torch.long),
            **memories,
        }

    def _memories(self) -> list[str]:
        """Returns the names of the state's entries that hold the memories of parts."""
        return [f"{name}_memory" for name in ("accumulate", "policy") if getattr(self, name).has_memory]

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        found, t = dict(state), int(state["iteration"]) + 1
        everybody = torch.ones_like(problem.player_of, dtype=torch.bool)
        turns = [problem.player_of == p for p in range(problem.players)] if self.alternating else [everybody]
        for moves in turns:
            for name, value in self._updated(problem, found, t).items():
                found[name] = torch.where(moves, value, found[name])
        return {**found, "iteration": torch.tensor(t, dtype=torch.long)}

    def _updated(self, problem: Any, state: State, t: int) -> dict[str, Tensor]:
        """Computes the update of all players, each against the others' strategies in the state."""
        strategy = state["strategy"]
        plan = problem.realisation(strategy)
        values = problem.counterfactual(strategy, plan=plan)[: len(strategy)]
        regret = values - problem.total(strategy * values)[problem.set_of]
        found, none = RegretIteration(problem, t, regret), torch.zeros_like(strategy)
        average = self.average.add(state["average"], plan[: len(strategy)], found)
        total, own = self.accumulate.advance(state["regret"], found, state.get("accumulate_memory", none))
        strategy, other = self.policy.advance(total, found, state.get("policy_memory", none))
        memories = {"accumulate_memory": own, "policy_memory": other}
        kept = {name: memories[name] for name in self._memories()}
        return {"regret": total, "average": average, "strategy": strategy, **kept}

    def solution(self, problem: Any, state: State) -> Tensor:
        return self.average.solution(problem, state["average"], state["strategy"])
