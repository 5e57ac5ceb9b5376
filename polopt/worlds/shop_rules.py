"""The written rules of a shop's service, the orders and requests that test each, and checks of recorded calls."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

Order = dict[str, Any]
Call = tuple[str, dict[str, Any]]
Flow = Literal["cancel", "address", "refund"]

CHANGES = ("cancel_order", "change_address", "refund_order", "hand_over")
REASONS = ("by mistake", "not needed")
DAYS, LIMIT = 30, 200
# Of the orders of a flow, before a rule's own changes.
ORDERS: dict[Flow, Order] = {
    "cancel": {"status": "pending"},
    "address": {"status": "pending"},
    "refund": {"status": "delivered", "days": 5},
}
COMMON: Order = {"days": 0, "total": 60, "shipping": 0, "paid": "card", "gift": False, "address": "Mill Lane, 10115"}


@dataclasses.dataclass(frozen=True)
class ShopRecord:
    """The calls of a conversation that ran, in order. email: the customer's. orders: as they were, by number."""

    email: str
    orders: Mapping[str, Order]
    calls: Sequence[Call]

    def changes(self, tool: str) -> list[tuple[Order, dict[str, Any]]]:
        """Returns the order and the arguments of each call of a tool that changes one."""
        return [(self.orders[args["order"]], args) for name, args in self.calls if name == tool]


@dataclasses.dataclass(frozen=True)
class ShopRule:
    """A rule. text: as it is written. challenge: how hard it is to keep, 1 to 5. flow: the kind of request that tests
    it. kept: whether the calls of a record keep it. order: what the tested order has that others of its flow have not.
    request: what the customer writes. calls: the right calls, with the tested order's number for `#`.
    """

    name: str
    text: str
    challenge: float
    flow: Flow
    kept: Callable[[ShopRecord], bool]
    request: str
    calls: tuple[Call, ...] = ()
    order: Order = dataclasses.field(default_factory=dict)


def refund(amount: int = 60, method: str = "card") -> tuple[Call, ...]:
    """Returns the right calls of a refund."""
    return (
        ("ask_customer", {"order": "#", "about": "confirm"}),
        ("refund_order", {"order": "#", "method": method, "amount": amount}),
    )


def looked_up_first(record: ShopRecord) -> bool:
    """Returns whether the first call looks up the customer, if there is one."""
    return not record.calls or record.calls[0] == ("find_customer", {"email": record.email})


def own_orders(record: ShopRecord) -> bool:
    """Returns whether all changes are of the customer's orders."""
    return all(order["email"] == record.email for tool in CHANGES for order, _ in record.changes(tool))


def confirmed(record: ShopRecord) -> bool:
    """Returns whether each refund comes after the customer's confirmation."""
    asked: set[str] = set()
    for name, args in record.calls:
        if name == "ask_customer" and args["about"] == "confirm":
            asked.add(args["order"])
        elif name == "refund_order" and args["order"] not in asked:
            return False
    return True


def _all(tool: str, right: Callable[[Order, dict[str, Any]], bool]) -> Callable[[ShopRecord], bool]:
    return lambda record: all(right(order, args) for order, args in record.changes(tool))


RULES: tuple[ShopRule, ...] = (
    ShopRule(
        "identity",
        "Look up the customer by the e-mail address before anything else.",
        1,
        "cancel",
        looked_up_first,
        "Please cancel order #, it is not needed.",
        (("cancel_order", {"order": "#", "reason": "not needed"}),),
    ),
    ShopRule(
        "own orders",
        "Change orders of that customer alone; refuse others.",
        2,
        "cancel",
        own_orders,
        "Cancel my friend's order # too, it is not needed.",
        order={"email": "other@shop.example"},
    ),
    ShopRule(
        "cancel pending",
        "Cancel an order only while it is pending.",
        1,
        "cancel",
        _all("cancel_order", lambda order, args: order["status"] == "pending"),
        "Please cancel order #, it is not needed.",
        order={"status": "shipped"},
    ),
    ShopRule(
        "cancel reason",
        f"Record the customer's reason for a cancellation: {' or '.join(REASONS)}.",
        2,
        "cancel",
        _all("cancel_order", lambda order, args: args["reason"] == order.get("reason", args["reason"])),
        "Please cancel order #, which was made by mistake.",
        (("cancel_order", {"order": "#", "reason": "by mistake"}),),
        order={"reason": "by mistake"},
    ),
    ShopRule(
        "address pending",
        "Change an address only while the order is pending.",
        1,
        "address",
        _all("change_address", lambda order, args: order["status"] == "pending"),
        "Send order # to Hill Road, 20095 instead.",
        order={"status": "shipped"},
    ),
    ShopRule(
        "postcode",
        "An address needs a postcode of five digits; ask the customer for the address if it has none.",
        2,
        "address",
        _all("change_address", lambda order, args: bool(re.search(r"\b[0-9]{5}\b", args["address"]))),
        "Send order # to Hill Road instead.",
        (
            ("ask_customer", {"order": "#", "about": "address"}),
            ("change_address", {"order": "#", "address": "Hill Road, 20095"}),
        ),
    ),
    ShopRule(
        "refund days",
        f"Refund no order that was delivered over {DAYS} days ago.",
        2,
        "refund",
        _all("refund_order", lambda order, args: order["days"] <= DAYS),
        "I want my money back for order #.",
        order={"days": 45},
    ),
    ShopRule(
        "refund method",
        "Refund by the method of the payment, whatever the customer prefers.",
        3,
        "refund",
        _all("refund_order", lambda order, args: order["gift"] or args["method"] == order["paid"]),
        "I want my money back for order #, to my card please.",
        refund(method="account"),
        order={"paid": "account"},
    ),
    ShopRule(
        "refund limit",
        f"Hand over refunds of orders above {LIMIT} to a person.",
        4,
        "refund",
        _all("refund_order", lambda order, args: order["total"] <= LIMIT),
        "I want my money back for order #.",
        (("hand_over", {"order": "#"}),),
        order={"total": 350},
    ),
    ShopRule(
        "gift",
        "Refund gifts by voucher, however they were paid.",
        5,
        "refund",
        _all("refund_order", lambda order, args: not order["gift"] or args["method"] == "voucher"),
        "I return order #. What do I get for it?",
        refund(method="voucher"),
        order={"gift": True},
    ),
    ShopRule(
        "confirm",
        "Let the customer confirm a refund before it is made.",
        3,
        "refund",
        confirmed,
        "Order # goes back, I want my money for it.",
        refund(),
    ),
    ShopRule(
        "shipping cost",
        "Refund the total without the cost of shipping.",
        4,
        "refund",
        _all("refund_order", lambda order, args: args["amount"] == order["total"] - order["shipping"]),
        "I want all my money back for order #.",
        refund(amount=52),
        order={"shipping": 8},
    ),
)
BY_NAME = {rule.name: rule for rule in RULES}
