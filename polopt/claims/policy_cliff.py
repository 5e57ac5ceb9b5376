"""These programs measure what the paper on the policy cliff claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import Less, More, effect
from polopt.methods.grpo import grpo
from polopt.methods.policy_cliff import SurprisalPenalty, policy_cliff
from polopt.methods.rloo import rloo
from polopt.metrics import policy_stability, q_values
from polopt.problems.mdp import two_goals


@claim(
    "A tie-breaker of any size moves the greedy policy by the same jump; the soft one moves at most in proportion.",
    kind="theory",
    baseline="the greedy policy",
)
def tie() -> Finding:
    jumps, excess = [], []
    for size in (10.0**-k for k in range(1, 9)):
        for alpha in (0.1, 1.0):
            found = policy_stability(torch.tensor([1.0, 1.0]), torch.tensor([0.0, size], dtype=torch.double), alpha)
            jumps.append(found.greedy)
            excess.append(found.soft - size / (2 * alpha))
    return Finding(
        measured={"least greedy jump": min(jumps), "largest": max(jumps), "soft, above eps / (2 alpha)": max(excess)},
        criterion="for eps 1e-1 to 1e-8 the greedy jump is one number >= 0.5; soft <= eps / (2 alpha), alpha 0.1 and 1",
        holds=min(jumps) == max(jumps) >= 0.5 and max(excess) <= 0,
    )


@claim(
    "No soft policy of 50 arms moves further than its bound, and no greedy one moves within half its margin.",
    kind="theory",
    baseline="1,000 random rewards and perturbations",
)
def bounds() -> Finding:
    g = torch.Generator().manual_seed(0)
    worst, tightest, certain, moved = -1.0, 0.0, 0, 0.0
    for _ in range(1000):
        reward = torch.randn(50, generator=g, dtype=torch.double)
        scale, alpha = 10 ** (-3 * torch.rand(2, generator=g, dtype=torch.double))
        # Against the leaders, so that the bound is put to the test.
        change = scale * torch.where(reward > 1.5, -1.0, 2 * torch.rand(50, generator=g, dtype=torch.double) - 1)
        found = policy_stability(reward, change, alpha.item())
        worst, tightest = max(worst, found.soft - found.bound), max(tightest, found.soft / found.bound)
        certain, moved = certain + found.certain, max(moved, found.greedy if found.certain else 0.0)
    return Finding(
        measured={
            "soft above its bound, at most": worst,
            "largest share of the bound": tightest,
            "cases within half the margin": certain,
            "greedy moved there by": moved,
        },
        criterion="never above the bound; never moved within half the margin, in at least 100 cases",
        holds=worst <= 1e-12 and moved == 0 and certain >= 100,
    )


@claim(
    "With two goals equally far, 1e-6 of reward decides which one is visited; the soft policy hardly moves.",
    kind="theory",
    baseline="greedy value iteration",
)
def goals() -> Finding:
    mdp, reward = two_goals()
    visited, soft = [], []
    for end in (0, -2):
        nudged = reward.clone()
        nudged[end] += 1e-6
        q = q_values(nudged, mdp.transitions, mdp.discount)
        greedy = torch.nn.functional.one_hot(q.argmax(-1), 2).double()
        at = mdp.occupancy(greedy).sum(-1)
        visited.append((at[0] / (at[0] + at[-2])).item())
        soft.append((q_values(nudged, mdp.transitions, mdp.discount, alpha=0.1) / 0.1).softmax(-1))
    moved = (soft[0] - soft[1]).abs().max().item()
    return Finding(
        measured={"left goal, nudged left": visited[0], "left goal, nudged right": visited[1], "soft moves": moved},
        criterion="greedy visits the nudged goal alone, 1 and 0; soft, alpha 0.1, < 1e-3 at every state",
        holds=visited == [1.0, 0.0] and moved < 1e-3,
    )


def trained(algorithm: Algorithm, rewards: list[float], seed: int = 0, rate: float = 1.0) -> torch.Tensor:
    """[arms] what 60 batches of 4 groups make of a policy on these arms."""
    tree = TokenTree.bandit(rewards)
    policy = TabularPolicy(tree)
    train(algorithm.but(), tree, policy, steps=60, rate=rate, rows=4, seed=seed)
    return tree.log_probabilities(policy).detach().exp()[0]


@claim(
    "Trained from rollouts, it moves no further than the bound when the tie breaks the other way.",
    kind="ours",
    baseline="GRPO, whose z-scores make any tie-breaker one of size 1",
)
def learned() -> Finding:
    found: dict[str, dict[float, float]] = {"ours": {}, "GRPO": {}}
    bound = {}
    for size in (0.1, 0.001):
        ways = ([1.0 + size, 1.0], [1.0, 1.0 + size])
        for name, algorithm in (("ours", policy_cliff(group=16, alpha=0.1)), ("GRPO", grpo(group=16, kl=0))):
            one, two = (trained(algorithm, way) for way in ways)
            found[name][size] = (one - two).abs().sum().item() / 2
        change = torch.tensor([-size, size], dtype=torch.double)
        bound[size] = policy_stability(torch.tensor(ways[0]), change, 0.1).bound
    return Finding(
        measured={f"{name}, tie broken by {s}": v for name, by in found.items() for s, v in by.items()},
        criterion="total variation <= bound + 0.05 at alpha 0.1; GRPO's > 0.9 for each size (60 batches)",
        holds=all(found["ours"][s] <= bound[s] + 0.05 and found["GRPO"][s] > 0.9 for s in bound),
    )


@effect(
    "Which of two answers is worth 0.001 more changes what is learned by less than half as much as without entropy.",
    kind="headline",
    method=lambda: policy_cliff(group=16, alpha=0.1),
    controls={
        "without entropy": lambda: rloo(group=16, kl=0),
        "grpo": lambda: grpo(group=16, kl=0),
    },
    step_sizes=(0.5, 1.0, 2.0),
    criteria=[Less("moved", times=0.5)],
    best=More("reward", by=0.0),
    seeds=5,
    trials=1,
    cost="slow",
    note="The policies of the theorem are the best ones, to which 60 batches do not lead without entropy.",
)
def tie_breaks(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """Total variation between what 60 batches make of both ways to break the tie, and the reward that they reach."""
    ways = ([1.001, 1.0, 0.0], [1.0, 1.001, 0.0])
    one, two = (trained(algorithm, way, seed, step_size) for way in ways)
    return {"moved": (one - two).abs().sum().item() / 2, "reward": float(one @ torch.tensor(ways[0]).double())}


@mutation("Likely answers are rewarded, not surprising ones.", kills=learned)
def wrong_sign(replace: Replace) -> None:
    right = SurprisalPenalty.forward
    replace(SurprisalPenalty, "forward", lambda self, experience: -right(self, experience))
