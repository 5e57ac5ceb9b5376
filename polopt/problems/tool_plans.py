"""Plans of tool calls: a tree of calls with their costs, what a model proposes, and plans that are remembered."""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.errors import UserError

Plan = tuple[int, ...]


class PlanError(UserError, ValueError):
    """Sizes or numbers of a problem of plans contradict each other."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ToolPlans:
    """A tree of plans, of N nodes; node 0 is the empty plan, and each other one adds a call to its parent's.

    parent, call: [N] the parent, and the number of the tool that the last call is of; -1 of node 0.
    cost: [N] of the last call, > 0; 0 of node 0.
    goal: [N] whether the plan does what was asked.
    chance: [N] that the model, given the parent's plan, proposes this call.
    memory: plans that are remembered, as numbers of tools.
    tools: number of tools.

    Raises:
        PlanError: sizes that do not fit, a parent that comes later, a cost that is not positive, no goal.
    """

    parent: Tensor
    call: Tensor
    cost: Tensor
    goal: Tensor
    chance: Tensor
    memory: Sequence[Plan]
    tools: int
    name: str = "tool-plans"
    unit: str = "cost"

    def __post_init__(self) -> None:
        sizes = {len(x) for x in (self.parent, self.call, self.cost, self.goal, self.chance)}
        if len(sizes) > 1 or len(self.parent) < 2:
            raise PlanError(f"{self.name}: parent, call, cost, goal and chance must be [N] with N > 1, found {sizes}")
        order = torch.arange(len(self.parent))
        if (self.parent >= order).any() or self.parent[0] >= 0 or (self.parent[1:] < 0).any():
            raise PlanError(f"{self.name}: node 0 has no parent, and every other one a parent before it")
        if not (self.cost[1:] > 0).all() or not (self.chance[1:] >= 0).all() or not self.goal.any():
            raise PlanError(f"{self.name}: costs must be positive, chances not negative, and some plan a goal")
        if any(not 0 <= tool < self.tools for plan in self.memory for tool in plan):
            raise PlanError(f"{self.name}: a remembered plan has a tool that is none of {self.tools}")

    @functools.cached_property
    def children(self) -> list[list[int]]:
        """The nodes that add a call to each node's plan, in the order of the tools."""
        found: list[list[int]] = [[] for _ in range(len(self.parent))]
        for node, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                found[parent].append(node)
        return [sorted(nodes, key=lambda node: int(self.call[node])) for nodes in found]

    def plan(self, node: int) -> Plan:
        """Returns the tools of a node's plan, in order."""
        calls = []
        while node > 0:
            calls.append(int(self.call[node]))
            node = int(self.parent[node])
        return tuple(reversed(calls))

    def spent(self, node: int) -> float:
        """Returns the cost of a node's plan."""
        total = 0.0
        while node > 0:
            total += float(self.cost[node])
            node = int(self.parent[node])
        return total

    @functools.cached_property
    def remaining(self) -> Tensor:
        """The least cost from each node to a goal, [N]; infinite where there is none."""
        found = torch.where(self.goal, 0.0, torch.inf).to(self.cost)
        for node in range(len(self.parent) - 1, 0, -1):
            parent = self.parent[node]
            found[parent] = torch.minimum(found[parent], found[node] + self.cost[node])
        return found

    @functools.cached_property
    def uniform_expansions(self) -> int:
        """How many nodes the search by cost alone expands before it has the cheapest goal."""
        frontier, expanded = [(0.0, 0)], 0
        while frontier:
            spent, node = heapq.heappop(frontier)
            if self.goal[node]:
                break
            expanded += 1
            for child in self.children[node]:
                heapq.heappush(frontier, (spent + float(self.cost[child]), child))
        return expanded

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures a plan, given as its node [1]: how much more it costs than the cheapest goal, infinite for a plan
        that is none; and its cost and length."""
        node = int(solution)
        done = bool(self.goal[node])
        spent = self.spent(node)
        excess = spent - float(self.remaining[0]) if done else float("inf")
        return {"excess": max(0.0, excess), "cost": spent, "calls": float(len(self.plan(node)))}

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts a plan to plain data: the tool of each call, with probability 1."""
        return {f"call {number}": {f"tool {tool}": 1.0} for number, tool in enumerate(self.plan(int(solution)), 1)}


def tool_plans(
    *,
    depth: int = 6,
    branching: int = 4,
    tools: int = 12,
    memory: int = 6,
    known: float = 0.6,
    sure: float = 0.6,
    seed: int = 0,
) -> ToolPlans:
    """A random problem: a tree in which every plan of `depth` calls is a goal, with costs between 0.5 and 1.5, but that
    the first call of one branch costs a tenth and all calls after it twice as much.

    branching: calls that may follow. memory: remembered plans, the cheapest goals but the cheapest one.
    known: the chance that the call that the model likes best is the cheapest way on; else it is any.
    sure: the weight of that call in what the model proposes; the rest is spread evenly.
    """
    if depth < 1 or branching < 2 or tools < branching or memory < 0 or not 0 <= known <= 1 or not 0 <= sure < 1:
        raise PlanError(
            "tool-plans: needs depth >= 1, branching >= 2, at least as many tools, memory >= 0, known in [0, 1] and "
            f"sure in [0, 1), found {depth}, {branching}, {tools}, {memory}, {known} and {sure}"
        )
    draw = torch.Generator().manual_seed(seed)
    parent, call, cost, level, trap = [-1], [-1], [0.0], [0], [False]
    begin, end = 0, 1
    for step in range(depth):
        for node in range(begin, end):
            calls = torch.randperm(tools, generator=draw)[:branching].tolist()
            prices = (0.5 + torch.rand(branching, generator=draw, dtype=torch.double)).tolist()
            for place, (tool, price) in enumerate(zip(calls, prices, strict=True)):
                cheap = step == 0 and place == 0
                parent.append(node)
                call.append(tool)
                trap.append(trap[node] or cheap)
                cost.append(price / 10 if cheap else price * (2 if trap[node] else 1))
                level.append(step + 1)
        begin, end = end, len(parent)
    problem = ToolPlans(
        *(torch.tensor(parent), torch.tensor(call), torch.tensor(cost, dtype=torch.double)),
        *(torch.tensor(level) == depth, torch.full((len(parent),), 1 / branching, dtype=torch.double)),
        *((), tools),
    )
    total = problem.remaining + problem.cost
    chance = problem.chance.clone() * (1 - sure)
    for children in problem.children:
        if children:
            best = min(children, key=lambda child: float(total[child]))
            right = float(torch.rand((), generator=draw)) < known
            other = children[int(torch.randint(len(children), (), generator=draw))]
            chance[best if right else other] += sure
    goals = problem.goal.nonzero().flatten().tolist()
    kept = sorted(goals, key=problem.spent)[1 : memory + 1]
    return dataclasses.replace(problem, chance=chance, memory=tuple(problem.plan(node) for node in kept))
