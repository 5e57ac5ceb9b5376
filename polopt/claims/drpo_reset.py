"""These programs measure what the paper of DR-PO claims."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.effects import More, effect
from polopt.lab.helped import lock
from polopt.lab.measure import learning
from polopt.methods.drpo_reset import DatasetResets, drpo_reset
from polopt.methods.ppo import ppo
from polopt.methods.sft import sft

# Rollouts of a batch, and of a run.
ROWS, MOST = 32, 6400


def unfinished(steps: int = 12, right: int = 9) -> tuple[TokenTree, TabularPolicy, Tensor]:
    """Returns a combination lock, a uniform policy and demonstrations [1, answers] of a single answer, which takes
    `right` right steps and then a wrong one: it visits good states and fails."""
    tree, _ = lock(steps)
    code = tree.answers[-1]
    shown = next(i for i, a in enumerate(tree.answers) if a[:right] == code[:right] and len(a) == right + 1)
    demonstrations = torch.zeros(1, len(tree.answers), dtype=torch.double)
    demonstrations[0, shown] = 1.0
    return tree, TabularPolicy(tree, critic=True), demonstrations


def opened(phases: tuple[Algorithm, ...], seed: int, step_size: float, data: Tensor | None = None) -> dict[str, float]:
    """Returns how often the lock opens without help after all phases, of MOST / ROWS batches each, exactly."""
    tree, policy, demonstrations = unfinished()
    spent = 0
    for algorithm in phases:
        source = TreeSource(
            tree,
            policy,
            rows=ROWS,
            seed=seed,
            needs=algorithm.required_fields,
            demonstrations=demonstrations if data is None else data,
        )
        for _ in itertools.islice(learning(algorithm, source, policy, rate=step_size, epochs=2), MOST // ROWS):
            pass
        spent += source.drawn
    return {"opens": tree.value(policy).item(), "rollouts": float(spent)}


@effect(
    "From an answer that fails after nine right steps of twelve it learns to open a lock, which neither plain PPO, nor "
    "imitation of the answer, nor PPO after imitation does.",
    kind="headline",
    method=lambda: (drpo_reset(mix=0.5, kl=0),),
    controls={
        "ppo": lambda: (ppo(group=1, value=0.1, kl=0),),
        "sft": lambda: (sft(),),
        "ppo after sft": lambda: (sft(), ppo(group=1, value=0.1, kl=0)),
    },
    step_sizes=(1.0, 4.0, 16.0, 64.0),
    criteria=[More("opens", by=0.5)],
    seeds=5,
    trials=2,
    cost="slow",
    note="Imitation costs no rollouts; the two that sample have as many as the method.",
)
def opens(phases: tuple[Algorithm, ...], *, seed: int, step_size: float) -> dict[str, float]:
    return opened(phases, seed, step_size)


@claim("Every beginning of a data set's answer is given alike often.", kind="identity", baseline="a mix of 0: none is")
def alike() -> Finding:
    tree, policy, demonstrations = unfinished()
    source = TreeSource(tree, policy, rows=1, demonstrations=demonstrations)
    tasks = torch.zeros(20_000, dtype=torch.long)
    steps = int(source.solution_lengths(tasks[:1]))
    worst = 0.0
    for mix in (0.0, 0.4, 1.0):
        given = torch.tensor([start.given for start in DatasetResets(mix=mix)(source, tasks)[1]])
        found = torch.bincount(given, minlength=steps + 1).double() / len(tasks)
        expected = torch.tensor([1 - mix, *[mix / (steps - 1)] * (steps - 1), 0.0], dtype=torch.double)
        worst = max(worst, float((found - expected).abs().max()))
    return Finding(
        measured={"largest error of a frequency": worst},
        criterion="< 0.015 of 20,000 draws, at a mix of 0, 0.4 and 1: four standard errors of the largest",
        holds=worst < 0.015,
    )


@claim(
    "If every rollout begins in the data, an answer's first token is never learned: the lock opens with its initial "
    "chance of one in four at most.",
    kind="limit",
    baseline="a mix of 0.5",
    cost="slow",
)
def first_token() -> Finding:
    whole, half = (opened((drpo_reset(mix=mix, kl=0),), 0, 16.0)["opens"] for mix in (1.0, 0.5))
    return Finding(
        measured={"mix 1": whole, "mix 0.5": half},
        criterion="0.2 < mix 1 <= 0.25, and mix 0.5 > 0.5",
        holds=0.2 < whole <= 0.25 and half > 0.5,
    )


@claim(
    "Of data that are right already, imitation alone opens the lock.",
    kind="limit",
    baseline="PPO",
)
def right_data() -> Finding:
    tree = unfinished()[0]
    data = (tree.outcome == 1).double()
    copied, plain = (opened((algorithm,), 0, 16.0, data)["opens"] for algorithm in (sft(), ppo(group=1, kl=0)))
    return Finding(
        measured={"sft": copied, "ppo": plain},
        criterion="sft > 0.9, ppo < 0.05",
        holds=copied > 0.9 and plain < 0.05,
        note="Resets are for data that visit good states and do not show the best way on from there.",
    )


@mutation("The whole answer may be given.", kills=alike)
def all_given(replace: Replace) -> None:
    replace(DatasetResets, "given", staticmethod(lambda lengths, place: 1 + (place * lengths).long()))


@mutation("The mix is that of rollouts from the prompt.", kills=alike)
def mix_turned_round(replace: Replace) -> None:
    right = DatasetResets.forward
    replace(DatasetResets, "forward", lambda self, *request: right(DatasetResets(mix=1 - self.mix), *request))
