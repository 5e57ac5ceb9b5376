"""These programs measure what the paper of TempSamp-R1 claims."""

import math

import torch

import polopt.methods.tempsamp_r1 as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import train, training
from polopt.lab.demonstrations import an_interval
from polopt.methods.grpo import grpo
from polopt.methods.tempsamp_r1 import BentReward, Way, tempsamp_r1


def advantages(way: Way, rewards: list[float]) -> list[float]:
    """Of one group whose last row is the solution."""
    reward = torch.tensor(rewards, dtype=torch.double)
    demonstrated = torch.arange(len(rewards)) == len(rewards) - 1
    batch = Experience(
        mask=torch.ones(len(rewards), 1, dtype=torch.bool),
        outcome=reward,
        group=torch.zeros(len(rewards), dtype=torch.long),
        extras={"is_demonstration": demonstrated},
    )
    return tempsamp_r1(way=way, kl=0).with_advantages(batch).advantage[:, 0].tolist()


@claim(
    "Beside a perfect row the best rollout's advantage becomes positive.", kind="identity", baseline="rewards as paid"
)
def not_pushed_down() -> Finding:
    rewards = [0.6, 0.7, 0.5, 1.0]
    raw, ours = advantages("raw", rewards), advantages("shaped", rewards)
    high = [0.85, 0.86, 0.84, 1.0]
    alike = max(abs(a - b) for a, b in zip(advantages("raw", high), advantages("shaped", high), strict=True))
    printed = [-0.40, 0.48, -1.38, 1.30]
    correction = math.sqrt(3 / 4)  # the numbers divide by n, GRPO here by n - 1
    off = max(abs(a / correction - b) for a, b in zip(ours, printed, strict=True))
    return Finding(
        measured={"raw": raw[1], "bent": ours[1], "off the numbers": off, "change above the knee": alike},
        criterion="raw <= 1e-6 and bent > 0.3; |A / sqrt(3/4) - (-.40, .48, -1.38, 1.30)| < 0.01; above the knee the "
        "z-scores change by < 0.02",
        holds=raw[1] <= 1e-6 and ours[1] > 0.3 and off < 0.01 and alike < 0.02,
        note="Where all rewards are above the knee the bent one is all but linear, and does nothing.",
    )


def steps_to(algorithm: Algorithm, goal: float, seed: int, most: int = 1500) -> int:
    """Batches of 4 groups until the mean overlap reaches the goal; `most` if it never does."""
    tree, policy, demonstrations = an_interval(seed)
    loop = training(algorithm, tree, policy, rows=4, rate=2.0, seed=seed, demonstrations=demonstrations)
    for step, _ in enumerate(loop, start=1):
        if step >= most or tree.value(policy) >= goal:
            break
    return step


@claim(
    "It finds an interval among 64 x 64 in a third of the steps, at the same rate.",
    kind="headline",
    baseline="GRPO, groups of 4",
)
def sooner() -> Finding:
    ours = [steps_to(tempsamp_r1(kl=0), 0.8, seed) for seed in range(3)]
    base = [steps_to(grpo(group=4, kl=0), 0.8, seed, most=3 * max(ours) + 1) for seed in range(3)]
    share = sum(ours) / sum(base)
    return Finding(
        measured={"steps": sum(ours) / 3, "GRPO's, at least": sum(base) / 3, "share": share},
        criterion="steps to a mean overlap of 0.8 at most a third of GRPO's (3 seeds)",
        holds=share <= 1 / 3,
    )


def entropy_drop(algorithm: Algorithm, seed: int, steps: int = 20) -> float:
    """Mean loss of entropy in a step, in nats."""
    tree, policy, demonstrations = an_interval(seed)
    before = tree.entropy(policy).item()
    train(algorithm, tree, policy, steps=steps, rows=4, rate=2.0, seed=seed, demonstrations=demonstrations)
    return (before - tree.entropy(policy).item()) / steps


@claim(
    "The solution without the bent reward takes more of the policy's entropy with each step.",
    kind="part",
    baseline="raw",
)
def calmer() -> Finding:
    ours, raw = ([entropy_drop(tempsamp_r1(kl=0, way=way), s) for s in range(5)] for way in ("shaped", "raw"))
    lower = sum(a < b for a, b in zip(ours, raw, strict=True))
    return Finding(
        measured={"a step": sum(ours) / 5, "raw": sum(raw) / 5, "seeds of 5 with less": float(lower)},
        criterion="less in >= 4 of 5 seeds, over 20 steps",
        holds=lower >= 4,
    )


@mutation("Above the knee rewards differ as much as before.", kills=not_pushed_down)
def steep_above(replace: Replace) -> None:
    replace(
        module,
        "BentReward",
        lambda reward, knee, above, below: BentReward(reward=reward, knee=knee, above=1.0, below=below),
    )


@mutation("The solution is not a row of its group.", kills=not_pushed_down)
def solution_apart(replace: Replace) -> None:
    replace(module, "IncludeDemonstrations", lambda credit: credit)
