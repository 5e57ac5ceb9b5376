"""Mechanisms that hire agents: the optimal one for what is believed of their signals, known or explored."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems import HiringError, HiringProblem, Mechanism
from polopt.solvers.solver import Solver, State


class SignalModel(Part):
    """The knowledge of signals: `explore(problem, counts [B, S, Th], k) -> counts` in iteration k = 0, 1, ...,
    `model(problem, counts) -> [B, S, Th]` and `margin(problem, counts)`; here the problem's own, without exploration.
    """

    def explore(self, problem: HiringProblem, counts: Tensor, k: int) -> Tensor:
        """Returns how often each joint effort was followed by each joint signal and state, after one more iteration."""
        return counts

    def margin(self, problem: HiringProblem, counts: Tensor) -> float:
        """Returns what a deviation must lose, in the units of payments."""
        return 0.0

    def forward(self, problem: HiringProblem, counts: Tensor) -> Tensor:
        return problem.signals


class ExploredSignals(SignalModel):
    """Frequencies of signals in rounds of exploration, in each of which every joint effort is recommended `rounds`
    times and all agents obey.

    rounds: of each joint effort in an iteration. pseudo_count: added to each count of joint signals.
    strictness: a deviation must lose this many times cap / sqrt(rounds of a joint effort so far); 0 leaves agents
        indifferent by the estimate, so that in truth some gain by deviating.
    seed: of the states and signals.
    """

    rounds: int = 10
    pseudo_count: float = 0.1
    strictness: float = 0.2
    seed: int = 0

    def setup(self) -> None:
        if self.rounds < 1 or self.pseudo_count <= 0 or self.strictness < 0:
            raise ValueError(
                "solvers.ExploredSignals: need rounds >= 1, pseudo_count > 0 and strictness >= 0, found "
                f"{self.rounds}, {self.pseudo_count} and {self.strictness}"
            )

    def explore(self, problem: HiringProblem, counts: Tensor, k: int) -> Tensor:
        draw = np.random.default_rng([self.seed, k])
        joint = (problem.signals * problem.prior).flatten(1).numpy()  # [B, S Th], sums to 1
        found = np.stack([draw.multinomial(self.rounds, row / row.sum()) for row in joint])
        return counts + torch.from_numpy(found).double().reshape(counts.shape)

    def margin(self, problem: HiringProblem, counts: Tensor) -> float:
        return self.strictness * problem.cap / math.sqrt(float(counts.sum()) / len(counts))

    def forward(self, problem: HiringProblem, counts: Tensor) -> Tensor:
        found = counts + self.pseudo_count
        return found / found.sum(1, keepdim=True)


class MechanismSolver(Solver):
    """The optimal mechanism, by linear programming, for a model of signals. Before the first iteration the cheapest
    efforts are recommended, and nothing is paid.

    model: of the signals. Where no mechanism has the margin that it wants, the margin is halved until one has.

    The state holds the counts of exploration and the number of iterations; the solution is computed from them.
    """

    solves: ClassVar[type] = HiringProblem

    model: SignalModel = SignalModel()

    def start(self, problem: Any) -> dict[str, Tensor]:
        return {"counts": torch.zeros_like(problem.signals), "iteration": torch.zeros((), dtype=torch.long)}

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        k = int(state["iteration"])
        return {"counts": self.model.explore(problem, state["counts"], k), "iteration": torch.tensor(k + 1)}

    def mechanism(self, problem: HiringProblem, state: State) -> Mechanism:
        """Returns the mechanism of a state."""
        if not int(state["iteration"]):
            return problem.idle()
        signals, margin = self.model(problem, state["counts"]).numpy(), self.model.margin(problem, state["counts"])
        for _ in range(10 if margin else 0):
            try:
                return problem.optimal(signals, margin)
            except HiringError:
                margin /= 2
        return problem.optimal(signals)

    def solution(self, problem: Any, state: State) -> Tensor:
        return problem.vector(self.mechanism(problem, state))


def explore_then_commit(problem: HiringProblem, horizon: int, model: ExploredSignals) -> float:
    """Returns the expected regret, against the optimum in every round, of exploring in T^(2/3) of T rounds and using
    the mechanism of what was learned in all others, for T = horizon.

    A round of exploration is charged with the cap for every agent, for which agents are taken to obey; in the others
    they respond to the mechanism as is best for them.
    """
    each = math.ceil(horizon ** (2 / 3) / len(problem.signals))
    solver = MechanismSolver(model=model.but({"rounds": each}))
    committed = solver.mechanism(problem, solver.iterate(problem, solver.start(problem)))
    rounds = min(each * len(problem.signals), horizon)
    worth = torch.einsum("bst,t,at->bsa", problem.signals, problem.prior, problem.utility).amax(-1).sum(-1)
    explored = problem.optimum - (float(worth.mean()) - problem.cap * len(problem.costs))
    return rounds * explored + (horizon - rounds) * (problem.optimum - problem.outcome(committed).value)
