"""A memory of cases, and the choice of the one that an agent is shown."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.part import Part
from polopt.problems.cases import CaseTasks
from polopt.solvers.solver import Solver, State


class CaseValue(Part):
    """Base of estimates of Q(s, c), the chance to solve a task s when the case c is shown."""

    def fitted(self, states: Tensor, cases: Tensor, reward: Tensor) -> Tensor:
        """Returns parameters [P], from pairs of states [n, D] and of the shown cases' states [n, D], and what was
        earned [n]."""
        raise NotImplementedError

    def values(self, parameters: Tensor, states: Tensor, cases: Tensor) -> Tensor:
        """Returns Q [M, C] of states [M, D] and the states of cases [C, D]."""
        raise NotImplementedError


class CosineSimilarity(CaseValue):
    """The cosine of the two states: retrieval by similarity alone, which learns nothing."""

    def fitted(self, states: Tensor, cases: Tensor, reward: Tensor) -> Tensor:
        return states.new_zeros(0)

    def values(self, parameters: Tensor, states: Tensor, cases: Tensor) -> Tensor:
        one, other = (F.normalize(x, dim=-1) for x in (states, cases))
        return one @ other.T


class PairLogistic(CaseValue):
    """A logistic regression on pairs: Q = sigmoid(w . f(s, c)), f = (s * c, (s - c)^2, 1) entry by entry, with w the
    minimum of the cross-entropy of what was earned, plus ridge / 2 |w - w_0|^2, by Newton's method. w_0 is -prior on
    the squared differences and 2 prior D on the 1, so that Q begins as a similarity, 1/2 for states as far apart as
    independent ones of unit variance are.
    """

    ridge: float = 100.0
    prior: float = 0.1
    steps: int = 20

    def setup(self) -> None:
        if not self.ridge > 0 or self.prior < 0 or self.steps < 1:
            raise ValueError(
                "solvers.PairLogistic: need ridge > 0, prior >= 0 and steps >= 1, found "
                f"{self.ridge}, {self.prior} and {self.steps}"
            )

    def fitted(self, states: Tensor, cases: Tensor, reward: Tensor) -> Tensor:
        x = _pair_features(states, cases)
        begin = x.new_zeros(x.shape[1])
        width = states.shape[1]
        begin[width : 2 * width], begin[-1] = -self.prior, 2 * self.prior * width

        def loss(w: Tensor) -> Tensor:
            entropy = F.binary_cross_entropy_with_logits(x @ w, reward, reduction="sum")
            return entropy + self.ridge / 2 * (w - begin).square().sum()

        w = begin
        for _ in range(self.steps if len(x) else 0):
            p = (x @ w).sigmoid()
            gradient = x.T @ (p - reward) + self.ridge * (w - begin)
            curvature = (x * (p * (1 - p))[:, None]).T @ x + self.ridge * torch.eye(len(w), dtype=w.dtype)
            step = torch.linalg.solve(curvature, gradient)
            while loss(w - step) > loss(w) and step.abs().max() > 1e-9:  # a full step may go too far
                step = step / 2
            w = w - step
        return w

    def values(self, parameters: Tensor, states: Tensor, cases: Tensor) -> Tensor:
        return (_pair_features(states[:, None], cases[None]) @ parameters).sigmoid()


def _pair_features(states: Tensor, cases: Tensor) -> Tensor:
    states, cases = torch.broadcast_tensors(states, cases)
    return torch.cat([states * cases, (states - cases).square(), torch.ones_like(states[..., :1])], -1)


class CaseMemory(Solver):
    """Memory instead of weights: tasks come in turn, the agent is shown a case c of the memory with the chance

        mu(c | s) = exp(Q(s, c) / temperature) / sum_c' exp(Q(s, c') / temperature)

    over the cases that were solved, and (s, its plan, what it earned) becomes a case. An iteration is `batch` tasks,
    after which Q is fitted to all pairs of a task and the case that was shown.

    value: Q. temperature: 0 takes the highest Q alone.
    explore: the share of the tasks in which no case is shown, so that plans are found that no case has.

    State: `parameters` of Q; `plan`, `earned`, `shown` [n] of the tasks so far: what the agent did, its reward, and the
    case it was shown, -1 for none.
    """

    value: CaseValue = PairLogistic()
    temperature: float = 0.05
    explore: float = 0.1
    batch: int = 50
    seed: int = 0

    solves: ClassVar[type] = CaseTasks
    progress_steps: ClassVar[int] = 10

    def setup(self) -> None:
        if self.temperature < 0 or not 0 <= self.explore <= 1 or self.batch < 1:
            raise ValueError(
                "solvers.CaseMemory: need temperature >= 0, explore in [0, 1] and batch >= 1, found "
                f"{self.temperature}, {self.explore} and {self.batch}"
            )

    def start(self, problem: Any) -> dict[str, Tensor]:
        none = problem.states[:0]
        return {
            "parameters": self.value.fitted(none, none, none.new_zeros(0)),
            "plan": torch.zeros(0, dtype=torch.int64),
            "earned": torch.zeros(0, dtype=torch.double),
            "shown": torch.zeros(0, dtype=torch.int64),
        }

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        plan, earned, shown = (state[name].tolist() for name in ("plan", "earned", "shown"))
        for task in range(len(plan), min(len(plan) + self.batch, len(problem.states))):
            draw = torch.Generator().manual_seed(1_000_003 * self.seed + task)
            solved = [case for case, reward in enumerate(earned) if reward > 0]
            case = -1
            if solved and float(torch.rand((), generator=draw)) >= self.explore:
                chance = self.chances(problem.states[[task]], problem.states[solved], state["parameters"])[0]
                case = solved[int(torch.multinomial(chance, 1, generator=draw))]
            own, reward = problem.respond(task, plan[case] if case >= 0 else -1, draw)
            plan.append(own)
            earned.append(reward)
            shown.append(case)
        rewards, cases = torch.tensor(earned, dtype=torch.double), torch.tensor(shown)
        pairs = (cases >= 0).nonzero().flatten()
        fitted = self.value.fitted(problem.states[pairs], problem.states[cases[pairs]], rewards[pairs])
        return {"parameters": fitted, "plan": torch.tensor(plan), "earned": rewards, "shown": cases}

    def chances(self, states: Tensor, cases: Tensor, parameters: Tensor) -> Tensor:
        """Returns mu [M, C] of cases with states [C, D] in states [M, D]."""
        value = self.value.values(parameters, states, cases)
        if self.temperature == 0:
            highest = value == value.amax(1, keepdim=True)
            return highest.double() / highest.sum(1, keepdim=True)
        return (value.double() / self.temperature).softmax(1)

    def solution(self, problem: Any, state: State) -> Tensor:
        """Returns the chance that each plan is shown in each held-out task, [M, plans + 1]; without cases, of none."""
        found = torch.zeros(len(problem.heldout), problem.plans + 1, dtype=torch.double)
        solved = (state["earned"] > 0).nonzero().flatten()
        if not len(solved):
            found[:, -1] = 1
            return found
        chance = self.chances(problem.heldout, problem.states[solved], state["parameters"])
        return found.index_add(1, state["plan"][solved], chance)
