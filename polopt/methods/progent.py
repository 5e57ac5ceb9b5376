"""Progent: privilege rules over the tool calls of an agent; every other call is refused."""

from typing import Any, Literal

from polopt.guards import (
    NarrowingUpdate,
    PolicyUpdate,
    Privileges,
    ReplacingUpdate,
    privilege_rules,
)
from polopt.method import Paper, method


@method(
    paper=Paper(
        title="Progent: Programmable Privilege Control for LLM Agents",
        authors="Shi, Tianneng and He, Jingxuan and Wang, Zhun and others",
        year=2025,
        arxiv="2504.11703",
    ),
    changes="A tool call runs only if a rule on its arguments allows it; later rules may only narrow.",
    room="guards",
    tier="proven",
)
def progent(
    *,
    rules: list[Any] | None = None,
    fallback: Literal["message", "end", "ask"] = "message",
    missing: Literal["deny", "skip"] = "deny",
    narrow_only: bool = True,
) -> Privileges:
    """Verdict of the first rule whose conditions all hold. Rules of a tool, (priority, allow or forbid, conditions on
    arguments, fallback, update), are tried from the lowest priority number up, forbidding ones first at one number:

        allow -> the call runs, and the rule's update comes into force;   forbid, or no rule at all -> its fallback.

    Default: refused, tools without rules included. Fallbacks: an error message to the model, the end of the episode,
    or human approval, without which the call is refused.

    Deviations. The paper accepts an update that a solver proves to be narrower; here an update is added to the rules
    before it, so that it can only narrow, whatever its content (narrow_only=False: it replaces them). An update
    applies to the tools that it names. A restricted argument that a call leaves out counts against the call, where the
    paper's code skips it (missing="skip"); patterns match the whole text, where the code matches a beginning; a keyword
    about numbers does not hold for a text. Supported conditions: const, enum, type, pattern, bounds, lengths, items,
    anyOf, not; others are refused. Rules that a language model writes are taken by `guards.proposed`, which can only
    narrow; `guards.analyse` finds rules that overlap, or never decide, and `guards.narrowing` proves that rules are
    narrower, both by the solver z3 where it is installed, as in the paper, and by a conservative test elsewhere.
    """
    updates: PolicyUpdate = NarrowingUpdate() if narrow_only else ReplacingUpdate()
    return Privileges(rules=privilege_rules(rules or []), fallback=fallback, missing=missing, updates=updates)
