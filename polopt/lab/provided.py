"""The capabilities of the lab's tree as a trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from polopt.algorithm import Algorithm
from polopt.capabilities import CORE_FIELDS, Capabilities
from polopt.fields import policy_field
from polopt.lab.tree import TokenTree
from polopt.policies.vocabulary import REDUCTIONS
from polopt.sampling.source_protocols import CAPABILITIES, STEPPED

SIGNAL = "extras.signal_"
_FIELDS = CORE_FIELDS | {
    *("entropy", "advantage", "turn", "extras.given", "extras.hinted", "extras.greedy_reward", "extras.prompt_logp"),
    *("extras.tokens", "extras.answer", "extras.kind", "extras.index", "extras.leaf", "extras.answer_reward"),
}
# `TreeSource` has all of them, for a policy with a critic and for temperatures that do not follow the entropy.
TREE = Capabilities(
    name="the lab's tree",
    advantage_fields=_FIELDS,
    loss_fields=_FIELDS,
    policy_outputs=frozenset({"entropy", "logits", "value", "extras.candidate_logp", "extras.hidden"})
    | {f"extras.{name}" for name in REDUCTIONS},
    layers=True,
    old_outputs=True,
    source_capabilities=frozenset(CAPABILITIES) - STEPPED | {"rollouts"},
    updates=frozenset({"optimiser", "batch", "laws"}),
    teaches=False,
    clauses={
        "": "needs {names}, which {loop} cannot provide; take another part, or a source of your own",
        "extras.is_opponent": "compares answers with an opponent's, and nothing samples any; add "
        "sampling.OpponentRollouts() to sampling.mix",
        SIGNAL: "reads {names}, which {loop} does not tell{nearest}; give them as signals={name: worth of each answer}",
        "teacher": "is not there; make it of the policy and give it as teacher=TreeTeacher(policy, algorithm.teacher)",
    },
)


def check_on_tree(
    algorithm: Algorithm,
    tree: TokenTree,
    *,
    teacher: bool = False,
    signals: Iterable[str] = (),
    policies: Iterable[str] = (),
) -> None:
    """Raises UnprovidedError if an algorithm needs a field that neither `TREE` nor the tree's leaves provide.

    teacher: whether there is one.
    signals: names of the further signals of an answer.
    policies: names of the policies beside the learner.

    Raises:
        UnprovidedError: naming the part, the missing field and the fix.
    """
    tree_fields = {SIGNAL + name for name in signals} | {f"extras.{name}" for name in tree.leaves().extras}
    fields = TREE.advantage_fields | tree_fields | {policy_field(name) for name in policies}
    dataclasses.replace(TREE, teaches=teacher, advantage_fields=fields, loss_fields=fields).check(algorithm)
