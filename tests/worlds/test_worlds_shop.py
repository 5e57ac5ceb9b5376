"""The shop: right service has reward 1, each planted fault breaks its own rule alone, and guards wrap its tools."""

from __future__ import annotations

import json

import pytest

from polopt.claims.problems.shop_clerk import Clerk, drawn_alike
from polopt.config import ConfigError
from polopt.worlds import PolicyTest, Shop, build_tasks, shop_graph
from polopt.worlds.shop import written_call
from polopt.worlds.shop_rules import RULES

EVERY = PolicyTest(tuple(rule.name for rule in RULES), 32.0)


def demonstrated(tasks, index):
    episode = tasks.episode(tasks[index])
    assert episode.reset() == tasks[index].prompt
    for _ in range(tasks.turns):
        step = episode.step(episode.demonstrate())
        if step.over:
            return step
    raise AssertionError("not over")


def test_right_service_breaks_no_rule() -> None:
    split = build_tasks({"kind": "shop", "train": 40, "heldout": 10}, seed=3)
    for tasks in (split.train, split.heldout, Shop.of_tests([EVERY])):
        for i in range(len(tasks)):
            step = demonstrated(tasks, i)
            assert (step.reward, step.info["violated"]) == (1.0, [])


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_a_fault_breaks_its_rule_alone(rule: str) -> None:
    found = Clerk({rule: 1.0}, {}).serve([EVERY, PolicyTest((rule,), 1.0)], seed=0)
    assert found.violated == [(rule,), (rule,)]


def test_doing_nothing_leaves_the_requests_that_should_change_something() -> None:
    tasks = Shop.of_tests([EVERY])
    episode = tasks.episode(tasks[0])
    episode.reset()
    step = episode.step("Goodbye.")
    refused = {"own orders", "cancel pending", "address pending", "refund days"}
    assert set(step.info["violated"]) == {rule.name for rule in RULES} - refused
    assert (step.reward, step.info["signals"]) == (
        0.0,
        {"violated": 8.0, "calls": 0.0, "first_call": -1.0, "malformed": 0.0},
    )


def test_tasks_are_the_same_for_a_seed_and_plain_data() -> None:
    one, two, other = (Shop(size=20, seed=seed) for seed in (5, 5, 6))
    assert [one[i] for i in range(20)] == [two[i] for i in range(20)] != [other[i] for i in range(20)]
    for i in range(20):
        row = json.loads(json.dumps(one[i].row))
        assert row == one[i].row
        assert row["difficulty"] == sum({r.name: r.challenge for r in RULES}[name] for name in row["policies"])
        assert row["difficulty"] >= one.thresholds[i % 5]
    split = Shop.split(train=30, heldout=30, seed=0)
    emails = [{tasks[i].row["email"] for i in range(30)} for tasks in (split.train, split.heldout)]
    assert not emails[0] & emails[1]
    assert len(drawn_alike(shop_graph().tests(9), 0)) == 9


def test_a_guard_refuses_a_refund_above_the_limit() -> None:
    spec = {
        "kind": "guarded",
        "of": {"kind": "shop", "train": 5, "heldout": 5},
        "rules": [{"tool": "refund_order", "effect": "forbid"}],
    }
    tasks = build_tasks(spec, seed=0).train
    episode = tasks.episode(tasks[0])
    episode.reset()
    number = tasks[0].row["requests"][0]["order"]["number"]
    step = episode.step(written_call("refund_order", {"order": number, "method": "card", "amount": 1}))
    assert step.info["signals"]["refused"] == 1


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("refund_order", {"method": "card", "amount": True}, "amount must be a number above 0, at most"),
        ("refund_order", {"method": ["card"], "amount": 1}, "method must be one of"),
        ("cancel_order", {"reason": {}}, "reason must be one of"),
        ("change_address", {"address": 5}, "address must be a text"),
        ("ask_customer", {"about": ["confirm"]}, "about must be one of"),
    ],
)
def test_calls_that_make_no_sense_are_errors_and_change_nothing(name, arguments, message) -> None:
    tasks = Shop.of_tests([EVERY])
    episode = tasks.episode(tasks[0])
    episode.reset()
    number = tasks[0].row["requests"][0]["order"]["number"]
    assert message in episode.step(written_call(name, {"order": number, **arguments})).observation
    assert "there is no such order" in episode.step(written_call("get_order", {"order": ["x"]})).observation
    assert "no such customer" in episode.step(written_call("find_customer", {"email": "nobody"})).observation
    assert episode.session.calls == []


def test_settings_that_make_no_shop() -> None:
    with pytest.raises(ValueError, match="need size >= 1 and thresholds above 0"):
        Shop(size=0)
    with pytest.raises(ValueError, match="there is no rule 'smile'"):
        Shop.of_tests([PolicyTest(("smile",), 1.0)])[0]
    with pytest.raises(ConfigError, match="thresholds"):
        build_tasks({"kind": "shop", "thresholds": [0]}, seed=0)
