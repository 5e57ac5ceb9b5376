"""Best-first search of plans: proposals, states that are saved, problems that contradict themselves."""

from __future__ import annotations

import math

import pytest
import torch

from polopt.methods.toolchain_astar import toolchain_astar
from polopt.problems import PlanError, ToolPlans, find, tool_plans
from polopt.solvers import BestFirst, RememberedCost, TrueCost

PROBLEM = tool_plans(depth=3, branching=3, tools=5, memory=2, seed=4)


def small(**changes: object) -> ToolPlans:
    """The empty plan, a cheap call that leads to a dear goal, and a dear one that leads to a cheap one."""
    settings: dict[str, object] = {
        "parent": torch.tensor([-1, 0, 0, 1, 2]),
        "call": torch.tensor([-1, 0, 1, 2, 2]),
        "cost": torch.tensor([0.0, 1.0, 2.0, 5.0, 1.0]).double(),
        "goal": torch.tensor([False, False, False, True, True]),
        "chance": torch.tensor([0.0, 0.9, 0.1, 1.0, 1.0]).double(),
        "memory": [(1, 2)],
        "tools": 3,
    }
    return ToolPlans(**settings | changes)  # type: ignore[arg-type]


def test_a_problem_by_hand() -> None:
    problem = small()
    assert [problem.plan(node) for node in range(5)] == [(), (0,), (1,), (0, 2), (1, 2)]
    assert problem.remaining.tolist() == [3.0, 5.0, 1.0, 0.0, 0.0]
    assert problem.measure(torch.tensor([3])) == {"excess": 3.0, "cost": 6.0, "calls": 2.0}
    assert problem.measure(torch.tensor([1])) == {"excess": math.inf, "cost": 1.0, "calls": 1.0}
    assert problem.table(torch.tensor([4])) == {"call 1": {"tool 1": 1.0}, "call 2": {"tool 2": 1.0}}
    # By cost alone: the empty plan, the cheap call and the dear one are extended before the cheap goal.
    assert problem.uniform_expansions == 3
    solver = BestFirst(cost=TrueCost())
    state = solver.begin(problem)
    assert solver.solution(problem, state).tolist() == [0]
    seen = []
    for _ in range(4):
        state = solver.iterate(problem, state)
        seen.append(int(solver.solution(problem, state)))
    assert (seen, int(state["expanded"]), int(state["proposed"])) == ([2, 4, 4, 4], 2, 3)


def test_a_search_goes_on_from_a_saved_state_and_proposals_are_those_of_the_seed() -> None:
    solver = toolchain_astar(samples=4, seed=1)
    state = solver.begin(PROBLEM)
    states = [state]
    while int(state["found"]) < 0:
        state = solver.iterate(PROBLEM, state)
        states.append(state)
    again = states[2]
    for expected in states[3:]:
        again = solver.iterate(PROBLEM, again)
        assert all(torch.equal(again[name], expected[name]) for name in expected)
    assert PROBLEM.goal[int(solver.solution(PROBLEM, state))]
    shares = solver.proposals(PROBLEM, 0, 0)
    assert shares == solver.proposals(PROBLEM, 0, 0)
    assert sum(share for _, share in shares) == 1
    assert all(share * 4 == round(share * 4) and PROBLEM.parent[child] == 0 for child, share in shares)
    assert solver.proposals(PROBLEM, int(PROBLEM.goal.nonzero()[0]), 0) == []


def test_memory_leads_to_what_is_remembered() -> None:
    """By memory alone a plan that is remembered costs nothing."""
    problem = small()
    solver = BestFirst(cost=RememberedCost(alpha=1.0, beta=1.0))
    state = solver.begin(problem)
    for _ in range(5):
        state = solver.iterate(problem, state)
    assert problem.plan(int(solver.solution(problem, state))) == (1, 2)
    assert float(state["total"].min()) > 0


def test_bad_problems_and_settings_are_refused() -> None:
    for changes, message in (
        ({"parent": torch.tensor([-1, 0, 0, 4, 2])}, "a parent before it"),
        ({"cost": torch.tensor([0.0, 1.0, 0.0, 5.0, 1.0])}, "costs must be positive"),
        ({"goal": torch.zeros(5, dtype=torch.bool)}, "some plan a goal"),
        ({"tools": 2}, "none of 2"),
        ({"call": torch.tensor([0])}, r"must be \[N\]"),
    ):
        with pytest.raises(PlanError, match=message):
            small(**changes)
    with pytest.raises(PlanError, match="branching >= 2"):
        find({"name": "tool-plans", "branching": 1})
    with pytest.raises(ValueError, match="samples must be >= 1"):
        toolchain_astar(samples=0)
    with pytest.raises(ValueError, match="alpha and beta"):
        toolchain_astar(alpha=1.5)
    with pytest.raises(ValueError, match="accuracy"):
        TrueCost(accuracy=2.0)
    with pytest.raises(TypeError, match="ToolPlans"):
        toolchain_astar().begin(find("kuhn-poker"))
