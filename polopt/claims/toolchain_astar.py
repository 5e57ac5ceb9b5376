"""These programs measure what the paper of ToolChain* claims."""

import functools
import math
from typing import Any

import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.methods.toolchain_astar import toolchain_astar
from polopt.problems import ToolPlans, tool_plans
from polopt.solvers import BestFirst, RememberedCost, TrueCost
from polopt.solvers.best_first import chain, imagined

PROBLEMS, LIMIT = 20, 5000


@functools.lru_cache(maxsize=256)
def _problem(seed: int) -> ToolPlans:
    return tool_plans(seed=seed)


def _searched(solver: BestFirst, problem: ToolPlans) -> tuple[int, dict[str, Any]]:
    """Returns the node of the plan that a search finishes, and its last state."""
    state = solver.begin(problem)
    for _ in range(LIMIT):
        state = solver.iterate(problem, state)
        if int(state["found"]) >= 0 or not len(state["frontier"]):
            break
    return int(solver.solution(problem, state)), state


def _cheapest(problem: ToolPlans) -> float:
    """Returns the cost of the cheapest goal, of all goals."""
    return min(problem.spent(node) for node in problem.goal.nonzero().flatten().tolist())


@effect(
    "Its plans cost less than those of a chain of the model's likeliest calls, and than those that it finds without a "
    "memory.",
    kind="headline",
    method=toolchain_astar,
    controls={"chain": lambda: None, "no memory": lambda: toolchain_astar(alpha=0.0, beta=0.0)},
    criteria=[Less("excess", by=-0.1)],
    seeds=10,
    cost="slow",
    note="20 problems of six calls of four each, in which the call that the model likes best is the cheapest way on "
    "with chance 0.6, or any; six cheap plans are remembered, the cheapest is not. Without memory the search has the "
    "model's proposals alone.",
)
def cheaper_plans(side: Any, *, seed: int) -> dict[str, float]:
    excess, expanded = 0.0, 0.0
    for number in range(PROBLEMS):
        problem = _problem(1000 * seed + number)
        if side is None:
            node, asked = chain(problem), 6.0
        else:
            node, state = _searched(side, problem)
            asked = float(state["expanded"])
        excess += (problem.spent(node) - float(problem.remaining[0])) / PROBLEMS
        expanded += asked / PROBLEMS
    return {"excess": excess, "requests": expanded}


@effect(
    "It asks the model less than half as often as the search by cost alone does.",
    kind="part",
    method=toolchain_astar,
    controls={"by cost alone": lambda: BestFirst(cost=TrueCost(accuracy=0.0))},
    criteria=[Less("requests", times=0.5)],
    seeds=10,
    cost="slow",
    note="As for the headline. The search by cost alone finds the cheapest plan.",
)
def asks_less(side: Any, *, seed: int) -> dict[str, float]:
    found = [_searched(side, _problem(1000 * seed + number)) for number in range(5)]
    return {"requests": sum(float(state["expanded"]) for _, state in found) / len(found)}


@claim(
    "By costs that are true, and an estimate that is never above what is ahead, the first finished plan is the "
    "cheapest of all, and the better the estimate the fewer plans are extended.",
    kind="identity",
    baseline="a chain of the likeliest calls",
)
def finds_the_cheapest() -> Finding:
    off, chains, asked = 0.0, 0, {0.0: 0, 0.5: 0, 1.0: 0}
    for seed in range(20):
        problem = tool_plans(depth=4, seed=seed)
        best = _cheapest(problem)
        for accuracy in asked:
            node, state = _searched(BestFirst(cost=TrueCost(accuracy=accuracy)), problem)
            off = max(off, abs(problem.spent(node) - best))
            asked[accuracy] += int(state["expanded"])
        chains += problem.spent(chain(problem)) > best + 1e-9
    return Finding(
        measured={
            "largest excess": off,
            "chains that cost more": float(chains),
            **{f"extended at {accuracy:g}": float(count) for accuracy, count in asked.items()},
        },
        criterion="no excess on 20 trees, more than 8 chains cost more, half as many extended at 1 as at 0",
        holds=off < 1e-9 and chains > 8 and asked[1.0] < asked[0.0] / 2 and asked[1.0] <= asked[0.5] <= asked[0.0],
    )


