"""Thought graphs: a task is split, solved, refined and put together again by a reasoner that errs, step by step."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from polopt.errors import UserError

ACTIONS = ("decompose", "solve", "refine", "aggregate")


class ThoughtGraphError(UserError, ValueError):
    """A setting of a thought graph is out of its range."""


class GraphState(NamedTuple):
    """A state of a thought graph. parts: of the task, 1 for the whole. unsolved, wrong: of them; the others are
    right."""

    parts: int
    unsolved: int
    wrong: int

    @property
    def over(self) -> bool:
        return self.parts == 1 and not self.unsolved and not self.wrong

    def __str__(self) -> str:
        if self.over:
            return "solved"
        right = self.parts - self.unsolved - self.wrong
        return f"{self.parts} part{'s' * (self.parts > 1)}: {self.unsolved} unsolved, {self.wrong} wrong, {right} right"


class FixedSchedule(NamedTuple):
    """A fixed order of actions: so many `splits` in two, `tries` to solve each part, of which the best is kept, so many
    `refinements` of each part, and, put together, `last` ones of the whole."""

    splits: int
    tries: int
    refinements: int
    last: int


@dataclasses.dataclass(frozen=True, repr=False)
class ThoughtGraphs:
    """A decision process over thought graphs of one task, as sorting a list of `size` numbers, whose thoughts are
    scored, so that what is wrong is seen. Each action asks the reasoner, at a `price` for each request:

        decompose   splits every part in two; all must be unsolved. One request a new part.
        solve       an unsolved part, or, if there is none, a wrong one anew, of which the better is kept. It is right
                    with chance accuracy^length, length that of the part.
        refine      a wrong part, which is right then with chance repair^length.
        aggregate   puts solved parts together, in parts - 1 requests: wrong if any is.

    The value of a policy is its chance to solve the task, less the price of its requests, within `limit` actions. A
    policy is [states, actions], its columns in the order of `actions`.

    depth: the most splits.

    Raises:
        ThoughtGraphError: a setting out of its range.
    """

    size: int = 32
    accuracy: float = 0.9
    repair: float = 0.95
    price: float = 0.005
    depth: int = 3
    limit: int = 64
    actions: tuple[str, ...] = ACTIONS
    name: str = "thought-graph"
    unit: str = "value"

    def __post_init__(self) -> None:
        if self.depth < 0 or self.size < 2**self.depth or self.limit < 1 or self.price < 0:
            raise ThoughtGraphError(
                f"{self.name}: needs depth >= 0, at least 2^depth elements, limit >= 1 and price >= 0, found "
                f"{self.depth}, {self.size}, {self.limit} and {self.price}"
            )
        if not (0 < self.accuracy <= 1 and 0 < self.repair <= 1):
            raise ThoughtGraphError(
                f"{self.name}: accuracy and repair must be in (0, 1], found {self.accuracy} and {self.repair}"
            )
        if sorted(self.actions) != sorted(ACTIONS):
            raise ThoughtGraphError(f"{self.name}: actions must be {', '.join(ACTIONS)} in some order")

    @functools.cached_property
    def states(self) -> tuple[GraphState, ...]:
        """All states; the first is the beginning."""
        found = [GraphState(1, 1, 0), GraphState(1, 0, 1), GraphState(1, 0, 0)]
        for depth in range(1, self.depth + 1):
            k = 2**depth
            found += [GraphState(k, u, w) for u in range(k, -1, -1) for w in range(k - u + 1)]
        return tuple(found)

    def chance(self, action: str, parts: int) -> float:
        """Returns the chance that one of so many equal parts is right after it is solved, or, where it is wrong,
        refined."""
        return float((self.accuracy if action == "solve" else self.repair) ** (self.size / parts))

    def outcomes(self, state: GraphState, action: str) -> tuple[int, dict[GraphState, float]] | None:
        """Returns the requests of an action, and the chance of each state after it; None where it is not possible."""
        k, u, w = state
        if state.over:
            return None
        if action == "decompose" and u == k and 2 * k <= 2**self.depth:
            return 2 * k, {GraphState(2 * k, 2 * k, 0): 1.0}
        if action == "aggregate" and k > 1 and not u:
            return k - 1, {GraphState(1, 0, min(w, 1)): 1.0}
        if action == "solve" and u:
            p = self.chance("solve", k)
            return 1, {GraphState(k, u - 1, w): p, GraphState(k, u - 1, w + 1): 1 - p}
        if action in ("solve", "refine") and w and (action == "refine" or not u):
            p = self.chance(action, k)
            return 1, {GraphState(k, u, w - 1): p, state: 1 - p}
        return None

    @functools.cached_property
    def possible(self) -> Tensor:
        """[S, A] whether an action is possible in a state; none is at the end."""
        found = [[self.outcomes(s, a) is not None for a in self.actions] for s in self.states]
        return torch.tensor(found)

    @functools.cached_property
    def _dynamics(self) -> tuple[Tensor, Tensor]:
        """[S, A, S] chances and [S, A] requests of the possible actions, 0 of the others."""
        number = {state: i for i, state in enumerate(self.states)}
        chances = torch.zeros(len(number), len(self.actions), len(number), dtype=torch.double)
        requests = torch.zeros(chances.shape[:2], dtype=torch.double)
        for (s, state), (a, action) in itertools.product(enumerate(self.states), enumerate(self.actions)):
            found = self.outcomes(state, action)
            if found is not None:
                requests[s, a] = found[0]
                for after, chance in found[1].items():
                    chances[s, a, number[after]] += chance
        return chances, requests

    @functools.cached_property
    def solved(self) -> Tensor:
        """[S] 1 in the state that is solved."""
        return torch.tensor([float(s.over) for s in self.states], dtype=torch.double)

    @functools.cached_property
    def optimum(self) -> tuple[Tensor, Tensor]:
        """The values [S] of the best policy, and the values [S, A] of actions under it, -inf for those that are not
        possible, in the limit of many actions."""
        chances, requests = self._dynamics
        value = self.solved.clone()
        while True:
            table = (chances @ value - self.price * requests).masked_fill(~self.possible, -torch.inf)
            after = torch.where(self.possible.any(1), table.amax(1), self.solved)
            if torch.equal(after, value):
                return value, table
            value = after

    @functools.cached_property
    def best_policy(self) -> Tensor:
        """The best policy, [S, A]: of the actions of the highest value, within 1e-9, the first of `ACTIONS`; even
        at the end."""
        table = self.optimum[1]
        highest = table >= table.amax(1, keepdim=True) - 1e-9
        rank = torch.tensor([float(ACTIONS.index(action)) for action in self.actions])
        first = torch.where(highest, rank, torch.inf).argmin(1, keepdim=True)
        best = torch.zeros_like(table).scatter(1, first, 1.0)
        return torch.where(self.possible.any(1, keepdim=True), best, 1 / len(self.actions))

    def played(self, policy: Tensor) -> dict[str, float]:
        """Returns the chance to solve the task, and the mean numbers of requests and of actions, of a policy [S, A].
        What it gives to actions that are not possible is spread over the others."""
        policy = torch.where(self.possible, policy.double(), 0)
        total = policy.sum(1, keepdim=True)
        even = self.possible / self.possible.sum(1, keepdim=True).clamp(min=1)
        policy = torch.where(total > 0, policy / total.clamp(min=1e-300), even)
        chances, requests = self._dynamics
        moves = torch.einsum("sa,sat->st", policy, chances)
        cost, going = (policy * requests).sum(1), self.possible.any(1).double()
        here = torch.zeros(len(self.states), dtype=torch.double)
        here[0] = 1
        spent = acted = done = 0.0
        for _ in range(self.limit):
            spent, acted = spent + float(here @ cost), acted + float(here @ going)
            here = here @ moves
            done += float(here @ self.solved)
        return {"success": done, "requests": spent, "actions": acted}

    def scheduled(self, schedule: FixedSchedule) -> dict[str, float]:
        """Returns the chance to solve the task by a fixed schedule, and its requests."""
        k = 2**schedule.splits
        wrong = (1 - self.chance("solve", k)) ** schedule.tries
        part = 1 - wrong * (1 - self.chance("refine", k)) ** schedule.refinements
        whole = 1 - (1 - part**k) * (1 - self.chance("refine", 1)) ** schedule.last
        requests = sum(2 ** (i + 1) for i in range(schedule.splits)) + k * (schedule.tries + schedule.refinements)
        return {"success": whole, "requests": float(requests + (k - 1) + schedule.last)}

    def best_schedule(self, success: float, most: int = 6) -> FixedSchedule | None:
        """Returns the schedule of the fewest requests that solves the task with at least this chance, of those with at
        most `most` tries and refinements of each kind; None if there is none."""
        tried = itertools.product(range(self.depth + 1), range(1, most + 1), range(most + 1), range(most + 1))
        able = [s for s in itertools.starmap(FixedSchedule, tried) if self.scheduled(s)["success"] >= success]
        return min(able, key=lambda s: self.scheduled(s)["requests"], default=None)

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures a policy [S, A]: how far its value is below the optimum, and what `played` says."""
        found = self.played(solution)
        value = found["success"] - self.price * found["requests"]
        return {"value": max(0.0, float(self.optimum[0][0]) - value), **found}

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts a policy to plain data: the chances of the actions by state."""
        rows = zip(self.states, solution.tolist(), strict=True)
        return {
            str(state): {a: p for a, p in sorted(zip(self.actions, row, strict=True)) if p > 0}
            for state, row in rows
            if not state.over
        }


def majority(chances: Tensor, voters: int) -> Tensor:
    """Returns the chance of each choice to be the one of the most voters, of ties with equal chances, [..., A], where
    each of `voters` takes it with chances [..., A], independently of the others."""
    found = torch.zeros_like(chances)
    for counts in _splits(voters, chances.shape[-1]):
        ways = math.factorial(voters) / math.prod(math.factorial(n) for n in counts)
        chance = ways * torch.stack([chances[..., i] ** n for i, n in enumerate(counts)]).prod(0)
        winners = [i for i, n in enumerate(counts) if n == max(counts)]
        for i in winners:
            found[..., i] += chance / len(winners)
    return found


def _splits(total: int, places: int) -> list[tuple[int, ...]]:
    """Returns all ways to write a number as an ordered sum of so many numbers >= 0."""
    if places == 1:
        return [(total,)]
    return [(n, *rest) for n in range(total + 1) for rest in _splits(total - n, places - 1)]


def thought_graph(
    *, size: int = 32, accuracy: float = 0.9, repair: float = 0.95, price: float = 0.005, depth: int = 3
) -> ThoughtGraphs:
    """The decision process over thought graphs of a task of `size` elements, see `ThoughtGraphs`."""
    return ThoughtGraphs(size=size, accuracy=accuracy, repair=repair, price=price, depth=depth)
