"""These programs measure what the paper of FAPO claims."""

import itertools

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.guessing import guess_or_reason
from polopt.experience import Experience
from polopt.features.masks import AnswerMatches
from polopt.lab.effects import Less, More, effect
from polopt.methods.fapo import FlawedPositive, fapo

GUESSED = {"reward.terms.1.flawed": AnswerMatches(pattern="^0$")}


@claim(
    "A flawed answer is pushed down exactly where a / b > 2 / weight - 1: at weight 1, once right answers outnumber "
    "wrong ones.",
    kind="identity",
    baseline="outcomes alone, under which it is never pushed down",
)
def turning_point() -> Finding:
    wrong_signs, plain, cases = 0, 0, 0
    for weight in (0.5, 1.0, 1.5, 2.0):
        algorithm, bare = fapo(weight=weight), fapo(weight=0.0)
        # Wrong answers have flawed steps too, which must not count.
        for a, b in itertools.product(range(8), repeat=2):
            flawed = 8 - a - b
            if flawed < 1:
                continue
            batch = Experience(
                mask=torch.ones(8, 1, dtype=torch.bool),
                outcome=torch.tensor([1.0] * a + [0.0] * b + [1.0] * flawed, dtype=torch.double),
                group=torch.zeros(8, dtype=torch.long),
                horizon=10,
                extras={"signal_flawed": torch.tensor([0.0] * a + [1.0] * (b + flawed))},
            )
            found = algorithm.with_advantages(batch).advantage[-1, 0].sign().item()
            excess = weight * a - (2 - weight) * b
            wrong_signs += found != (excess < 0) - (excess > 0)
            plain += bare.with_advantages(batch).advantage[-1, 0].item() < 0
            cases += 1
    return Finding(
        measured={
            "cases": float(cases),
            "wrong signs": float(wrong_signs),
            "outcomes alone: pushed down": float(plain),
        },
        criterion="no wrong sign in all groups of 8 at weights 0.5, 1, 1.5 and 2; never pushed down by outcomes alone",
        holds=wrong_signs == 0 and plain == 0,
    )


@effect(
    "Guesses are given up for reasoning once that is practised.",
    kind="headline",
    method=lambda: fapo(weight=1.0).but(GUESSED),
    controls={"outcomes alone": lambda: fapo(weight=0.0).but(GUESSED)},
    step_sizes=(0.05, 0.1, 0.2),
    criteria=[More("reasoned", by=0.5), Less("right by a guess", by=-0.3)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="At a rate of 0.1 outcomes alone keep guessing in a part of the runs. At half of it they take reasoning up "
    "too: the policy moves slowly enough for it to be practised.",
)
def reasons(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    found = guess_or_reason(algorithm, rate=step_size, copies=8, seed=seed)
    return {"reasoned": found.reasoned, "right by a guess": found.flawed, "right": found.right}


@mutation("Flawed steps of wrong answers are punished as well.", kills=turning_point)
def wrong_ones_too(replace: Replace) -> None:
    def forward(self: FlawedPositive, experience: Experience) -> Tensor:
        return torch.where(self.flawed(experience), -self.weight, 0.0).to(experience.outcome.dtype)

    replace(FlawedPositive, "forward", forward)


@mutation("The setting `weight` is ignored.", kills=turning_point)
def weight_ignored(replace: Replace) -> None:
    forward = FlawedPositive.forward

    def bent(self: FlawedPositive, experience: Experience) -> Tensor:
        return forward(self.but(weight=1.0), experience)

    replace(FlawedPositive, "forward", bent)
