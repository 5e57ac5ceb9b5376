"""These programs measure what the paper of TempSamp-R1 claims."""

import itertools
import math

import torch

import polopt.methods.tempsamp_r1 as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import train, training
from polopt.lab.demonstrations import an_interval
from polopt.lab.effects import Less, effect
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


def overlap(algorithm: Algorithm, seed: int, step_size: float, most: int = 150) -> dict[str, float]:
    """Batches of 4 groups until the mean overlap is 0.8, `most` if it never is; and the answers that were sampled."""
    tree, policy, demonstrations = an_interval(seed)
    loop = training(algorithm, tree, policy, rows=4, rate=step_size, seed=seed, demonstrations=demonstrations)
    step = answers = 0
    for _, source in itertools.islice(loop, most):
        step, answers = step + 1, source.drawn
        if tree.value(policy) >= 0.8:
            break
    return {"steps": float(step), "answers": float(answers)}


@effect(
    "It finds an interval among 64 x 64 in a third of the steps.",
    kind="headline",
    method=lambda: tempsamp_r1(kl=0),
    controls={"grpo, groups of 4": lambda: grpo(group=4, kl=0)},
    step_sizes=(2.0, 4.0, 8.0, 16.0, 32.0),
    criteria=[Less("steps", times=1 / 3)],
    seeds=10,
    budget="answers",
    cost="slow",
    note="To a mean overlap of 0.8; GRPO stops at 150 steps. It is shown no solution: the next claim has one that is.",
)
def sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return overlap(algorithm, seed, step_size)


@effect(
    "The bent reward makes it sooner than the solution alone.",
    kind="part",
    method=lambda: tempsamp_r1(kl=0),
    controls={"the solution without the bent reward": lambda: tempsamp_r1(kl=0, way="raw")},
    step_sizes=(2.0, 4.0, 8.0, 16.0, 32.0),
    criteria=[Less("steps", times=1.0)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="The solution in the group does all of it; bending the rewards adds nothing to the speed.",
)
def bent_is_sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return overlap(algorithm, seed, step_size)


@effect(
    "The solution without the bent reward takes more of the policy's entropy with each step.",
    kind="part",
    method=lambda: tempsamp_r1(kl=0),
    controls={"the solution without the bent reward": lambda: tempsamp_r1(kl=0, way="raw")},
    step_sizes=(2.0,),
    criteria=[Less("entropy lost", times=1.0)],
    seeds=8,
    cost="slow",
    note="A claim on equal step sizes, 20 steps; in nats a step.",
)
def calmer(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, demonstrations = an_interval(seed)
    before = tree.entropy(policy).item()
    train(algorithm, tree, policy, steps=20, rows=4, rate=step_size, seed=seed, demonstrations=demonstrations)
    return {"entropy lost": (before - tree.entropy(policy).item()) / 20}


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
