"""Mirror descent in preference games: regularisation, opponents, step sizes, last and average policies."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems import PreferenceGame
from polopt.solvers.regret import IterationWeight
from polopt.solvers.solver import Solver, State


class StepSize(Part):
    """`step_size(t, tau)`: the step size of iteration t = 1, 2, ..., constant.

    lr: the step size.
    """

    lr: float = 0.1

    def setup(self) -> None:
        if self.lr <= 0:
            raise ValueError(f"solvers.{type(self).__name__}: lr must be positive, found {self.lr}")

    def forward(self, t: int, tau: float) -> float:
        return self.lr


class HarmonicStepSize(StepSize):
    """2 / (tau (t + 1)), at most lr; lr alone if tau is 0.

    lr: the largest step size.

    Source: Munos and others (2023), arXiv 2312.00886.
    """

    lr: float = 1.0

    def forward(self, t: int, tau: float) -> float:
        return min(self.lr, 2 / (tau * (t + 1))) if tau else self.lr


class Opponent(Part):
    """`opponent(mixture [N], policy [N], memory [N]) -> [N]`: the policy against which win rates are taken, here the
    policy itself.

    mixture: the policy, mixed with the reference. memory: what `remember` has made of the policies so far, in logits.
    """

    def forward(self, mixture: Tensor, policy: Tensor, memory: Tensor) -> Tensor:
        return policy

    def remember(self, memory: Tensor, log_policy: Tensor) -> Tensor:
        """Returns the memory after one more policy, from its log-probabilities."""
        return memory


class OwnMixture(Opponent):
    """The geometric mixture of the policy with the reference."""

    def forward(self, mixture: Tensor, policy: Tensor, memory: Tensor) -> Tensor:
        return mixture


class AveragedOpponent(Opponent):
    """The policy whose logits are an exponential moving average of those of the policies so far, the first included.

    decay: the persistence of the average; 0 is the policy itself.
    """

    decay: float = 0.9

    def setup(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"solvers.AveragedOpponent: need 0 <= decay < 1, found {self.decay}")

    def forward(self, mixture: Tensor, policy: Tensor, memory: Tensor) -> Tensor:
        return memory.softmax(0)

    def remember(self, memory: Tensor, log_policy: Tensor) -> Tensor:
        return self.decay * memory + (1 - self.decay) * log_policy


class PreferenceMirrorDescent(Solver):
    """Mirror descent on the win rates in a `PreferenceGame`, from its reference mu. In iteration t = 1, 2, ..., with
    eta = step_size(t, tau) and o the opponent:

        mix(y) ~ pi(y)^(1 - eta tau) mu(y)^(eta tau),    pi(y) <- mix(y) exp(eta P(y > o)), normalised

    step_size: of the iterations; eta tau must not exceed 1.
    regularised: the policy is drawn to the reference by the game's tau; otherwise mix is pi, as for tau = 0.
    opponent: the policy against which the win rates are.
    average: weight of each iteration's policy in the solution, their mean; None is the last policy.

    The state holds log-probabilities of the policy, the weighted sum of the policies before the steps, the opponent's
    memory, and the number of iterations.
    """

    solves: ClassVar[type] = PreferenceGame

    step_size: StepSize = StepSize()
    regularised: bool = True
    opponent: Opponent = OwnMixture()
    average: IterationWeight | None = None

    def start(self, problem: Any) -> dict[str, Tensor]:
        largest = self.step_size(1, problem.tau)
        if self.regularised and largest * problem.tau > 1 + 1e-12:
            raise ValueError(
                f"a step size of {largest:g} times tau = {problem.tau:g} exceeds 1: the step would go beyond the "
                "reference; take a smaller step size (a larger eta where eta is its inverse)"
            )
        log = problem.reference.log()
        zero = torch.zeros((), dtype=torch.long)
        return {"log_policy": log, "sum": torch.zeros_like(log), "memory": log.clone(), "iteration": zero}

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        t, log = int(state["iteration"]) + 1, state["log_policy"]
        eta = self.step_size(t, problem.tau)
        pull = min(eta * problem.tau, 1.0) if self.regularised else 0.0
        mixture = ((1 - pull) * log + pull * problem.reference.log()).log_softmax(0)
        opponent = self.opponent(mixture.exp(), log.exp(), state["memory"])
        after = (mixture + eta * problem.win_rates(opponent)).log_softmax(0)
        weight = self.average(t) if self.average is not None else 0.0
        return {
            "log_policy": after,
            "sum": state["sum"] + weight * log.exp(),
            "memory": self.opponent.remember(state["memory"], after),
            "iteration": torch.tensor(t),
        }

    def solution(self, problem: Any, state: State) -> Tensor:
        total = state["sum"].sum()
        return state["sum"] / total if self.average is not None and total > 0 else state["log_policy"].exp()
