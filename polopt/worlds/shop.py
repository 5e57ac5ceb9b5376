"""A shop's service: requests of a customer, tools that look up and change orders, and written rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polopt.guards import ToolCall
from polopt.worlds.policy_graph import PolicyGraph, PolicyTest, policy_test_rows, policy_violations
from polopt.worlds.protocol import Step, Task, TaskSplit
from polopt.worlds.shop_rules import BY_NAME, CHANGES, COMMON, ORDERS, REASONS, RULES, Call, Order, ShopRecord
from polopt.worlds.tools import TOOL_SIGNALS, ToolEpisode, described_tools, tool_calls

KIND, TURNS = "shop", 40
# How often rules come up together if nothing is known of conversations: of one kind of request, and of two.
SAME_FLOW, OTHER_FLOW = 6.0, 1.0


class ShopSession:
    """One conversation: the tools over the orders of a task, and the record of the calls that ran.

    A tool that cannot do what a call demands raises a ValueError; rules are the agent's to keep, and no tool does.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = row
        self.email: str = row["email"]
        self.orders: dict[str, Order] = {request["order"]["number"]: request["order"] for request in row["requests"]}
        self.calls: list[Call] = []

    def tools(self) -> dict[str, Callable[..., Any]]:
        own = (self.find_customer, self.get_order, self.ask_customer, self.cancel_order, self.change_address)
        return {tool.__name__: tool for tool in (*own, self.refund_order, self.hand_over)}

    def find_customer(self, email: str) -> Any:
        """Looks up a customer: the numbers of the orders."""
        found = [number for number, order in self.orders.items() if order["email"] == email]
        if not found and email != self.email:
            raise ValueError("there is no such customer")
        self.calls.append(("find_customer", {"email": email}))
        return {"orders": found}

    def get_order(self, order: str) -> Any:
        """Shows an order."""
        found = self._order(order)
        self.calls.append(("get_order", {"order": order}))
        return {name: value for name, value in found.items() if name != "reason"}

    def ask_customer(self, order: str, about: str) -> str:
        """Asks about an order; about: confirm or address."""
        self._order(order)
        replies = {"confirm": "yes, please", "address": "it is Hill Road, 20095"}
        if not isinstance(about, str) or about not in replies:
            raise ValueError(f"about must be one of {', '.join(replies)}")
        self.calls.append(("ask_customer", {"order": order, "about": about}))
        return replies[about]

    def cancel_order(self, order: str, reason: str) -> str:
        """Cancels an order; reason: as the rules have it."""
        if reason not in REASONS:
            raise ValueError(f"reason must be one of {', '.join(REASONS)}")
        return self._change("cancel_order", order, reason=reason)

    def change_address(self, order: str, address: str) -> str:
        """Changes where an order is sent."""
        if not isinstance(address, str) or not address.strip():
            raise ValueError("address must be a text")
        return self._change("change_address", order, address=address)

    def refund_order(self, order: str, method: str, amount: float) -> str:
        """Pays money back; method: card, account or voucher."""
        if method not in ("card", "account", "voucher"):
            raise ValueError("method must be one of card, account, voucher")
        total = self._order(order)["total"]
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 < amount <= total:
            raise ValueError(f"amount must be a number above 0, at most {total}")
        return self._change("refund_order", order, method=method, amount=amount)

    def hand_over(self, order: str) -> str:
        """Hands an order over to a person."""
        return self._change("hand_over", order)

    def _order(self, number: str) -> Order:
        if not isinstance(number, str) or number not in self.orders:
            raise ValueError("there is no such order")
        return self.orders[number]

    def _change(self, tool: str, order: str, **arguments: Any) -> str:
        self._order(order)
        self.calls.append((tool, {"order": order, **arguments}))
        return "done"

    def violated(self, rules: Sequence[str] | None = None) -> list[str]:
        """Returns the broken rules among some, all by default: those whose check fails, and those whose own request
        does not have the right end."""
        record = ShopRecord(self.email, self.orders, self.calls)
        checks = {rule.name: (lambda found, rule=rule: rule.kept(found) and self._ends(rule.name)) for rule in RULES}
        return policy_violations(BY_NAME if rules is None else rules, record, checks)

    def _ends(self, rule: str) -> bool:
        """Returns whether the changes of the orders that test a rule are the right ones, each made once."""
        for request in self.row["requests"]:
            if request["rule"] == rule:
                number = request["order"]["number"]
                made = [[name, args] for name, args in self.calls if name in CHANGES and args["order"] == number]
                if made != [list(call) for call in request["calls"] if call[0] in CHANGES]:
                    return False
        return True

    def score(self, answer: str) -> float:
        return float(not self.violated())

    def demonstrate(self) -> str:
        """Returns the next of the right calls, and an answer after the last."""
        right: list[Call] = [("find_customer", {"email": self.email})]
        for request in self.row["requests"]:
            right.append(("get_order", {"order": request["order"]["number"]}))
            right += [(name, dict(args)) for name, args in request["calls"]]
        ahead = [call for call in right if call not in self.calls]
        return written_call(*ahead[0]) if ahead else "That is all."


def written_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Writes a call as the tools read it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': dict(arguments)})}</tool_call>"


