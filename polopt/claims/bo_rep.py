"""These programs measure what the paper of BO-REP claims."""

import itertools

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.methods.bo_rep import bo_rep
from polopt.problems import BilevelProblem, data_cleaning, exponential_bilevel
from polopt.solvers import (
    BilevelDescent,
    DirectGradient,
    Hypergradient,
    MomentumStep,
    NormalisedMomentumStep,
    TrackedHypergradient,
)
from polopt.solvers.solver import State

# Faster than the defaults, for both sides: 300 iterations suffice.
INNER = {"linear_lr": 0.3, "inner_lr": 0.3, "inner_steps": 5}


def _solved(solver: BilevelDescent, problem: BilevelProblem, steps: int) -> State:
    state: State = solver.begin(problem)
    for _ in range(steps):
        state = solver.iterate(problem, state)
    return state


@effect(
    "Where curvature grows with the gradient, it ends nearer to the minimum than descent at its best step size.",
    kind="headline",
    method=lambda: bo_rep(**INNER),  # type: ignore[arg-type]
    controls={"momentum, not normalised": lambda: bo_rep(**INNER).but(update=MomentumStep())},  # type: ignore[arg-type]
    step_sizes=(1e-5, 1e-4, 1e-3, 1e-2, 0.05, 0.1),
    seeds=5,
    trials=2,
    criteria=[Less("excess", times=0.5)],
    cost="slow",
    note="Of f over its minimum 4, after 300 iterations from (10, -10) with noisy gradients; y, z as in the method.",
)
def unbounded(solver: BilevelDescent, *, seed: int, step_size: float) -> dict[str, float]:
    problem = exponential_bilevel()
    start = int(torch.randint(2**20, (), generator=torch.Generator().manual_seed(seed)))
    x = _solved(solver.but({"update.lr": step_size, "seed": start}), problem, 300)["x"]
    return {"excess": float(problem.outer(x, problem.mixing @ x)) - 4}


@claim(
    "Weights that are learned for clean validation data tell wrong labels from right ones.",
    kind="part",
    baseline="all examples alike, which the start is; as many iterations without the response of the model",
)
def cleans() -> Finding:
    apart, gains, direct = [], [], []
    for seed in range(3):
        problem = data_cleaning(seed=seed, batch=50)
        settings = {"lr": 0.2, "linear_lr": 0.2, "inner_lr": 0.5}
        solver = bo_rep(**settings)  # type: ignore[arg-type]
        x = _solved(solver, problem, 60)["x"]
        before, after = (float(problem.outer(v, problem.respond(v))) for v in (problem.start()[0], x))
        apart.append(problem.separation(x))
        gains.append(before - after)
        direct.append(problem.separation(_solved(solver.but(hypergradient=DirectGradient()), problem, 60)["x"]))
    return Finding(
        measured={
            "separation, mean of 3 problems": sum(apart) / 3,
            "least separation": min(apart),
            "separation without the response": sum(direct) / 3,
            "fall of the validation loss, least": min(gains),
        },
        criterion="30 % of 100 labels wrong: mean separation >= 0.9, and the validation loss falls in all 3 problems",
        holds=sum(apart) / 3 >= 0.9 and min(gains) > 0,
    )


@claim(
    "At a fixed x, the momentum tends to the exact hypergradient.",
    kind="identity",
    baseline="the gradient without the response of y",
)
def tracks() -> Finding:
    problem = exponential_bilevel(distance=1.0, noise=0.0)
    solver = bo_rep(**INNER).but({"update.lr": 1e-12})  # type: ignore[arg-type]
    exact = problem.hypergradient(problem.begin)
    off = {}
    for name, side in (("tracked", solver), ("direct", solver.but(hypergradient=DirectGradient()))):
        momentum = _solved(side, problem, 150)["momentum"]
        off[name] = float((momentum - exact).norm() / exact.norm())
    return Finding(
        measured={"relative error": off["tracked"], "without the response": off["direct"]},
        criterion="relative error < 1e-5 after 150 iterations; without the response > 0.5",
        holds=off["tracked"] < 1e-5 and off["direct"] > 0.5,
    )


@claim(
    "No step of x is longer than lr, however steep the objective.",
    kind="part",
    baseline="the first step of the momentum that is not normalised",
)
def bounded() -> Finding:
    problem = exponential_bilevel()
    solver = bo_rep(**INNER)  # type: ignore[arg-type]
    longest = {}
    for name, side in (("BO-REP", solver), ("not normalised", solver.but(update=MomentumStep()))):
        states = [_solved(side, problem, n) for n in (0, 1, 2)]
        longest[name] = max(float((b["x"] - a["x"]).norm()) for a, b in itertools.pairwise(states))
    return Finding(
        measured={f"longest step, {name}": size for name, size in longest.items()},
        criterion="two first steps of length lr = 0.05 within 1e-9; not normalised, longer than 1",
        holds=abs(longest["BO-REP"] - 0.05) < 1e-9 and longest["not normalised"] > 1,
    )


@mutation("The response of y counts with the opposite sign.", kills=tracks)
def opposite_response(replace: Replace) -> None:
    inner_descent = Hypergradient.inner_descent

    def ascent(problem: BilevelProblem, x: Tensor, y: Tensor, draw: int) -> Tensor:
        return -inner_descent(problem, x, y, draw)

    replace(Hypergradient, "inner_descent", staticmethod(ascent))


@mutation("z stays where it was at first.", kills=tracks)
def still_z(replace: Replace) -> None:
    forward = TrackedHypergradient.forward
    replace(TrackedHypergradient, "forward", lambda self, *args: (forward(self, *args)[0], args[3]))


@mutation("The step is along the momentum, whatever its length.", kills=bounded)
def not_normalised(replace: Replace) -> None:
    replace(NormalisedMomentumStep, "direction", lambda self, momentum: momentum)
