"""PolicyGuard: refuses calls that violate temporal rules, or that a detector takes for violations of a policy text."""

from collections.abc import Sequence
from typing import Any

from polopt.guards import AllowedByAll, Detector, DetectorGuard, Guard, TemporalGuard, temporal_rules
from polopt.guards.guard import Fallback
from polopt.method import Paper, method


@method(
    paper=Paper(
        title="Towards Policy-Compliant Agents: Learning Efficient Guardrails for Policy Violation Detection",
        authors="Wen, Xiaofei and Mo, Wenjie Jacky and Xie, Yanan and Qi, Peng and Chen, Muhao",
        year=2025,
        arxiv="2510.03485",
    ),
    changes="An agent's steps are judged by policies that oblige, forbid, order, or bind one event to another.",
    room="guards",
    tier="reading",
)
def policyguard(
    *,
    rules: list[Any] | None = None,
    tools: Sequence[str] = (),
    policies: Sequence[str] = (),
    detector: Detector | None = None,
    threshold: float = 0.9,
    fallback: Fallback = "message",
) -> Guard:
    """Four kinds of policy over the events of an episode, as formulas and as text, with a = event and b = other:

        obligation: F a;   prohibition: G !a;   ordering: !b U a;   conditional: G(a -> F b)

    Rules are exact: a call is refused after which one is violated whatever follows, and `guards.TemporalGuard` lists
    the obligations that are still open. Policies are texts: a call is refused after which detector(policy, steps) >=
    threshold. `guards.fit_classifier` trains a detector of some 10,000 parameters; any callable is one.

    rules: as for `guards.temporal_rules`. tools: names that may be called, "*" for any. policies, detector, threshold:
    of the second test, without which there is none. fallback: of both.

    Deviations. The paper fine-tunes a language model of 4 billion parameters on 60,000 labelled pairs of web episodes
    and policies; here the detector is small and reads policies by the words that they share with the steps. The
    formulas are our reading of the four kinds. The paper detects; refusing calls is ours. `metrics.ViolationDetection`
    has accuracy, F1, seconds and F1 per second, the last inferred from the paper's figures. Details of the training
    were not confirmed at the source.
    """
    exact = TemporalGuard(rules=temporal_rules(rules or []), tools=tuple(tools), fallback=fallback)
    if not policies:
        return exact
    if detector is None:
        raise ValueError("policyguard: policies need a detector, a callable detector(policy, steps) -> probability")
    learned = DetectorGuard(
        policies=tuple(policies), detector=detector, threshold=threshold, tools=tuple(tools), fallback=fallback
    )
    return AllowedByAll(guards=[exact, learned])
