"""These programs measure what the paper of ROVER claims."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource, flat_gradient, train
from polopt.lab.claims import collapse, effective
from polopt.lab.effects import More, effect
from polopt.lab.problems import digits, many_right, many_right_sequences
from polopt.lab.progress import learned
from polopt.methods.dr_grpo import dr_grpo
from polopt.methods.grpo import grpo
from polopt.methods.rover import ValueRegression, rover
from polopt.objectives import TokenMean


def _sparse(seeds: int) -> Iterator[TokenTree]:
    """4 choices, 6 times; 6 of the 4096 answers are right, others for each seed."""
    tree = TokenTree.full(4, 6, lambda prompt, answer: 0.0)
    for seed in range(seeds):
        right = torch.randperm(4**6, generator=torch.Generator().manual_seed(seed))[:6]
        yield tree.paying(torch.zeros(1, 4**6).index_fill(1, right, 1.0))


def _follows(tree: TokenTree, temperature: float) -> TabularPolicy:
    """softmax(Q / (temperature max_a Q)) of the uniform policy's values."""
    values, policy = tree.uniform_values(), TabularPolicy(tree)
    with torch.no_grad():
        policy.logits.copy_(values / (temperature * values.amax(1, keepdim=True).clamp(min=1e-300)))
    return policy


@claim(
    "In trees with rewards 0 and 1, the greedy choice by the uniform policy's values is right.",
    kind="theory",
    baseline="the uniform policy itself, right in 6 of 4096",
)
def greedy_is_right() -> Finding:
    worth = [tree.value(_follows(tree, 1e-4)).item() for tree in _sparse(20)]
    return Finding(
        measured={"trees solved": float(sum(w > 1 - 1e-9 for w in worth)), "trees": float(len(worth))},
        criterion="20 of 20",
        holds=min(worth) > 1 - 1e-9,
    )


@claim(
    "Beyond its theorem, with negative rewards or where chance decides, the greedy choice can be wrong.",
    kind="limit",
    baseline="the best policy, worth 1",
)
def beyond_the_theorem() -> Finding:
    # Behind choice 0 one of three choices has reward 1; choice 1 has a small sure reward, or 1 by a coin toss.
    answers = [(0, 0), (0, 1), (0, 2), (1, 0)]
    worth = {}
    for name, table in {"negative": [1.0, -1.0, -1.0, 0.0], "chance": [1.0, 0.0, 0.0, 0.5]}.items():
        tree = TokenTree(3, answers, torch.tensor([table], dtype=torch.double))
        policy = TabularPolicy(tree)
        with torch.no_grad():
            policy.logits.copy_(torch.where(tree.choices, 1e6 * tree.uniform_values(), 0))
        worth[f"greedy's worth, {name}"] = tree.value(policy).item()
    return Finding(
        measured=worth,
        criterion="both at most 1/2",
        holds=max(worth.values()) <= 0.5 + 1e-9,
        note="The uniform policy is worth -1/3, or 1/3, behind the choice that can be worth 1: greedy takes the other. "
        "An outcome of 0.5 stands for a coin. The theorem needs determinism and rewards that are never negative.",
    )


@claim(
    "On a batch's first step, the gradient is Dr. GRPO's times 2 rho.",
    kind="identity",
    baseline="Dr. GRPO, a mean over tokens",
)
def first_step() -> Finding:
    tree, policy = digits()
    plain = dr_grpo().but(**{"objective.aggregate": TokenMean()})
    off = {}
    for rho in (0.3, 1.0, 2.0):
        ours = rover(rho=rho)
        batch = ours.compute_advantages(ours.sampling(TreeSource(tree, policy, rows=64, needs=ours.required_fields)))
        gradients = [
            flat_gradient(a.objective(batch, policy.evaluate(batch, a.objective.required_outputs)).loss, policy)
            for a in (ours, plain)
        ]
        off[f"relative error, rho {rho}"] = (
            (gradients[0] - 2 * rho * gradients[1]).norm() / gradients[0].norm()
        ).item()
    return Finding(measured=off, criterion="all < 1e-12", holds=max(off.values()) < 1e-12)


def _warm(tree: TokenTree) -> TabularPolicy:
    """Right in a tenth of all answers: in nine of ten cases uniform, else one of the right ones."""
    answers = 0.9 / len(tree.answers) + 0.1 * tree.outcome[0] / tree.outcome.sum()
    mask = tree.leaves().mask
    probs = torch.zeros(tree.choices.shape, dtype=torch.double)
    at = (tree.nodes[mask], tree.leaves().extras["tokens"][mask])
    probs.index_put_(at, answers[:, None].expand(mask.shape)[mask], accumulate=True)
    return TabularPolicy(tree).set_probabilities(probs / probs.sum(1, keepdim=True))


