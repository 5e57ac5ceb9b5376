"""Random episodes over a few events, policies of four kinds in words, and exact labels."""

from __future__ import annotations

import functools
import itertools
import random

from polopt.guards import (
    CallPattern,
    LabelledTrace,
    TemporalRule,
    ToolCall,
    ViolationClassifier,
    fit_classifier,
)
from polopt.guards.temporal import SENTENCES, TWO_EVENTS, TemporalKind

EVENTS = ("login", "search", "open", "buy", "pay", "mail", "post", "delete", "share", "rate", "confirm", "logout")
RULES, TRAINED, TRACES = 40, 30, 5000
# Two wordings of each kind, so that the position of an event alone does not give its role.
WORDINGS: dict[TemporalKind, tuple[str, str]] = {
    "obligation": ("{event} must be called", "never finish without {event}"),
    "prohibition": ("{event} must never be called", "the agent may not do {event}"),
    "ordering": ("{event} must be called before {other}", "{other} is only allowed once {event} was done"),
    "conditional": ("after {event}, {other} must be called", "do {other} at some time after every {event}"),
}
assert WORDINGS.keys() == SENTENCES.keys()


def rules(draw: random.Random) -> list[tuple[TemporalRule, str]]:
    """Returns different rules, ten of each kind, in random order; half of each kind have its first wording."""
    found = []
    for kind, wordings in WORDINGS.items():
        pairs = list(itertools.permutations(EVENTS, 2)) if kind in TWO_EVENTS else [(event, "") for event in EVENTS]
        for i, (event, other) in enumerate(draw.sample(pairs, RULES // 4)):
            pattern = CallPattern(tool=other) if other else None
            rule = TemporalRule(kind=kind, event=CallPattern(tool=event), other=pattern, weak=kind == "ordering")
            found.append((rule, wordings[i % 2].format(event=event, other=other)))
    draw.shuffle(found)
    return found


def episodes(draw: random.Random, count: int) -> list[list[ToolCall]]:
    return [[ToolCall(draw.choice(EVENTS), {}) for _ in range(draw.randint(4, 10))] for _ in range(count)]


def labelled(rule: TemporalRule, text: str, calls: list[ToolCall]) -> LabelledTrace:
    return LabelledTrace(text, [call.name for call in calls], rule(calls, ended=True) == "violated")


@functools.cache
def trained(seed: int) -> tuple[ViolationClassifier, list[tuple[TemporalRule, str]], list[tuple[TemporalRule, str]]]:
    """Trains a classifier on 30 of 40 rules, and returns it with those rules and the ten others."""
    draw = random.Random(f"policies/{seed}")
    every = rules(draw)
    seen, unseen = every[:TRAINED], every[TRAINED:]
    examples = [labelled(*draw.choice(seen), calls) for calls in episodes(draw, TRACES)]
    return fit_classifier(examples, epochs=5, seed=seed), seen, unseen