class ShopEpisode(ToolEpisode):
    """A conversation; `info["violated"]` lists the broken rules, and the signal "violated" counts them."""

    def __init__(self, task: Task) -> None:
        super().__init__(ShopSession(task.row), task)

    def reset(self) -> str:
        session = ShopSession(self.task.row)
        self.session, self.tools = session, dict(session.tools())
        return super().reset()

    def step(self, action: str) -> Step:
        step = super().step(action)
        broken = self.session.violated()  # type: ignore[attr-defined]
        signals = {**step.info["signals"], "violated": float(len(broken))}
        return step._replace(info={**step.info, "violated": broken, "signals": signals})


def shop_row(test: PolicyTest, first: int = 1000) -> dict[str, Any]:
    """Returns the row of a task that tests these rules, in order, with a prompt.

    first: the number of the first order; each request has an order of its own.

    Raises:
        ValueError: a rule that the shop has not.
    """
    if unknown := [name for name in test.policies if name not in BY_NAME]:
        raise ValueError(f"shop: there is no rule {unknown[0]!r:.60}; there are {', '.join(BY_NAME)}")
    email = f"customer{first}@shop.example"
    requests, lines = [], []
    for place, name in enumerate(test.policies):
        rule, number = BY_NAME[name], str(first + place)
        order = {"number": number, "email": email, **COMMON, **ORDERS[rule.flow], **rule.order}
        calls = [
            [tool, {key: number if value == "#" else value for key, value in args.items()}] for tool, args in rule.calls
        ]
        lines.append(rule.request.replace("#", number))
        requests.append({"rule": name, "order": order, "text": lines[-1], "calls": calls})
    found = {"email": email, "requests": requests}
    rules = "\n".join(f"- {rule.text}" for rule in RULES)
    prompt = (
        f"You serve customers of a shop. Rules:\n{rules}\nTools:\n{described_tools(ShopSession(found).tools())}\n"
        f"A call is {written_call('get_order', {'order': '1'})}; an answer without calls ends the conversation.\n"
        f"{email} writes: {' '.join(lines)}"
    )
    return {**found, "prompt": prompt}


def shop_graph(same_flow: float = SAME_FLOW, other_flow: float = OTHER_FLOW) -> PolicyGraph:
    """Returns the graph of the shop's rules, whose weights tell requests of one kind from others."""
    flows = np.array([rule.flow for rule in RULES])
    weight = np.where(flows[:, None] == flows, same_flow, other_flow)
    return PolicyGraph(tuple(BY_NAME), np.array([rule.challenge for rule in RULES]), weight)


class Shop:
    """Tasks of serving a customer, each a test from a walk over `shop_graph()`; reward 1 if no rule is broken and all
    requests have the right end, else 0.

    The tools are those of `ShopSession`, so that a guard can wrap the world. A guard or a policy sees texts and calls
    alone; which rules a task tests is in its row, as `policies` and `difficulty`.

    thresholds: least difficulties of the tests, in turn. tests: given tests, in the place of walks.
    size: number of tasks. seed: task i is the same for the same seed, on every machine.

    Raises:
        ValueError: size < 1, or no thresholds above 0.
    """

    turns, signals = TURNS, ("violated", *TOOL_SIGNALS)

    def __init__(
        self,
        *,
        size: int,
        seed: int = 0,
        thresholds: Sequence[float] = (2, 4, 6, 8, 10),
        heldout: bool = False,
        tests: Sequence[PolicyTest] | None = None,
    ) -> None:
        if size < 1 or not len(thresholds) or min(thresholds) <= 0:
            raise ValueError(f"shop: need size >= 1 and thresholds above 0, found {size} and {list(thresholds)}")
        self.size, self.seed, self.thresholds, self.heldout = size, seed, tuple(thresholds), heldout
        self.tests, self.graph = tests, shop_graph()

    @classmethod
    def of_tests(cls, tests: Sequence[PolicyTest]) -> Shop:
        """Returns the tasks of given tests."""
        return cls(size=len(tests), tests=tests)

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, thresholds: Sequence[float] = (2, 4, 6, 8, 10)) -> TaskSplit:
        """Returns training and held-out tasks; the customers and the numbers of their orders differ."""
        return TaskSplit(
            cls(size=train, seed=seed, thresholds=thresholds),
            cls(size=heldout, seed=seed, thresholds=thresholds, heldout=True),
        )

    @property
    def kinds(self) -> list[str]:
        return [KIND]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = np.random.default_rng([self.seed, int(self.heldout), index])
        given = self.tests
        test = self.graph.walk(self.thresholds[index % len(self.thresholds)], draw) if given is None else given[index]
        first = 1000 + 20 * int(draw.integers(400)) + 10000 * self.heldout
        (row,) = policy_test_rows([test], lambda test: shop_row(test, first))
        prompt = row.pop("prompt")
        return Task(f"{KIND}/{self.seed}/{int(self.heldout)}/{index}", KIND, prompt, None, {**row, "event": str(index)})

    def episode(self, task: Task) -> ShopEpisode:
        return ShopEpisode(task)

    def tool_calls(self, text: str) -> list[ToolCall]:
        return tool_calls(text)
