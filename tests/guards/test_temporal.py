"""Temporal rules and detectors: bad input, undecidable conditions, what is still due, and training."""

from __future__ import annotations

import pytest
import torch

from polopt.config import ConfigError
from polopt.guards import (
    END,
    AllowedByAll,
    CallRefused,
    DetectorGuard,
    LabelledTrace,
    TemporalGuard,
    ToolCall,
    ViolationClassifier,
    fit_classifier,
    guarded,
    read_temporal_rules,
    step_text,
    temporal_rules,
)
from polopt.methods.policyguard import policyguard

LOGIN, BUY, PAY = (ToolCall(name, {}) for name in ("login", "buy", "pay"))
SHOP = [
    {"kind": "ordering", "event": "login", "other": "buy", "weak": True},
    {"kind": "conditional", "event": "buy", "other": "pay"},
    {"kind": "prohibition", "event": {"tool": "pay", "arguments": {"amount": {"exclusiveMinimum": 10}}}},
]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({}, "rules must be a list of rules"),
        ([{"event": "a"}], r"rules\[0\] must be \{kind: prohibition, event: delete\}"),
        ([{"kind": "prohibition", "event": "a", "evnt": 1}], r"rules\[0\].evnt is not a setting .* 'event'"),
        ([{"kind": "ordering", "event": "a"}], r"rules\[0\]: TemporalRule: ordering needs `other`"),
        ([{"kind": "obligation", "event": "a", "other": "b"}], "obligation has no `other`"),
        ([{"kind": "obligation", "event": "a", "weak": True}], "weak is a setting of ordering rules"),
        ([{"kind": "never", "event": "a"}], r"rules\[0\]: .* 'never'"),
        ([{"kind": "obligation", "event": 3}], r"rules\[0\].event must be the name of a tool"),
        (
            [{"kind": "obligation", "event": {"tool": "a", "arguments": {"x": {"enumm": 1}}}}],
            r"rules\[0\].event: .*enum",
        ),
    ],
)
def test_rules_at_the_door(data, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        temporal_rules(data)


def test_rules_of_a_file(tmp_path) -> None:
    (tmp_path / "rules.yaml").write_text("- {kind: ordering, event: login, other: buy}\n")
    (rule,) = read_temporal_rules(tmp_path / "rules.yaml")
    assert (rule.kind, rule.event.tool, rule.other.tool) == ("ordering", "login", "buy")
    with pytest.raises(ConfigError, match="does not exist"):
        read_temporal_rules(tmp_path / "none.yaml")


def test_what_is_undecidable_counts_against_the_call() -> None:
    """An amount that is left out, or written as text, may be forbidden, and is not what was required."""
    forbidden, required = temporal_rules(
        [
            {"kind": "prohibition", "event": {"tool": "pay", "arguments": {"amount": {"minimum": 10}}}},
            {"kind": "obligation", "event": {"tool": "pay", "arguments": {"amount": {"minimum": 10}}}},
        ]
    )
    for amount, verdicts in ((None, ("violated", "open")), ("50", ("violated", "open")), (5, ("open", "open")),
                             (50, ("violated", "satisfied"))):  # fmt: skip
        call = ToolCall("pay", {} if amount is None else {"amount": amount})
        assert (forbidden([call]), required([call])) == verdicts, amount


def test_what_is_due_at_the_end() -> None:
    guard = TemporalGuard(rules=temporal_rules(SHOP), tools=("login", "buy", "pay"))
    ran: list[str] = []
    safe = guarded({n: lambda n=n, **_: ran.append(n) for n in ("login", "buy", "pay", "drop")}, guard)
    with pytest.raises(CallRefused, match="login must be called before buy"):
        safe["buy"]()
    safe["login"]()
    assert guard.open_obligations(safe.memory) == []
    safe["buy"]()
    assert [rule.text() for rule in guard.open_obligations(safe.memory)] == ["after buy, pay must be called"]
    with pytest.raises(CallRefused, match="must never be called"):
        safe["pay"](amount=11)
    with pytest.raises(CallRefused, match="not among the tools"):
        safe["drop"]()
    safe["pay"](amount=10)
    assert guard.open_obligations(safe.memory) == []
    assert [status.verdict for status in guard.status(safe.memory)] == ["satisfied", "open", "open"]
    assert ran == ["login", "buy", "pay"]


def test_any_callable_is_a_detector() -> None:
    seen: list[tuple[str, list[str]]] = []

    def detector(policy: str, steps: list[str]) -> float:
        seen.append((policy, steps))
        return 1.0 if "gold" in steps[-1] else float("nan") if "tea" in steps[-1] else 0.1

    guard = policyguard(tools=["buy"], policies=["never buy gold"], detector=detector)
    assert isinstance(guard, AllowedByAll)
    found = [guard(ToolCall("buy", {"what": what})).allow for what in ("cake", "gold", "tea")]
    assert found == [True, False, False]  # what is not a number is no evidence
    assert seen[0] == ("never buy gold", ['buy {"what": "cake"}'])
    assert step_text(BUY) == "buy"
    with pytest.raises(ValueError, match="policies need a detector"):
        policyguard(policies=["x"])
    with pytest.raises(ValueError, match="detector must be callable"):
        DetectorGuard(policies=("x",), detector=3)
    with pytest.raises(ValueError, match=r"threshold must be in \(0, 1\]"):
        DetectorGuard(policies=("x",), detector=detector, threshold=0.0)


def test_a_classifier_is_trained_repeated_and_saved() -> None:
    """Two policies that a look at one word decides; names of events are in no vocabulary."""
    examples = [
        LabelledTrace(policy, steps, violated)
        for steps in (["buy", "pay"], ["login"], ["login", "pay"])
        for policy, violated in (("never pay", "pay" in steps), ("must pay", "pay" not in steps))
    ]
    first, second = (fit_classifier(examples * 8, width=8, epochs=20, batch=16, lr=0.03, seed=1) for _ in range(2))
    assert first.words == ("must", "never")
    for example in examples:
        p = first(example.policy, [*example.steps, END])
        assert (p > 0.5) is example.violated, example
        assert p == second(example.policy, [*example.steps, END])
    restored = ViolationClassifier(words=first.words, width=8)
    restored.load_state_dict(first.state_dict())
    assert restored("never pay", ["pay"]) == first("never pay", ["pay"])
    batch = first.logits(["never pay", "must pay"], [["pay", END], ["login", "buy", "search"]])
    alone = [first.logits([p], [s]) for p, s in (("never pay", ["pay", END]), ("must pay", ["login", "buy", "search"]))]
    torch.testing.assert_close(batch, torch.cat(alone))
    with pytest.raises(ValueError, match="and others"):
        fit_classifier(examples[:1])
