"""These programs measure what the paper of ProGRPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, claim
from polopt.lab import TabularPolicy, TokenTree, expectation, flat_gradient, train
from polopt.lab.problems import many_right
from polopt.methods.progrpo import progrpo


@claim(
    "On answers of one token the correction climbs the collision entropy, -sum p^2, and nothing else.",
    kind="identity",
    baseline="GRPO, which stands still among right answers",
)
def direction() -> Finding:
    tree = TokenTree.bandit([1.0] * 5)
    policy = TabularPolicy(tree, spread=1.0, seed=1)
    p = tree.log_probabilities(policy).exp()
    target, shannon = flat_gradient(-p.square().sum(), policy), flat_gradient(tree.entropy(policy), policy)
    ours = expectation(progrpo(group=3, alpha=0.5, than="group"), tree, policy).mean
    plain = expectation(progrpo(group=3, alpha=0.0, than="group"), tree, policy).mean.norm().item()
    scale = 0.5 * (1 - 1 / 3) / 2
    off = ((ours - scale * target).norm() / (scale * target).norm()).item()
    cosine = torch.nn.functional.cosine_similarity(ours, shannon, dim=0).item()
    return Finding(
        measured={"relative error": off, "cosine with Shannon's": cosine, "GRPO: gradient norm": plain},
        criterion="alpha (1 - 1/G) / 2 times the gradient to 1e-10; GRPO's norm < 1e-10",
        holds=off < 1e-10 and plain < 1e-10,
    )


def ends(algorithm: Algorithm) -> list[tuple[float, float, float]]:
    """(success, entropy, expected number of different right arms in 32 samples) after 600 batches, for each of 10
    seeds."""
    found = []
    for seed in range(10):
        tree, policy = many_right()[0], TabularPolicy(many_right()[0])
        train(algorithm.but(), tree, policy, steps=600, rate=1.0, seed=seed)
        p = tree.log_probabilities(policy).detach().exp()[0]
        different = (1 - (1 - p[:8]) ** 32).sum().item()
        found.append((tree.value(policy).item(), tree.entropy(policy).item(), different))
    return found


def mean(rows: list[tuple[float, float, float]]) -> list[float]:
    return [sum(x) / len(rows) for x in zip(*rows, strict=True)]


PLAIN = progrpo(group=16, alpha=0.0)


@claim(
    "It ends with more right answers, and as often right.",
    kind="ours",
    baseline="GRPO, 8 of 32 arms right",
    cost="slow",
)
def diversity() -> Finding:
    ours, base = ends(progrpo(group=16, than="group")), ends(PLAIN)
    more = sum(a[2] > b[2] for a, b in zip(ours, base, strict=True))
    (success, entropy, _), (plain, flat, _) = mean(ours), mean(base)
    return Finding(
        measured={
            "success": success,
            "GRPO: success": plain,
            "entropy": entropy,
            "GRPO: entropy": flat,
            "seeds of 10 with more different right arms in 32": more,
        },
        criterion="success at most 0.005 lower and > 0.99; entropy >= 5 times GRPO's; more arms in >= 8 of 10 seeds",
        holds=success >= max(0.99, plain - 0.005) and entropy >= 5 * flat and more >= 8,
    )


@claim(
    "The prompt's confidence serves as well as the group's mean.",
    kind="headline",
    baseline="than='group'",
    cost="slow",
    refuted=True,
)
def offset() -> Finding:
    ours, group = mean(ends(progrpo(group=16))), mean(ends(progrpo(group=16, than="group")))
    return Finding(
        measured={"entropy": ours[1], "with the group's mean": group[1]},
        criterion="entropy at least 0.8 of that with the group's mean (10 seeds)",
        holds=ours[1] >= 0.8 * group[1],
        note="There is one prompt, so its confidence is 1 and every sample is praised, the unlikely ones more. What "
        "all have in common is nothing on average, but in each batch it pulls towards what happened to be drawn.",
    )
