"""These programs measure what the paper of PolicyGuard claims."""

import itertools
import random

import numpy as np
import torch

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.traces import EVENTS, episodes, labelled, rules, trained
from polopt.guards import END, CallPattern, GuardVerdict, TemporalGuard, TemporalRule, ToolCall, ViolationClassifier
from polopt.methods.policyguard import policyguard
from polopt.metrics import DetectedViolations, ViolationDetection

TESTED = 1500


def scores(found: ViolationClassifier, texts: list[str], traces: list[list[str]]) -> np.ndarray:
    with torch.no_grad():
        return found.logits(texts, traces).sigmoid().numpy()


@claim(
    "A small detector finds violations of policies that it was not trained on, of kinds that it was.",
    kind="headline",
    baseline="the better of the two constant answers, whose F1 is that of reporting every episode",
    cost="slow",
)
def unseen_policies() -> Finding:
    detector, seen, unseen = trained(0)
    draw = random.Random("tested")
    measured: dict[str, float] = {}
    intervals = {}
    for name, known in (("seen", seen), ("unseen", unseen)):
        examples = [labelled(*draw.choice(known), calls) for calls in episodes(draw, TESTED)]
        p = scores(detector, [x.policy for x in examples], [[*x.steps, END] for x in examples])
        result = ViolationDetection()(DetectedViolations([x.violated for x in examples], p))
        measured |= {f"F1, {name} policies": result.values["F1"]}
        measured |= {f"F1 of a constant, {name}": result.values["F1 of a constant"]}
        intervals[f"F1, {name} policies"] = (result.intervals["F1"].low, result.intervals["F1"].high)
    return Finding(
        measured=measured | {"parameters": sum(p.numel() for p in detector.parameters())},
        criterion="F1 >= 0.9 on seen policies and >= 0.8 on unseen ones, both above the constant's; < 1e6 parameters",
        holds=measured["F1, seen policies"] >= 0.9
        and measured["F1, unseen policies"] >= max(0.8, measured["F1 of a constant, unseen"]),
        intervals=intervals,
        note="5,000 random episodes of 4 to 10 of 12 events, 40 policies in one of two wordings of their kind, 30 "
        "of them for training; 1,500 new episodes. Intervals are over episodes, not over policies. Made-up policies: "
        "nothing is claimed of texts that people write.",
    )


@claim(
    "After more steps violations are found as well or better, and where a beginning decides, it is right.",
    kind="part",
    baseline="none: the exact rules decide beginnings without error",
    cost="slow",
)
def beginnings() -> Finding:
    detector, seen, _ = trained(0)
    draw = random.Random("beginnings")
    chosen = [(*draw.choice(seen), calls) for calls in episodes(draw, TESTED)]
    truth = np.array([labelled(*each).violated for each in chosen])
    f1, agree, decided = [], 0, 0
    for n in range(1, 6):
        starts = [calls[:n] for _, _, calls in chosen]
        p = scores(detector, [text for _, text, _ in chosen], [[c.name for c in start] for start in starts])
        result = ViolationDetection(resamples=1)(DetectedViolations(truth, p))
        f1.append(result.values["F1"])
        verdicts = [rule(start) for (rule, _, _), start in zip(chosen, starts, strict=True)]
        for verdict, x in zip(verdicts, p, strict=True):
            decided += verdict != "open"
            agree += verdict != "open" and (x >= 0.5) == (verdict == "violated")
    drop = max(a - b for a, b in itertools.pairwise(f1))
    return Finding(
        measured={**{f"F1 after {n}": x for n, x in enumerate(f1, 1)}, "agreement where decided": agree / decided},
        criterion="no F1 after 1 to 5 steps is more than 0.02 below the one before; agreement >= 0.95",
        holds=drop <= 0.02 and agree / decided >= 0.95,
        note="Policies of training, new episodes; a beginning is decided if the exact verdict is not open.",
    )