def _found(tree: TokenTree, policy: TabularPolicy, seed: int) -> tuple[float, int]:
    """Success of a policy, and how many right answers 256 draws show."""
    probs = tree.log_probabilities(policy).detach().exp()[0]
    drawn = torch.multinomial(probs, 256, replacement=True, generator=torch.Generator().manual_seed(seed))
    return tree.value(policy).item(), len(drawn[tree.outcome[0][drawn] > 0].unique())


@claim(
    "Sampling by the uniform policy's values succeeds and finds most right answers.",
    kind="theory",
    baseline="GRPO from a policy that is right in a tenth, 300 steps",
    cost="slow",
)
def finds_most() -> Finding:
    ours, base = [], []
    for seed, tree in enumerate(_sparse(8)):
        ours.append(_found(tree, _follows(tree, 0.1), seed))
        policy = _warm(tree)
        train(grpo(group=16, kl=0), tree, policy, steps=300, rate=10.0, rows=4, seed=seed)
        base.append(_found(tree, policy, seed))
    mean = lambda pairs, i: sum(p[i] for p in pairs) / len(pairs)  # noqa: E731
    success, distinct, other = mean(ours, 0), mean(ours, 1), mean(base, 1)
    return Finding(
        measured={"success": success, "distinct of 6": distinct, "GRPO success": mean(base, 0), "GRPO's": other},
        criterion="success >= 0.99; distinct >= 3x GRPO's",
        holds=success >= 0.99 and distinct >= 3 * other,
        note="An exact solver's values, not those that the method learns: for what it keeps, see below.",
    )


@effect(
    "At equal success it keeps more right answers alive, by the 17.6 % of the paper.",
    kind="headline",
    method=lambda: rover(group=64),
    controls={
        "dr-grpo": lambda: dr_grpo(group=64).but(**{"objective.aggregate": TokenMean()}),
        "grpo": lambda: grpo(group=64, kl=0),
    },
    step_sizes=(4.0, 8.0, 16.0, 32.0, 64.0),
    criteria=[More("right answers", times=1.176)],
    seeds=30,
    cost="slow",
    note="At most 80 batches of 64 answers for each side, eight steps on each batch. With one step on each batch the "
    "method is Dr. GRPO. Three times as many, which the exact values find, are not kept.",
)
def keeps_answers(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """Effective number of right answers, of 6 among 256, when success reaches 0.95, NaN if it does not."""
    right = torch.randperm(4**4, generator=torch.Generator().manual_seed(seed))[:6]
    tree = TokenTree.full(4, 4, lambda prompt, answer: 0.0).paying(torch.zeros(1, 4**4).index_fill(1, right, 1.0))
    policy = _warm(tree)
    found = learned(algorithm, (tree, policy), steps=80, epochs=8, goal=0.95, step_size=step_size, seed=seed)
    return {"right answers": effective(tree, policy) if found["success"] >= 0.95 else math.nan}


@claim(
    "With 32 steps on each batch the regression keeps more right answers alive than GRPO does.",
    kind="ours",
    baseline="GRPO, the same steps, to the same success of 0.95",
    cost="slow",
)
def keeps_more() -> Finding:
    problems = {"arms": many_right, "sequences": many_right_sequences}
    found = {
        f"{name}, {who}": collapse(algorithm, rate=1.0, seeds=8, steps=32, problem=problem)
        for name, problem in problems.items()
        for who, algorithm in (("ROVER", rover(group=64)), ("GRPO", grpo(group=64, kl=0)))
    }
    ratios = [found[f"{name}, ROVER"] / found[f"{name}, GRPO"] for name in problems]
    return Finding(
        measured=found,
        criterion="effective number of right answers, of 8, > 1.2x GRPO's on both",
        holds=min(ratios) > 1.2,
        note="With one step on each batch the method is Dr. GRPO, and keeps no more than that.",
    )


@mutation("What the policy has become is regressed without rho.", kills=first_step)
def no_rho(replace: Replace) -> None:
    right = ValueRegression.forward

    def forward(
        self: ValueRegression, log_ratio: Tensor, experience: Experience, evaluation: Evaluation
    ) -> tuple[Tensor, Tensor]:
        return right(self, log_ratio / self.rho, experience, evaluation)

    replace(ValueRegression, "forward", forward)
