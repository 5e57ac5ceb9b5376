"""These programs measure what the paper "From r to Q*" claims."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import More, effect
from polopt.lab.preferences import descended, paired
from polopt.lab.soft_values import soft_optimum
from polopt.methods.dpo import dpo
from polopt.methods.r_to_q import r_to_q
from polopt.metrics import ScoredTokens

BETA, LENGTH, TOKENS = 0.5, 4, 4

# How credit is read from the log-probabilities [B, T] of policy and reference.
Reading = Callable[[Experience, Tensor, Tensor], tuple[Tensor, Tensor]]


def faulty(seed: int, pairs: int = 200) -> tuple[TokenTree, TabularPolicy, Experience, Tensor]:
    """Returns answers of four tokens, of which one token at each place is wrong and costs 1; a reference with
    preferences of its own, as strong as those; comparisons of its answers by Bradley-Terry raters; and which tokens of
    all answers are wrong."""
    g = torch.Generator().manual_seed(seed)
    bad = torch.randint(TOKENS, (LENGTH,), generator=g)
    tree = TokenTree.full(TOKENS, LENGTH, lambda _, answer: -float((torch.tensor(answer) == bad).sum()))
    reference = TabularPolicy(tree, spread=2.0, seed=seed, tied=tree.positions)
    share = tree.log_probabilities(reference).detach()[0].exp()
    drawn = torch.multinomial(share, 2 * pairs, replacement=True, generator=g).view(-1, 2)
    gap = tree.outcome[0][drawn[:, 0]] - tree.outcome[0][drawn[:, 1]]
    first = torch.rand(pairs, generator=g, dtype=torch.double) < gap.sigmoid()
    ordered = torch.where(first[:, None], drawn, drawn.flip(1))
    wrong = torch.zeros_like(tree.leaves().mask)
    wrong[:, tree.start :] = tree.leaves().extras["tokens"][:, tree.start :] == bad
    return tree, reference, paired(tree, reference, [(int(w), int(r)) for w, r in ordered]), wrong


def by_ratio(leaves: Experience, logp: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
    return logp, ref


def by_policy(leaves: Experience, logp: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
    return logp, torch.zeros_like(ref)


@effect(
    "A policy that DPO trained on whole answers tells which token of an answer is wrong.",
    kind="headline",
    method=lambda: by_ratio,
    controls={"its log-probability": lambda: by_policy},
    step_sizes=(4.0, 16.0, 64.0),
    criteria=[More("located", by=0.1)],
    seeds=20,
    cost="slow",
    note="Located: of all answers with one to three wrong tokens, those whose token of least credit is wrong. 200 "
    "comparisons by Bradley-Terry raters, 60 steps; a wrong token costs as much as the optimum moves by two nats. The "
    "paper shows examples, and the rate is ours.",
)
def located(reading: Reading, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, batch, wrong = faulty(seed)
    leaves = tree.leaves()
    ref = policy.evaluate(leaves).logp.detach()
    descended(dpo(beta=BETA), batch, policy, step_size, 60)
    logps = reading(leaves, policy.evaluate(leaves).logp.detach(), ref)
    mixed = ((wrong.sum(1) > 0) & (wrong.sum(1) < LENGTH)).nonzero().flatten()
    data = ScoredTokens(leaves.mask, logps[0], logps[1], wrong)
    return {"located": r_to_q(beta=BETA)(data[mixed.numpy()]).values["located"]}


def bellman(beta: float, rewards: Callable[[int, tuple[int, ...]], float | list[float]]) -> tuple[float, float]:
    """Returns the largest error of the credit against r + V(next) - V, and of the traces' values against the rewards so
    far plus V, less V at the start, at the optimum of these rewards."""
    tree = TokenTree.full(3, 3, rewards)
    reference = TabularPolicy(tree, spread=1.0, seed=3)
    best, value = soft_optimum(tree, reference, beta)
    leaves = tree.leaves()
    evaluated = best.evaluate(leaves)
    data = ScoredTokens.of_experience(leaves.replace(ref_logp=reference.evaluate(leaves).logp.detach()), evaluated)
    worst, sums = 0.0, 0.0
    reward = tree.rewards
    if reward is None:
        reward = torch.zeros_like(evaluated.logp)
        reward[:, -1] = tree.outcome.flatten()
    for row, trace in enumerate(r_to_q(beta=beta).trace(data)):
        at = tree.nodes[row, tree.start :]
        here = [*value[at].tolist(), 0.0]
        earned = reward[row, tree.start :].tolist()
        for t in range(3):
            worst = max(worst, abs(trace.credit[t] - (earned[t] + here[t + 1] - here[t])))
            sums = max(sums, abs(trace.value[t] - (sum(earned[: t + 1]) + here[t + 1] - here[0])))
    return worst, sums


@claim(
    "At the optimum the credit is r + V*(next) - V*, and its sum so far is the value of the answer so far: a search by "
    "likelihood is a search by value.",
    kind="identity",
    baseline="the log-probability alone, of the same policy",
)
def advantage() -> Finding:
    g = torch.Generator().manual_seed(0)
    outcome = torch.randn(27, generator=g, dtype=torch.double).tolist()
    first, second = torch.randn(3, generator=g).tolist(), torch.randn(9, generator=g).tolist()

    def each_token(_: int, answer: tuple[int, ...]) -> list[float]:
        a, b, c = answer
        return [first[a], second[3 * a + b], outcome[9 * a + 3 * b + c]]

    whole = bellman(0.5, lambda _, answer: outcome[9 * answer[0] + 3 * answer[1] + answer[2]])
    each = bellman(0.2, each_token)
    return Finding(
        measured={"of an outcome": max(whole), "of rewards of tokens": max(each)},
        criterion="largest errors < 1e-12, of an outcome on the last token and of rewards of all",
        holds=max(*whole, *each) < 1e-12,
    )


@mutation("The reference is left out of the credit.", kills=advantage)
def without_reference(replace: Replace) -> None:
    replace(ScoredTokens, "credit", lambda self, beta: beta * self.logp)


@mutation("The credit is read without beta.", kills=advantage)
def without_beta(replace: Replace) -> None:
    replace(ScoredTokens, "credit", lambda self, beta: self.logp - self.ref_logp)


@claim(
    "The implicit reward of the reference's own answers is -beta KL(ref || pi) on average: it can only fall.",
    kind="part",
    baseline="answers of the policy itself, whose implicit reward is beta KL(pi || ref)",
)
def falls() -> Finding:
    tree = TokenTree.full(3, 3, lambda _, answer: 0.0)
    reference = TabularPolicy(tree, spread=1.0, seed=0)
    leaves = tree.leaves()
    leaves = leaves.replace(ref_logp=reference.evaluate(leaves).logp.detach())
    error, highest, own = 0.0, -float("inf"), float("inf")
    for seed in range(1, 101):
        policy = TabularPolicy(tree, spread=1.0, seed=seed)
        rewards = r_to_q(beta=BETA)(ScoredTokens.of_experience(leaves, policy.evaluate(leaves))).rows["reward"]
        law = [tree.log_probabilities(p).detach()[0].exp() for p in (reference, policy)]
        fell, rose = (float((p * torch.from_numpy(rewards)).sum()) for p in law)
        error = max(error, abs(fell + BETA * tree.kl(reference, policy).item()))
        highest, own = max(highest, fell), min(own, rose)
    return Finding(
        measured={"largest error": error, "highest": highest, "lowest of the policy's own": own},
        criterion="equal to 1e-12 and below 0 for 100 random policies, above 0 on their own answers",
        holds=error < 1e-12 and highest < 0 < own,
    )
