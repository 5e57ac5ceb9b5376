"""Best-first search of plans of tool calls, by what they cost and what is still ahead of them."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems.tool_plans import ToolPlans
from polopt.sequences import common_subsequence
from polopt.solvers.solver import Solver, State


class PlanCost(Part):
    """Base of the costs of a search: of a call, and of what is still ahead."""

    def of_call(self, problem: ToolPlans, node: int, share: float) -> float:
        """Returns the cost of a node's last call. share: of the model's proposals that are this call."""
        raise NotImplementedError

    def ahead(self, problem: ToolPlans, node: int, imagined: int) -> float:
        """Returns an estimate of the cost from a node to a goal. imagined: calls of the plan that the model imagines
        from the empty plan through the node to a goal."""
        raise NotImplementedError


class TrueCost(PlanCost):
    """The problem's own costs, and `accuracy` times what is really ahead: at most 1, so that the first plan that the
    search finishes is the cheapest, and at 0 the search by cost alone."""

    accuracy: float = 1.0

    def setup(self) -> None:
        if not 0 <= self.accuracy <= 1:
            raise ValueError(f"solvers.TrueCost: accuracy must be in [0, 1], found {self.accuracy}")

    def of_call(self, problem: ToolPlans, node: int, share: float) -> float:
        return float(problem.cost[node])

    def ahead(self, problem: ToolPlans, node: int, imagined: int) -> float:
        return self.accuracy * float(problem.remaining[node])


class RememberedCost(PlanCost):
    """Costs in [0, 1] from remembered plans and from the model's own proposals, of ToolChain*:

        call:  (1 - m)^alpha (1 - s)^(1 - alpha),   ahead:  (1 - q)^beta (1 - d)^(1 - beta)

    m: the longest common subsequence of the plan up to the call and a remembered one, over the length of the shorter,
    for the remembered plan of the most. s: the share of the model's proposals that are this call. q: the mean relative
    place of the call's tool in the remembered plans that have it, 0 for none. d: calls up to here over those of the
    plan that the model imagines to a goal, so that nothing is ahead of a goal. What is ahead is no bound: a plan that
    is finished first need not be the cheapest.

    alpha, beta: in [0, 1]; 1 counts memory alone, 0 the model alone.
    """

    alpha: float = 0.5
    beta: float = 0.5

    def setup(self) -> None:
        if not (0 <= self.alpha <= 1 and 0 <= self.beta <= 1):
            raise ValueError(
                f"solvers.RememberedCost: alpha and beta must be in [0, 1], found {self.alpha}, {self.beta}"
            )

    def of_call(self, problem: ToolPlans, node: int, share: float) -> float:
        plan = problem.plan(node)
        known = max((common_subsequence(plan, m) / min(len(plan), len(m)) for m in problem.memory if m), default=0.0)
        return float((1 - known) ** self.alpha * (1 - share) ** (1 - self.alpha))

    def ahead(self, problem: ToolPlans, node: int, imagined: int) -> float:
        plan = problem.plan(node)
        places = [(m.index(plan[-1]) + 1) / len(m) for m in problem.memory if plan and plan[-1] in m]
        place = sum(places) / len(places) if places else 0.0
        done = len(plan) / imagined if imagined else 0.0
        return float((1 - place) ** self.beta * (1 - done) ** (1 - self.beta))


class BestFirst(Solver):
    """Searches a tree of plans: in each iteration the plan of the lowest g + h is taken from the frontier, and, unless
    it does what was asked, the model proposes calls that may follow.

    g is the sum of its calls' costs, h the estimate of what is ahead; of equals the longer plan is taken. A proposal is
    a sample of the model, `samples` in one request; equal ones are one child, and None proposes every call once, as if
    in equal shares. A plan that was finished ends the search.

    State: `frontier` [F] nodes, `spent` and `total` [F] g and g + h, `expanded` and `proposed` how often the model was
    asked and how many children that made, `found` the finished plan's node, -1 for none.
    """

    cost: PlanCost = TrueCost()
    samples: int | None = None
    seed: int = 0

    solves: ClassVar[type] = ToolPlans

    def setup(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"solvers.BestFirst: samples must be >= 1, found {self.samples}")

    def start(self, problem: ToolPlans) -> dict[str, Tensor]:  # type: ignore[override]
        zero = torch.zeros(1, dtype=torch.double)
        counts = {name: torch.zeros((), dtype=torch.int64) for name in ("expanded", "proposed")}
        return {
            "frontier": torch.zeros(1, dtype=torch.int64),
            "spent": zero,
            "total": zero.clone(),
            **counts,
            "found": torch.tensor(-1),
        }

    def iterate(self, problem: ToolPlans, state: State) -> dict[str, Tensor]:  # type: ignore[override]
        if int(state["found"]) >= 0 or not len(state["frontier"]):
            return dict(state)
        nodes, total = state["frontier"].tolist(), state["total"].tolist()
        at = min(range(len(nodes)), key=lambda i: (total[i], -len(problem.plan(nodes[i])), problem.plan(nodes[i])))
        node, left = nodes[at], torch.arange(len(nodes)) != at
        found = {name: state[name][left] for name in ("frontier", "spent", "total")}
        if problem.goal[node]:
            return {**state, **found, "found": torch.tensor(node)}
        spent = float(state["spent"][at])
        added = []
        for child, share in self.proposals(problem, node, int(state["expanded"])):
            g = spent + self.cost.of_call(problem, child, share)
            added.append((child, g, g + self.cost.ahead(problem, child, imagined(problem, child))))
        columns = list(zip(*added, strict=True)) if added else [(), (), ()]
        for name, values in zip(found, columns, strict=True):
            found[name] = torch.cat([found[name], torch.tensor(values, dtype=found[name].dtype)])
        return {
            **state,
            **found,
            "expanded": state["expanded"] + 1,
            "proposed": state["proposed"] + len(added),
        }

    def proposals(self, problem: ToolPlans, node: int, number: int) -> list[tuple[int, float]]:
        """Returns the children that the model proposes, with their shares of the proposals. number: of the request."""
        children = problem.children[node]
        if not children:
            return []
        if self.samples is None:
            return [(child, 1 / len(children)) for child in children]
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        chosen = torch.multinomial(problem.chance[children], self.samples, replacement=True, generator=draw)
        count = Counter(chosen.tolist())
        return [(children[i], n / self.samples) for i, n in sorted(count.items())]

    def solution(self, problem: ToolPlans, state: State) -> Tensor:  # type: ignore[override]
        """Returns the finished plan's node, or that of the lowest g + h on the frontier, [1]."""
        if int(state["found"]) >= 0:
            return state["found"].reshape(1)
        if not len(state["frontier"]):
            return torch.zeros(1, dtype=torch.int64)
        pairs = zip(state["total"].tolist(), state["frontier"].tolist(), strict=True)
        best = min(pairs, key=lambda pair: (pair[0], problem.plan(pair[1])))
        return torch.tensor([best[1]])


def imagined(problem: ToolPlans, node: int) -> int:
    """Returns how many calls the plan has that the model imagines: from the node on, the likeliest call each time, to a
    goal or to the end."""
    length = len(problem.plan(node))
    while not problem.goal[node] and problem.children[node]:
        node = max(problem.children[node], key=lambda child: float(problem.chance[child]))
        length += 1
    return length


def chain(problem: ToolPlans) -> int:
    """Returns the node of the plan that a chain makes: the likeliest call each time."""
    node = 0
    while problem.children[node]:
        node = max(problem.children[node], key=lambda child: float(problem.chance[child]))
    return node
