"""These programs measure what the paper of InfoCons claims."""

from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.phrasings import dependence, divergence, recommender
from polopt.experience import Experience
from polopt.features.base import Grouping
from polopt.features.groupings import SameKind, WholeBatch
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import Less, More, effect
from polopt.methods.infocons import ParaphraseConsistency, infocons


def train_policy(tree: TokenTree, policy: TabularPolicy, within: Grouping | None = None, **settings: Any) -> None:
    """Train 40 batches on a tree whose kinds of prompts are the meanings."""
    algorithm = infocons(group=16, kl=0.0, within=within or SameKind(), **settings).but({"sampling.guide": None})
    train(algorithm, tree, policy, steps=40, rate=20.0, rows=tree.prompts)


def _alike(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """Divergence between phrasings, and dependence on the need, over those at the start."""
    tree, policy = recommender(seed=seed)
    before = divergence(tree, policy), dependence(tree, policy)
    train(algorithm, tree, policy, steps=40, rate=step_size, rows=tree.prompts, seed=seed)
    return {"divergence": divergence(tree, policy) / before[0], "dependence": dependence(tree, policy) / before[1]}


def _rewarded(steady: float = 1.0, **settings: Any) -> Algorithm:
    return infocons(group=16, kl=0.0, within=SameKind(), steady=steady, **settings).but({"sampling.guide": None})


@effect(
    "Paid for equal entropies, phrasings come to be answered alike: the divergence falls to a fifth.",
    kind="headline",
    method=lambda: _rewarded(by="entropy"),
    controls={"no consistency": lambda: _rewarded(steady=0.0)},
    step_sizes=(1.25, 5.0, 20.0, 80.0, 320.0),
    criteria=[Less("divergence", times=0.2), More("dependence", by=-0.1)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="Entropies agree where contents do not: see the next claim and `counter_example`.",
)
def paid_for_entropy(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _alike(algorithm, seed, step_size)


@effect(
    "Paid for content, phrasings come to be answered alike, and what is needed still decides the answer.",
    kind="ours",
    method=lambda: _rewarded(by="content"),
    controls={"paid for entropy": lambda: _rewarded(by="entropy")},
    step_sizes=(1.25, 5.0, 20.0, 80.0, 320.0),
    criteria=[Less("divergence", times=0.2), More("dependence", by=-0.1)],
    seeds=5,
    trials=1,
    cost="slow",
)
def alike(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _alike(algorithm, seed, step_size)


@claim(
    "Equal entropies, nothing in common: paid for entropy, two phrasings stay apart.",
    kind="limit",
    baseline="paid for content",
)
def counter_example() -> Finding:
    found = {}
    for by in ("entropy", "content"):
        tree = TokenTree.bandit(torch.zeros(2, 4).tolist(), kinds=["one", "one"])
        policy = TabularPolicy(tree).set_probabilities(
            torch.tensor([[0.49, 0.49, 0.01, 0.01], [0.01, 0.01, 0.49, 0.49]], dtype=torch.double)
        )
        found[f"divergence before, {by}"] = divergence(tree, policy)
        train_policy(tree, policy, by=by, helpful=0.0)
        p = tree.log_probabilities(policy).detach().exp()
        entropy = -torch.special.xlogy(p, p).sum(1)
        found[f"divergence, {by}"] = divergence(tree, policy)
        found[f"entropies apart, {by}"] = (entropy[0] - entropy[1]).abs().item()
    return Finding(
        measured=found,
        criterion="by entropy > 0.5 bits with entropies less than 0.1 nats apart, by content < 0.05 bits",
        holds=found["divergence, entropy"] > 0.5
        and found["entropies apart, entropy"] < 0.1
        and found["divergence, content"] < 0.05,
    )


@claim(
    "Steadiness alone over too wide a group makes one answer of all: what is needed no longer matters.",
    kind="limit",
    baseline="a group for each meaning",
    refuted=True,
)
def too_wide() -> Finding:
    found = {}
    for name, within in (("of one meaning", SameKind()), ("of everything", WholeBatch())):
        tree, policy = recommender()
        before = dependence(tree, policy)
        train_policy(tree, policy, by="content", helpful=0.0, within=within)
        found[f"dependence kept, groups {name}"] = dependence(tree, policy) / before
    return Finding(
        measured=found,
        criterion="< 0.1 with one group of everything, >= 0.9 with a group for each meaning",
        holds=found["dependence kept, groups of everything"] < 0.1
        and found["dependence kept, groups of one meaning"] >= 0.9,
        note="The best that this reward knows is one answer for everything, and it is not found: each prompt is soon "
        "certain of an answer of its own, and who is certain no longer tries others. What is needed is lost in part.",
    )


@mutation("The consistency counts against the answer.", kills=counter_example)
def wrong_sign(replace: Replace) -> None:
    forward = ParaphraseConsistency.forward

    def bent(self: ParaphraseConsistency, experience: Experience) -> torch.Tensor:
        return -forward(self, experience)

    replace(ParaphraseConsistency, "forward", bent)


@mutation("Each phrasing is compared with itself.", kills=counter_example)
def with_itself(replace: Replace) -> None:
    forward = ParaphraseConsistency.forward

    def bent(self: ParaphraseConsistency, experience: Experience) -> torch.Tensor:
        return forward(self.but(within=self.of), experience)

    replace(ParaphraseConsistency, "forward", bent)
