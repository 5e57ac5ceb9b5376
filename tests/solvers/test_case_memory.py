"""A memory of cases: what is kept, what is shown, and who may answer."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from polopt.methods.agentfly_memento import agentfly_memento
from polopt.problems import CaseError, CaseTasks, CopiedCases, copied_cases, find
from polopt.solvers import CosineSimilarity, PairLogistic


class Asked(CopiedCases):
    """Notes which plan is shown in which task."""

    def respond(self, task: int, plan: int, generator: torch.Generator) -> tuple[int, float]:
        found = super().respond(task, plan, generator)
        self.asked.append((task, plan, found))  # type: ignore[attr-defined]
        return found


def asked(**settings: int) -> Asked:
    problem = copied_cases(tasks=60, heldout=8, kinds=3, dimensions=6, **settings)
    noted = Asked(**{field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)})
    object.__setattr__(noted, "asked", [])
    return noted


def test_each_task_is_asked_once_in_turn_and_only_solved_cases_are_shown() -> None:
    problem = asked()
    assert isinstance(problem, CaseTasks)
    solver = agentfly_memento(batch=25)
    state = solver.begin(problem)
    for _ in range(4):  # the last has nothing left to ask
        state = solver.iterate(problem, state)
    calls = problem.asked  # type: ignore[attr-defined]
    assert [task for task, _, _ in calls] == list(range(60))
    earned, plan, shown = (state[name].tolist() for name in ("earned", "plan", "shown"))
    for task, seen, (own, reward) in calls:
        assert (plan[task], earned[task]) == (own, reward)
        assert shown[task] < task
        if shown[task] >= 0:
            assert earned[shown[task]] == 1
            assert seen == plan[shown[task]]
        else:
            assert seen == -1


def test_a_stopped_memory_goes_on_as_the_same_one() -> None:
    problem, solver = asked(seed=1), agentfly_memento(batch=20)
    through = solver.begin(problem)
    for _ in range(3):
        through = solver.iterate(problem, through)
    half = solver.iterate(problem, solver.begin(problem))
    again = agentfly_memento(batch=20)
    for _ in range(2):
        half = again.iterate(problem, half)
    assert all(torch.equal(through[name], half[name]) for name in through)


def test_chances_by_hand() -> None:
    problem = copied_cases(tasks=1, heldout=1, kinds=2, plans=4, copies=0.8, seed=3)
    right = problem.right.tolist()
    table = problem.chances(torch.tensor([0, 1]))
    for kind in (0, 1):
        wanted = [0.8 * (plan == right[kind]) + 0.05 for plan in range(4)] + [0.25]
        assert table[kind].tolist() == pytest.approx(wanted)
    draw = torch.Generator().manual_seed(0)
    told = right[int(problem.kinds[0])]
    rate = sum(problem.respond(0, told, draw)[1] for _ in range(4000)) / 4000
    assert rate == pytest.approx(0.85, abs=0.02)


def test_similarity_learns_nothing_and_regression_what_matters() -> None:
    """Of two numbers the first alone tells whether a case helps."""
    draw = torch.Generator().manual_seed(1)
    s, c = torch.randn(2, 400, 2, generator=draw, dtype=torch.double)
    reward = ((s[:, 0] - c[:, 0]).abs() < 0.5).double()
    w = PairLogistic(ridge=1.0).fitted(s, c, reward)
    assert w[2] < -1  # squared differences of the first
    assert abs(float(w[3])) < 0.3
    assert len(CosineSimilarity().fitted(s, c, reward)) == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"plans": 1}, "plans >= 2"), ({"distractors": 1.0}, "distractors"), ({"copies": 2.0}, "copies in")],
)
def test_problems_that_cannot_be_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(CaseError, match=said):
        find({"name": "copied-cases", **settings})


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"temperature": -1.0}, "temperature >= 0"), ({"explore": 2.0}, "explore"), ({"ridge": 0.0}, "ridge > 0")],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        agentfly_memento(**settings)  # type: ignore[arg-type]


def test_any_agent_may_answer() -> None:
    """A problem of one's own, whose agent is right with any case that was solved, and only then."""

    class Own(CaseTasks):
        name, unit, plans = "own", "failures", 2
        states = torch.eye(4, dtype=torch.double)
        heldout = torch.eye(4, dtype=torch.double)

        def respond(self, task: int, plan: int, generator: torch.Generator) -> tuple[int, float]:
            return (1, 1.0) if task == 0 or plan == 1 else (0, 0.0)

        def measure(self, solution: Tensor) -> dict[str, float]:
            return {"failures": 1 - float(solution[:, 1].mean())}

        def table(self, solution: Tensor) -> list[list[float]]:
            return solution.tolist()

    problem, solver = Own(), agentfly_memento(explore=0.0, batch=4)
    state = solver.iterate(problem, solver.begin(problem))
    assert state["earned"].tolist() == [1.0] * 4
    assert problem.measure(solver.solution(problem, state))["failures"] == pytest.approx(0.0)