def by_definition(rule: TemporalRule, trace: tuple[str, ...]) -> bool:
    """Tests whether a finished trace satisfies the rule's formula, with each operator written out over positions."""
    a = [event == rule.event.tool for event in trace]
    b = [rule.other is not None and event == rule.other.tool for event in trace]
    n = range(len(trace))
    if rule.kind == "obligation":
        return any(a)
    if rule.kind == "prohibition":
        return not any(a)
    if rule.kind == "ordering":
        until = any(a[i] and not any(b[j] for j in range(i)) for i in n)
        return until or (rule.weak and not any(b))
    return all(not a[i] or any(b[j] for j in n if j >= i) for i in n)


@claim(
    "The verdict on a beginning is that of all of its continuations.",
    kind="identity",
    baseline="every continuation of up to three events, each by the formula's definition",
)
def verdicts_exact() -> Finding:
    wrong = compared = 0
    for kind, weak in (("obligation", 0), ("prohibition", 0), ("ordering", 0), ("ordering", 1), ("conditional", 0)):
        other = CallPattern(tool="b") if kind in ("ordering", "conditional") else None
        rule = TemporalRule(kind=kind, event=CallPattern(tool="a"), other=other, weak=bool(weak))  # type: ignore[arg-type]
        for n in range(5):
            for trace in itertools.product("abc", repeat=n):
                more = [m for k in range(4) for m in itertools.product("abc", repeat=k)]
                after = [by_definition(rule, (*trace, *m)) for m in more]
                expected = "satisfied" if all(after) else "open" if any(after) else "violated"
                calls = [ToolCall(event, {}) for event in trace]
                wrong += rule(calls) != expected
                wrong += rule(calls, ended=True) != ("satisfied" if by_definition(rule, trace) else "violated")
                compared += 2
    return Finding({"wrong verdicts": wrong, "compared": compared}, "0 wrong", wrong == 0)


@claim(
    "An agent behind the rules never does what they forbid, and does all else.",
    kind="part",
    baseline="the same agent without a guard",
)
def refuses_violations() -> Finding:
    violated = {True: 0, False: 0}
    needless = refused = 0
    for seed in range(40):
        draw = random.Random(seed)
        known = [rule for rule, _ in rules(draw)][:6]
        guard = policyguard(rules=known, tools=EVENTS)
        free: list[ToolCall] = []
        memory: list[ToolCall] = []
        for call in episodes(draw, 1)[0]:
            free.append(call)
            if guard(call, memory).allow:
                memory.append(call)
                continue
            refused += 1
            after = tuple(each.name for each in (*memory, call))
            # Without a future that meets the rule: none of two more events does.
            more = [m for k in range(3) for m in itertools.product(EVENTS, repeat=k)]
            needless += all(any(by_definition(r, (*after, *m)) for m in more) for r in known)
        for guarded, calls in ((True, memory), (False, free)):
            violated[guarded] += sum(rule(calls) == "violated" for rule in known)
    return Finding(
        measured={"violations": violated[True], "without a guard": violated[False], "refused": refused,
                  "refused needlessly": needless},
        criterion="0 violations with the guard, more than 20 without it, none refused needlessly",
        holds=violated[True] == needless == 0 and violated[False] > 20,
        note="40 random agents of 4 to 10 calls, six random rules each.",
    )  # fmt: skip


@mutation("Which policy words occur in a step is not used.", kills=unseen_policies)
def no_matches(replace: Replace) -> None:
    logits = ViolationClassifier.logits
    replace(
        ViolationClassifier,
        "logits",
        lambda self, policies, traces: logits(self, policies, [[s if s == END else "" for s in t] for t in traces]),
    )


@mutation("An event that obliges is forgotten with the next one.", kills=verdicts_exact)
def forgets(replace: Replace) -> None:
    right = TemporalRule.forward

    def wrong(self: TemporalRule, trace: list[ToolCall], ended: bool = False) -> str:
        return right(self, trace[-1:] if self.kind == "conditional" else trace, ended)

    replace(TemporalRule, "forward", wrong)


@mutation("The rules see the calls before, and not the one to be decided on.", kills=refuses_violations)
def sees_too_late(replace: Replace) -> None:
    right = TemporalGuard.forward

    def late(self: TemporalGuard, call: ToolCall, memory: tuple[ToolCall, ...] = ()) -> GuardVerdict:
        return right(self, memory[-1], memory[:-1]) if memory else GuardVerdict(True)

    replace(TemporalGuard, "forward", late)
