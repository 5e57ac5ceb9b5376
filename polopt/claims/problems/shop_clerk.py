"""A scripted clerk of the shop with planted weaknesses, and a log of what its customers write about."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polopt.metrics import PolicyTestResults
from polopt.worlds.policy_graph import PolicyTest
from polopt.worlds.shop import Shop, written_call
from polopt.worlds.shop_rules import RULES

Calls = list[tuple[str, dict[str, Any]]]


def _refund(number: str, amount: int, method: str = "card", ask: bool = True) -> Calls:
    paid: Calls = [("refund_order", {"order": number, "method": method, "amount": amount})]
    return [("ask_customer", {"order": number, "about": "confirm"}), *paid] if ask else paid


def _cancel(number: str) -> Calls:
    return [("cancel_order", {"order": number, "reason": "not needed"})]


def _address(number: str, address: str) -> Calls:
    return [("change_address", {"order": number, "address": address})]


# What breaks each rule at the request that tests it, and no other rule; `identity` is broken by no look-up.
WRONG: dict[str, Callable[[str], Calls]] = {
    "own orders": _cancel,
    "cancel pending": _cancel,
    "cancel reason": _cancel,
    "address pending": lambda number: _address(number, "Hill Road, 20095"),
    "postcode": lambda number: _address(number, "Hill Road"),
    "refund days": lambda number: _refund(number, 60),
    "refund method": lambda number: _refund(number, 60),
    "refund limit": lambda number: _refund(number, 350),
    "gift": lambda number: _refund(number, 60),
    "confirm": lambda number: _refund(number, 60, ask=False),
    "shipping cost": lambda number: _refund(number, 60),
}


@dataclasses.dataclass(frozen=True)
class Clerk:
    """Serves rightly but for its weaknesses. alone: how often it breaks a rule. together: how often it breaks the first
    of two rules in a conversation that tests both."""

    alone: Mapping[str, float]
    together: Mapping[tuple[str, str], float]

    def broken(self, rules: Sequence[str], draw: np.random.Generator) -> set[str]:
        """Draws the rules that it breaks in one conversation."""
        found = {rule for rule in rules if draw.random() < self.alone.get(rule, 0.0)}
        return found | {a for (a, b), p in self.together.items() if {a, b} <= set(rules) and draw.random() < p}

    def answers(self, row: Mapping[str, Any], broken: set[str]) -> list[str]:
        """Returns its answers, with the calls of one request each."""
        found = [] if "identity" in broken else [written_call("find_customer", {"email": row["email"]})]
        for request in row["requests"]:
            rule, number = request["rule"], request["order"]["number"]
            calls = WRONG[rule](number) if rule in broken and rule in WRONG else request["calls"]
            looked = written_call("get_order", {"order": number})
            found.append("\n".join([looked, *(written_call(name, arguments) for name, arguments in calls)]))
        return [*found, "That is all."]

    def serve(self, tests: Sequence[PolicyTest], seed: int) -> PolicyTestResults:
        """Plays the tests in the shop and returns which rules were broken, as the world judges."""
        draw, tasks, broken = np.random.default_rng([seed, 7]), Shop.of_tests(tests), []
        for i, test in enumerate(tests):
            task = tasks[i]
            episode = tasks.episode(task)
            episode.reset()
            for answer in self.answers(task.row, self.broken(test.policies, draw)):
                step = episode.step(answer)
            broken.append(step.info["violated"])
        names = [str(i) for i in range(len(tests))]
        return PolicyTestResults(names, [t.policies for t in tests], broken, [t.difficulty for t in tests])


def conversations(count: int, seed: int, same: float = 0.85) -> list[list[str]]:
    """Returns the rules that customers' conversations touch: two to four, and the next one of the same kind of request
    in a share `same` of the cases where there is one left."""
    draw, found = np.random.default_rng([seed, 8]), []
    flows = np.array([rule.flow for rule in RULES])
    for _ in range(count):
        path = [int(draw.integers(len(RULES)))]
        for _ in range(int(draw.integers(1, 4))):
            left = np.setdiff1d(np.arange(len(RULES)), path)
            alike = left[flows[left] == flows[path[-1]]]
            path.append(int(draw.choice(alike if len(alike) and draw.random() < same else left)))
        found.append([RULES[i].name for i in path])
    return found


def drawn_alike(tests: Sequence[PolicyTest], seed: int) -> list[PolicyTest]:
    """Returns as many tests of as many rules each, drawn uniformly without a graph."""
    draw, found = np.random.default_rng([seed, 9]), []
    for test in tests:
        chosen = draw.choice(len(RULES), len(test.policies), replace=False)
        found.append(PolicyTest(tuple(RULES[i].name for i in chosen), float(sum(RULES[i].challenge for i in chosen))))
    return found
