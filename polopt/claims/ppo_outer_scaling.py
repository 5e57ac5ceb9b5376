"""These programs measure what the paper on more copies of the environment for PPO claims."""

from __future__ import annotations

import sys

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.noisy_arms import NoisyArms, share_of_best
from polopt.lab.effects import More, effect
from polopt.lab.stepping import policy_for, trained
from polopt.methods.ppo import control_ppo
from polopt.methods.ppo_outer_scaling import ppo_outer_scaling, resting_excess

FEW, MANY, DECISIONS = 64, 1024, 40_960
# A method and its copies. One that does not say how large a minibatch is learns from each batch as a whole.
Side = tuple[Algorithm, int]
ONE_STEP = {"gamma": 0.0, "lam": 0.0, "entropy": 0.0, "steps": 1}


def kept_size() -> Side:
    return ppo_outer_scaling(minibatch=FEW, **ONE_STEP), MANY  # type: ignore[arg-type]


def kept_number(copies: int) -> Side:
    return control_ppo(clip=0.2, **ONE_STEP), copies  # type: ignore[arg-type]


def learned_share(side: Side, seed: int, lr: float) -> float:
    algorithm, copies = side
    world = NoisyArms(num_envs=copies, seed=seed)
    policy = policy_for(world, seed=seed, hidden=())
    sizes: dict[str, int] = {"steps": DECISIONS // copies, "epochs": 4, "minibatches": 1}
    trained(world, algorithm, policy, lr=lr, seed=seed, anneal=False, **sizes)  # type: ignore[arg-type]
    return share_of_best(world, policy)


@effect(
    "With more copies and minibatches of the same size it comes to rest at a higher return than with few copies, and "
    "than with as many copies in a fixed number of minibatches, after as many decisions.",
    kind="headline",
    method=kept_size,
    controls={"few copies": lambda: kept_number(FEW), "a fixed number of minibatches": lambda: kept_number(MANY)},
    criteria=[More("share of the best", by=0.02)],
    step_sizes=(1e-2, 3e-2, 1e-1),
    trials=2,
    seeds=5,
    budget="decisions",
    cost="slow",
    refuted=True,
    note="Fifty arms whose rewards have a noise of 4, a table of logits, 40,960 decisions in batches of 64 or 1,024. "
    "Few copies show no plateau: each side has 0.94 to 0.98 of the best at its own step size, two of which are at an "
    "end of the grid. The paper's plateau is that of a simulation of physics, after billions of decisions.",
)
def rests_higher(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    return {"share of the best": learned_share(side, seed, step_size), "decisions": float(DECISIONS)}


def simulated_excess(step: float, curvature: float, variance: float, seed: int) -> float:
    """Returns the mean of f over 80,000 walks of 80 steps."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.zeros(80_000, dtype=torch.float64)
    for _ in range(80):
        noise = variance**0.5 * torch.randn(x.shape, generator=draw, dtype=torch.float64)
        x = x - step * (curvature * x + noise)
    return float(curvature * x.square().mean() / 2)


@claim(
    "Noisy steps on a quadratic come to rest where the formula says, four times as low with four times the copies.",
    kind="theory",
    baseline="simulated steps",
)
def rests_as_said() -> Finding:
    errors, quotients = list[float](), list[float]()
    for seed, (step, curvature) in enumerate([(0.1, 1.0), (0.5, 2.0), (1.5, 1.0)]):
        found = [simulated_excess(step, curvature, 1 / copies, 10 * seed + copies) for copies in (1, 4)]
        said = [resting_excess(step, curvature, 1 / copies) for copies in (1, 4)]
        errors += [abs(a / b - 1) for a, b in zip(found, said, strict=True)]
        quotients.append(found[0] / found[1])
    return Finding(
        measured={"largest error": max(errors), "least quotient": min(quotients), "largest quotient": max(quotients)},
        criterion="three steps and curvatures, 80,000 walks: within 3 % of the formula, and quotients within 5 % of 4",
        holds=max(errors) < 0.03 and all(abs(q / 4 - 1) < 0.05 for q in quotients),
    )


@mutation("the curvature is left out", kills=rests_as_said)
def without_curvature(replace: Replace) -> None:
    def excess(step: float, curvature: float, variance: float) -> float:
        return step * variance / 4

    replace(sys.modules[__name__], "resting_excess", excess)


@claim(
    "With as many decisions in a batch as before it is PPO, bit for bit; with more, each minibatch has as many.",
    kind="identity",
    baseline="PPO with the same number of minibatches",
)
def is_ppo() -> Finding:
    policies = []
    for algorithm, number in ((kept_size()[0], 1), (kept_number(256)[0], 4)):
        world = NoisyArms(num_envs=256, seed=3)
        policy = policy_for(world, seed=3)
        policies.append(trained(world, algorithm, policy, steps=5, lr=1e-2, seed=3, minibatches=number))
    pairs = zip(*(policy.parameters() for policy in policies), strict=True)
    apart = max(float((a - b).detach().abs().max()) for a, b in pairs)
    sizes = {copies: copies // kept_size()[0].minibatches(copies, 1) for copies in (64, 256, 1024)}
    return Finding(
        measured={"largest difference": apart, **{f"decisions, {n} copies": size for n, size in sizes.items()}},
        criterion="no difference after 5 batches; 64 decisions in a minibatch of 64, 256 and 1,024 copies",
        holds=apart == 0 and {*sizes.values()} == {64},
    )


@mutation("the number is kept in place of the size", kills=is_ppo)
def number_kept(replace: Replace) -> None:
    replace(Algorithm, "minibatches", lambda self, decisions, otherwise=1: otherwise)
