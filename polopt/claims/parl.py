"""These programs measure what the paper of PARL claims."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import More, effect
from polopt.methods.parl import parl
from polopt.problems import BilevelProblem, RewardAlignment, preference_alignment, reward_design
from polopt.solvers import (
    BilevelDescent,
    ConjugateGradient,
    DirectGradient,
    Hypergradient,
    ImplicitHypergradient,
    InnerSteps,
)
from polopt.solvers.solver import State


def without_response() -> BilevelDescent:
    """Returns the same loop without the policy's response: iterative reward learning."""
    return parl().but(hypergradient=DirectGradient())


def _ran(solver: BilevelDescent, problem: RewardAlignment, steps: int) -> State:
    state: State = solver.begin(problem)
    for _ in range(steps):
        state = solver.iterate(problem, state)
    return state


@effect(
    "From as many labelled pairs of its own trajectories, the policy earns more true reward.",
    kind="headline",
    method=parl,
    controls={"without the response": without_response},
    step_sizes=(0.1, 0.5, 2.0, 8.0),
    seeds=5,
    trials=2,
    criteria=[More("true return", by=0.0)],
    cost="slow",
    refuted=True,
    note="Less that of the best policy, on random problems of 27 trajectories, 30 updates of 40 pairs. The term does "
    "lower the cross-entropy, by policies whose pairs are easy to tell apart: good and bad trajectories both.",
)
def aligns(solver: BilevelDescent, *, seed: int, step_size: float) -> dict[str, float]:
    start = int(torch.randint(2**20, (), generator=torch.Generator().manual_seed(seed)))
    problem = preference_alignment(rows=80, seed=start)
    state = _ran(solver.but({"update.lr": step_size, "seed": start}), problem, 30)
    return {"true return": problem.true_return(state["y"]) - problem.best_return()}


@claim(
    "The hypergradient is that of the outer objective at the policy's optimum.",
    kind="identity",
    baseline="the gradient without the policy's response; finite differences of G in 3 random directions",
)
def exact() -> Finding:
    g = torch.Generator().manual_seed(0)
    off = {"PARL": 0.0, "without the response": float("inf")}
    for problem in (preference_alignment(), reward_design()):
        x = 0.5 * torch.randn(21, generator=g, dtype=torch.double)
        y = problem.respond(x)
        full = ImplicitHypergradient(solver=ConjugateGradient(iterations=200, tolerance=1e-13))
        found = {
            name: part(problem, x, y, y, iter(range(2)))[0]
            for name, part in (("PARL", full), ("without the response", DirectGradient()))
        }
        for _ in range(3):
            way = torch.randn(21, generator=g, dtype=torch.double)
            ends = [problem.outer(v, problem.respond(v)) for v in (x + 1e-4 * way, x - 1e-4 * way)]
            true = float(ends[0] - ends[1]) / 2e-4
            off["PARL"] = max(off["PARL"], abs(float(found["PARL"] @ way) - true))
            apart = abs(float(found["without the response"] @ way) - true)
            off["without the response"] = min(off["without the response"], apart)
    return Finding(
        measured={"largest error": off["PARL"], "least error without the response": off["without the response"]},
        criterion="error < 1e-6 in every direction; without the response > 1e-3 in all",
        holds=off["PARL"] < 1e-6 and off["without the response"] > 1e-3,
    )


@claim(
    "The loop ends at a lower outer objective than the loop without the policy's response.",
    kind="part",
    baseline="the loop without the response, at its best of three step sizes",
)
def descends() -> Finding:
    ours, others = [], []
    for seed in range(2):
        problem = preference_alignment(seed=seed)
        ends = [_ran(side, problem, 25)["x"] for side in (parl(lr=1.0), *_step_sizes())]
        own, *rest = (float(problem.outer(x, problem.respond(x))) for x in ends)
        ours.append(own)
        others.append(min(rest))
    gaps = [other - own for own, other in zip(ours, others, strict=True)]
    return Finding(
        measured={
            "cross-entropy, mean": sum(ours) / 2,
            "without the response, mean": sum(others) / 2,
            "least gap of a problem": min(gaps),
        },
        criterion="25 exact updates: lower by more than 0.001 in both problems, against the best of lr 0.3, 1 and 3",
        holds=min(gaps) > 0.001,
    )


def _step_sizes() -> list[BilevelDescent]:
    return [without_response().but({"update.lr": lr}) for lr in (0.3, 1.0, 3.0)]


