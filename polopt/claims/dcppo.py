"""These programs measure what the paper of DCPPO claims."""

import math

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import Less, effect
from polopt.methods.dcppo import dcppo
from polopt.problems import OfflineChoices, offline_choices
from polopt.solvers import BellmanRegression, ChoiceEstimates, ChoicePlanner, PessimisticValueIteration
from polopt.solvers.solver import State


def _estimates(solver: ChoicePlanner, problem: OfflineChoices, steps: int = 12) -> ChoiceEstimates:
    state: State = solver.begin(problem)
    for _ in range(steps):
        state = solver.iterate(problem, state)
    return solver.estimates(problem, state)


@effect(
    "From few choices of a human who is nearly optimal, pessimism ends nearer to the optimum.",
    kind="headline",
    method=dcppo,
    controls={"without pessimism": lambda: dcppo(beta=0.0)},
    criteria=[Less("suboptimality", by=0.0)],
    seeds=40,
    note="40 trajectories of 4 steps, 8 states and 5 actions, of which the human takes most seldom. The most frequent "
    "choices themselves are 0.85 from the optimum on these seeds, better than the plan without pessimism.",
)
def pessimism(solver: ChoicePlanner, *, seed: int) -> dict[str, float]:
    start = int(torch.randint(2**20, (), generator=torch.Generator().manual_seed(seed)))
    problem = offline_choices(trajectories=40, states=8, actions=5, seed=start)
    return {"suboptimality": problem.best() - problem.value(_estimates(solver, problem).policy)}


@claim(
    "From exact choice probabilities it recovers the reward, with either value of a state.",
    kind="identity",
    baseline="logits centred in each state, which no anchor has fixed",
)
def recovers() -> Finding:
    off = {"anchored": 0.0, "centred": float("inf")}
    solver = dcppo(ridge=1e-10, penalty=1e-12, beta=0.0)
    for kind in ("mean", "logsumexp"):
        problem = offline_choices(trajectories=0, human_value=kind, size=1.0)  # type: ignore[arg-type]
        found = _estimates(solver, problem, 25)
        off["anchored"] = max(off["anchored"], float((found.reward - problem.reward).abs().max()))
        centred = found.q - found.q.mean(-1, keepdim=True)
        values = (centred.softmax(-1) * centred).sum(-1)
        after = torch.cat([values[1:], torch.zeros_like(values[:1])])
        reward = centred - problem.discount * torch.einsum("sat,ht->hsa", problem.transitions, after)
        off["centred"] = min(off["centred"], float((reward - problem.reward).abs().max()))
    return Finding(
        measured={f"largest error of the reward, {name}": value for name, value in off.items()},
        criterion="error < 1e-5 on a table of 5 states, 3 actions and 4 steps; centred > 0.1",
        holds=off["anchored"] < 1e-5 and off["centred"] > 0.1,
    )


@claim(
    "The error of the reward falls as 1 / sqrt(n) in the number of trajectories.",
    kind="theory",
    baseline="slopes of -0.65 and -0.35 as bounds",
)
def rate() -> Finding:
    errors = {}
    for n in (500, 8000):
        squares: list[float] = []
        for seed in range(6):
            problem = offline_choices(trajectories=n, size=1.0, seed=seed)
            error = _estimates(dcppo(), problem).reward - problem.reward
            squares.append(float(error.square().mean()))
        errors[n] = math.sqrt(sum(squares) / len(squares))
    slope = math.log(errors[8000] / errors[500]) / math.log(16)
    return Finding(
        measured={"slope": slope, "error at 500": errors[500], "error at 8000": errors[8000]},
        criterion="slope of the log error, root mean square over 6 problems, in [-0.65, -0.35]",
        holds=-0.65 <= slope <= -0.35,
    )


@claim(
    "The width is beta / sqrt(n + ridge) for a table.",
    kind="identity",
    baseline="the same width for all",
)
def widths() -> Finding:
    problem = offline_choices(trajectories=50)
    found = _estimates(dcppo(beta=0.7, ridge=2.0), problem, 3).bonus
    visits = problem.counts.sum(-1)
    off = float((found - 0.7 / (visits + 2).sqrt()).abs().max())
    alike = float((found - found.mean()).abs().max())
    return Finding(
        measured={"largest error": off, "of the mean width": alike},
        criterion="error < 1e-12; of the mean width > 0.1",
        holds=off < 1e-12 and alike > 0.1,
    )


@mutation("The human's future does not count in the reward.", kills=recovers)
def short_sighted(replace: Replace) -> None:
    forward = BellmanRegression.forward

    def changed(self: BellmanRegression, problem: OfflineChoices, theta: Tensor) -> tuple[Tensor, Tensor]:
        q, _ = forward(self, problem, theta)
        return q, q

    replace(BellmanRegression, "forward", changed)


@mutation("The width does not shrink with the visits.", kills=widths)
def constant_width(replace: Replace) -> None:
    forward = PessimisticValueIteration.forward

    def changed(self: PessimisticValueIteration, problem: OfflineChoices, reward: Tensor) -> tuple[Tensor, Tensor]:
        policy, bonus = forward(self, problem, reward)
        return policy, torch.full_like(bonus, float(bonus.mean()))

    replace(PessimisticValueIteration, "forward", changed)
