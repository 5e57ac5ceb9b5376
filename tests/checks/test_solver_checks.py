"""The checks of solvers hold for every solver that there is, and find what was planted."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.checks import check
from polopt.solvers import (
    DiscountedRegretSum,
    LinearWeight,
    PositiveRegretSum,
    PowerWeight,
    RegretMatching,
    RegretMinimizer,
    Solver,
)

ROUNDS = {"rounds": 100, "rounds_per_strategy": 2}
SOLVERS = {slug: po.solver(slug) for slug in po.slugs("solver")}
# As many rounds as are enough for what is checked.
SOLVERS["shor-psro"] = SOLVERS["shor-psro"].but(
    **{f"{meta}.{setting}": few for meta in ("train_meta", "eval_meta") for setting, few in ROUNDS.items()}
)
SOLVERS |= {
    "cfr, alternating": po.solver("cfr", alternating=True),
    "dcfr": RegretMinimizer(accumulate=DiscountedRegretSum(), average=PowerWeight(), alternating=True),
    "all at once": RegretMinimizer(accumulate=PositiveRegretSum(), average=LinearWeight(delay=3)),
}


def verdicts(solver: Solver) -> dict[str, str]:
    (report,) = check(solver, "it")
    assert report.kind == "solver"
    return {finding.title: finding.verdict for finding in report.findings}


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_holds(name: str) -> None:
    assert verdicts(SOLVERS[name]) == dict.fromkeys(("resume", "state", "order", "progress"), "holds")


class Remembering(RegretMinimizer):
    """Counts iterations in the solver, where no checkpoint sees them."""

    def setup(self) -> None:
        self.t = 0

    def iterate(self, problem, state):
        self.t += 1
        return super().iterate(problem, {**state, "iteration": torch.tensor(self.t - 1)})


class InPlace(RegretMinimizer):
    def iterate(self, problem, state):
        found = super().iterate(problem, state)
        state["regret"].copy_(found["regret"])
        return found


class FirstAction(RegretMatching):
    """Takes the first action a little more often."""

    def forward(self, game, total):
        weights = total.clamp(min=0) + 1e-3
        weights[game.levels[0][1].start] += 1.0
        return game.normalised(weights)


class Still(RegretMinimizer):
    def iterate(self, problem, state):
        return {**state, "iteration": state["iteration"] + 1}


@pytest.mark.parametrize(
    ("solver", "broken"),
    [
        (Remembering(average=LinearWeight()), {"resume"}),
        (InPlace(), {"state"}),
        (RegretMinimizer(policy=FirstAction()), {"order"}),
        (Still(), {"progress"}),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, Solver) else "",
)
def test_what_is_planted_is_found(solver: Solver, broken: set[str]) -> None:
    found = verdicts(solver)
    assert {title for title, verdict in found.items() if verdict == "breaks"} == broken


def test_a_solver_of_other_problems_is_not_checked() -> None:
    class Elsewhere(Solver):
        solves = str

    with pytest.raises(ValueError, match="solves str, of which the checks have no examples"):
        check(Elsewhere())
