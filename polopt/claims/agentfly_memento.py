"""These programs measure what the paper of AgentFly (Memento) claims."""

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import More, effect
from polopt.methods.agentfly_memento import agentfly_memento
from polopt.problems import CopiedCases, copied_cases
from polopt.solvers import CaseMemory, CaseValue, CosineSimilarity, PairLogistic

ROUNDS, PROBLEMS = 20, 3


def _remembered(solver: CaseMemory, problem: CopiedCases, rounds: int = ROUNDS) -> tuple[Tensor, dict[str, Tensor]]:
    """Returns what is shown in held-out tasks after so many rounds, and the last state."""
    state = solver.begin(problem)
    for _ in range(rounds):
        state = solver.iterate(problem, state)
    return solver.solution(problem, state), state


def _success(solver: CaseMemory, seed: int, rounds: int = ROUNDS) -> float:
    problems = [copied_cases(seed=1000 * seed + number) for number in range(PROBLEMS)]
    return sum(problem.measure(_remembered(solver, problem, rounds)[0])["success"] for problem in problems) / PROBLEMS


@effect(
    "After 1000 tasks it solves more of other tasks than with the most similar case, where half of what describes a "
    "task has nothing to do with it.",
    kind="headline",
    method=agentfly_memento,
    controls={"the most similar case": lambda: agentfly_memento(temperature=0.0).but(value=CosineSimilarity())},
    criteria=[More("success", by=0.1)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="Three problems a seed: 20 kinds of task, of five plans one is right; the agent follows the plan of the case "
    "that it is shown in 90 %, and takes any plan else. Cases are solved ones, and a tenth of the tasks has none. It "
    "leads on every seed, by less than the 0.1 that was asked.",
)
def learned_choice(side: CaseMemory, *, seed: int) -> dict[str, float]:
    return {"success": _success(side, seed)}


@effect(
    "It solves more tasks than the same agent without a memory, whose weights are the same, too.",
    kind="part",
    method=agentfly_memento,
    controls={"no memory": lambda: agentfly_memento(explore=1.0, batch=1)},
    criteria=[More("success", by=0.3)],
    seeds=10,
    cost="slow",
    note="As for the headline; without a memory nothing was ever seen.",
)
def memory_helps(side: CaseMemory, *, seed: int) -> dict[str, float]:
    return {"success": _success(side, seed, rounds=0 if side.explore == 1 else ROUNDS)}


@claim(
    "It solves the more tasks the more it has seen.",
    kind="part",
    baseline="the first round",
)
def improves_by_rounds() -> Finding:
    curve = [_success(agentfly_memento(), 3, rounds) for rounds in (0, 5, 10, 20)]
    return Finding(
        measured={f"after {n} rounds": value for n, value in zip((0, 5, 10, 20), curve, strict=True)},
        criterion="each more than the one before",
        holds=all(b > a for a, b in itertools.pairwise(curve)),
    )


@claim(
    "What is shown is the softmax of Q over the solved cases, and success the sum over cases of their chance times "
    "that to be right with them.",
    kind="identity",
    baseline="equal chances of all cases",
)
def shown_is_the_formula() -> Finding:
    problem = copied_cases(tasks=200, heldout=10, kinds=8, dimensions=6, seed=6)
    solver = agentfly_memento(temperature=0.2, batch=50, ridge=1.0, explore=0.5)
    shown, state = _remembered(solver, problem, 4)
    w = state["parameters"]
    cases = [case for case, reward in enumerate(state["earned"].tolist()) if reward > 0]
    error, success, even = 0.0, 0.0, 0.0
    for task in range(len(problem.heldout)):
        s = problem.heldout[task]
        values = []
        for case in cases:
            c = problem.states[case]
            logit = sum(float(w[i] * s[i] * c[i] + w[6 + i] * (s[i] - c[i]) ** 2) for i in range(6)) + float(w[12])
            values.append(1 / (1 + math.exp(-logit)))
        weights = [math.exp(value / 0.2) for value in values]
        right = int(problem.right[problem.heldout_kinds[task]])
        for plan in range(problem.plans):
            mine = sum(x for x, case in zip(weights, cases, strict=True) if int(state["plan"][case]) == plan) / sum(
                weights
            )
            error = max(error, abs(mine - float(shown[task, plan])))
            even = max(even, abs(mine - sum(int(state["plan"][case]) == plan for case in cases) / len(cases)))
            success += mine * (0.9 * (plan == right) + 0.1 / 5) / len(problem.heldout)
    measured = problem.measure(shown)["success"]
    return Finding(
        measured={"error": error, "of success": abs(success - measured), "of equal chances": even},
        criterion="errors < 1e-9, > 0.05 of equal chances",
        holds=error < 1e-9 and abs(success - measured) < 1e-9 and even > 0.05,
    )


@claim(
    "Q is the minimum of the cross-entropy with its penalty: at it the gradient is 0.",
    kind="identity",
    baseline="the start of the fit",
)
def fit_is_a_minimum() -> Finding:
    draw = torch.Generator().manual_seed(2)
    s, c = torch.randn(2, 80, 5, generator=draw, dtype=torch.double)
    reward = (torch.rand(80, generator=draw) < 0.4).double()
    value = PairLogistic(ridge=3.0, prior=0.1)
    begin = value.fitted(s[:0], c[:0], reward[:0])

    def gradient(w: Tensor) -> float:
        w = w.clone().requires_grad_()
        x = torch.cat([s * c, (s - c) ** 2, torch.ones(80, 1, dtype=torch.double)], 1)
        p = (x @ w).sigmoid()
        loss = -(reward * p.log() + (1 - reward) * (1 - p).log()).sum() + 1.5 * (w - begin).square().sum()
        return float(torch.autograd.grad(loss, w)[0].abs().max())

    found = gradient(value.fitted(s, c, reward))
    return Finding(
        measured={"gradient": found, "at the start": gradient(begin)},
        criterion="< 1e-8, and > 1 at the start",
        holds=found < 1e-8 and gradient(begin) > 1,
    )


@claim(
    "At temperature 0 the case of the highest Q is shown, and of equal Q all alike.",
    kind="limit",
    baseline="temperature 0.05",
)
def limits_of_the_temperature() -> Finding:
    states, cases = torch.eye(3).double(), torch.eye(3).double()
    value = CosineSimilarity()
    none = torch.zeros(0).double()
    greedy = CaseMemory(value=value, temperature=0.0).chances(states, cases, none)
    warm = CaseMemory(value=value, temperature=0.5).chances(states, cases, none)
    flat = CaseMemory(value=_Flat(), temperature=0.05).chances(states, cases, none)
    off = float((greedy - torch.eye(3)).abs().max()), float((flat - 1 / 3).abs().max())
    return Finding(
        measured={"greedy": off[0], "flat": off[1], "at 0.5": float((warm - torch.eye(3)).abs().max())},
        criterion="both 0, and more than 0.05 at temperature 0.5",
        holds=max(off) < 1e-12 and float((warm - torch.eye(3)).abs().max()) > 0.05,
    )


class _Flat(CaseValue):
    """Q = 0 of all."""

    def values(self, parameters: Tensor, states: Tensor, cases: Tensor) -> Tensor:
        return states.new_zeros(len(states), len(cases))


@mutation("Unsolved cases are shown, too.", kills=improves_by_rounds)
def shows_failures(replace: Replace) -> None:
    own = CaseMemory.solution

    def solution(self: CaseMemory, problem: Any, state: Any) -> Tensor:
        return own(self, problem, {**state, "earned": 1 - state["earned"]})

    replace(CaseMemory, "solution", solution)


@mutation("Q is not fitted.", kills=fit_is_a_minimum)
def not_fitted(replace: Replace) -> None:
    own = PairLogistic.fitted
    replace(PairLogistic, "fitted", lambda self, s, c, r: own(self, s[:0], c[:0], r[:0]))


@mutation("The temperature multiplies Q.", kills=shown_is_the_formula)
def inverse_temperature(replace: Replace) -> None:
    own = CaseMemory.chances
    replace(CaseMemory, "chances", lambda self, s, c, w: own(self.but(temperature=1 / self.temperature), s, c, w))