@claim(
    "Without an estimate it extends as many plans as a search by cost alone that was written for this.",
    kind="limit",
    baseline="with the estimate",
)
def is_uniform_cost_without_an_estimate() -> Finding:
    wrong, fewer = 0, 0
    for seed in range(10):
        problem = tool_plans(depth=4, seed=100 + seed)
        plain = int(_searched(BestFirst(cost=TrueCost(accuracy=0.0)), problem)[1]["expanded"])
        wrong += plain != problem.uniform_expansions
        fewer += int(_searched(BestFirst(cost=TrueCost()), problem)[1]["expanded"]) < plain
    return Finding(
        measured={"counts that differ": float(wrong), "fewer with the estimate": float(fewer)},
        criterion="none differs on 10 trees, fewer with the estimate on all",
        holds=wrong == 0 and fewer == 10,
    )


def _longest(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Returns the length of the longest common subsequence, by trying both ends."""
    if not a or not b:
        return 0
    if a[-1] == b[-1]:
        return 1 + _longest(a[:-1], b[:-1])
    return max(_longest(a[:-1], b), _longest(a, b[:-1]))


@claim(
    "Costs are the products of two factors, from memory and from the model, and nothing is ahead of a goal.",
    kind="identity",
    baseline="the problem's own costs",
)
def costs_are_the_formula() -> Finding:
    problem = tool_plans(depth=4, seed=5)
    cost = RememberedCost(alpha=0.3, beta=0.6)
    off = ahead_of_goals = moved = 0.0
    for node in range(1, len(problem.parent), 7):
        plan = problem.plan(node)
        m = max(_longest(plan, known) / min(len(plan), 4) for known in problem.memory)
        q = [(known.index(plan[-1]) + 1) / 4 for known in problem.memory if plan[-1] in known]
        place = sum(q) / len(q) if q else 0.0
        call = (1 - m) ** 0.3 * (1 - 0.4) ** 0.7
        ahead = (1 - place) ** 0.6 * (1 - len(plan) / 4) ** 0.4
        off = max(off, abs(cost.of_call(problem, node, 0.4) - call))
        off = max(off, abs(cost.ahead(problem, node, imagined(problem, node)) - ahead))
        moved = max(moved, abs(call - float(problem.cost[node])))
        if problem.goal[node]:
            ahead_of_goals = max(ahead_of_goals, cost.ahead(problem, node, imagined(problem, node)))
    return Finding(
        measured={"largest error": off, "ahead of goals": ahead_of_goals, "from the problem's own": moved},
        criterion="error < 1e-12, 0 ahead of goals, > 0.1 from the problem's own",
        holds=off < 1e-12 and math.isclose(ahead_of_goals, 0.0, abs_tol=1e-12) and moved > 0.1,
    )


@mutation("What is ahead counts three times.", kills=finds_the_cheapest)
def above_what_is_ahead(replace: Replace) -> None:
    own = TrueCost.ahead
    replace(TrueCost, "ahead", lambda self, problem, node, n: 3 * own(self, problem, node, n))


@mutation("Costs are those of the last call alone.", kills=finds_the_cheapest)
def last_call(replace: Replace) -> None:
    own = BestFirst.iterate

    def iterate(self: BestFirst, problem: ToolPlans, state: Any) -> Any:
        return own(self, problem, {**state, "spent": torch.zeros_like(state["spent"])})

    replace(BestFirst, "iterate", iterate)


@mutation("A plan is compared with the first remembered one.", kills=costs_are_the_formula)
def first_memory(replace: Replace) -> None:
    import dataclasses

    own = RememberedCost.of_call

    def of_call(self: RememberedCost, problem: ToolPlans, node: int, share: float) -> float:
        return own(self, dataclasses.replace(problem, memory=problem.memory[:1]), node, share)

    replace(RememberedCost, "of_call", of_call)