def _designed(rows: int) -> dict[str, float]:
    """Returns how far each loop gets on the way from no reward to the best policy. rows: trajectories, 0 for exact."""
    problem = reward_design(rows=rows)
    first = problem.true_return(problem.respond(problem.start()[0]))
    sides = {"PARL": parl(lr=5.0, inner_steps=10), "without": without_response()}
    ends = {name: problem.true_return(_ran(side, problem, 25)["y"]) for name, side in sides.items()}
    return {name: (end - first) / (problem.best_return() - first) for name, end in ends.items()}


@claim(
    "A reward is designed from the utility of the policy that it brings about.",
    kind="part",
    baseline="the loop without the response, to which nothing but the price of the reward is left",
)
def designs() -> Finding:
    share = _designed(0)
    return Finding(
        measured=share,
        criterion="of the way from no reward to the best policy, >= 0.8; < 0.1 without the response",
        holds=share["PARL"] >= 0.8 and abs(share["without"]) < 0.1,
    )


@claim(
    "A reward is designed so from sampled trajectories, too.",
    kind="part",
    baseline="as before",
)
def designs_from_samples() -> Finding:
    share = _designed(64)
    return Finding(
        measured=share,
        criterion="64 trajectories: of the way from no reward to the best policy, >= 0.8; < 0.1 without the response",
        holds=share["PARL"] >= 0.8 and abs(share["without"]) < 0.1,
        note="On nine fresh seeds it got beyond 0.8 on four, and 0.8 of the way on average.",
    )


@claim(
    "The derivatives of the sampled objectives are unbiased, those of the policy's response among them.",
    kind="part",
    baseline="the exact derivatives, and those of one trajectory's weight left out",
)
def unbiased() -> Finding:
    problem, exact = preference_alignment(rows=400), preference_alignment()
    g = torch.Generator().manual_seed(0)
    x, y = (0.5 * torch.randn(21, generator=g, dtype=torch.double) for _ in range(2))
    found, true = {}, {}
    draws = int(torch.randint(2**20, (), generator=g))
    for name, which in (("outer", Hypergradient.partial), ("inner", _inner_gradient)):
        true[name] = torch.cat([v.flatten() for v in which(exact, x, y, 0)])
        drawn = [torch.cat([v.flatten() for v in which(problem, x, y, draws + i)]) for i in range(150)]
        mean, error = torch.stack(drawn).mean(0), torch.stack(drawn).std(0) / 150**0.5
        found[name] = float(((mean - true[name]) / error.clamp(min=1e-9)).square().mean())
    return Finding(
        measured={f"mean squared error of {name}, in standard errors": v for name, v in found.items()},
        criterion="f_x and f_y, then g_y and a product with g_yy, 150 samples of 400 trajectories: below 2",
        holds=max(found.values()) < 2,
    )


def _inner_gradient(problem: BilevelProblem, x: Tensor, y: Tensor, draw: int) -> tuple[Tensor, Tensor]:
    """Returns -g_y, and the product of -g_yy with a vector of ones and zeros, which is no shift of a softmax."""
    y = y.detach().requires_grad_()
    slope = Hypergradient.inner_descent(problem, x, y, draw)
    way = (torch.arange(len(y)) % 3 == 0).double()
    return slope.detach(), torch.autograd.grad(slope @ way, y)[0]


@mutation("The policy's response counts with the opposite sign.", kills=exact)
def opposite_response(replace: Replace) -> None:
    inner_descent = Hypergradient.inner_descent

    def ascent(problem: BilevelProblem, x: Tensor, y: Tensor, draw: int) -> Tensor:
        return -inner_descent(problem, x, y, draw)

    replace(Hypergradient, "inner_descent", staticmethod(ascent))


@mutation("The outer objective's change with the policy's trajectories is not differentiated.", kills=exact)
def fixed_trajectories(replace: Replace) -> None:
    partial = Hypergradient.partial

    def fixed(problem: BilevelProblem, x: Tensor, y: Tensor, draw: int) -> tuple[Tensor, Tensor]:
        direct, through = partial(problem, x, y, draw)
        return direct, torch.zeros_like(through)

    replace(Hypergradient, "partial", staticmethod(fixed))


@mutation("The policy does not follow the reward.", kills=designs)
def still_policy(replace: Replace) -> None:
    replace(InnerSteps, "forward", lambda self, problem, x, y, iteration, draws: y)
