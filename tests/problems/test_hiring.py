"""Mechanisms that hire agents, against closed forms, enumeration and simulation."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import polopt as po
from polopt.claims.hiring_agents import gain_by_enumeration, shared_evidence
from polopt.problems import HiringError, HiringProblem, Mechanism, find, paid_judges, random_hiring
from polopt.problems.hiring import deviation_payments
from polopt.solvers import ExploredSignals, MechanismSolver


def optimal(problem: HiringProblem) -> Mechanism:
    return problem.optimal(problem.signals.numpy())


@pytest.mark.parametrize(("accuracy", "cost"), [(0.9, 0.05), (0.75, 0.02), (0.6, 0.05), (0.3, 0.02)])
def test_one_judge_is_paid_for_being_right(accuracy: float, cost: float) -> None:
    """A payment t for agreement with the state, t (q - 1/2) >= cost, with q the better of the accuracy and its
    complement; hired if that costs less than what is gained, q - 1/2."""
    problem = paid_judges(accuracies=[accuracy], costs=[cost], cap=10.0)
    q = max(accuracy, 1 - accuracy)
    mean = q * cost / (q - 0.5)
    hired = q - 0.5 > mean
    found = problem.outcome(optimal(problem))
    assert found.payments == pytest.approx(mean if hired else 0.0, abs=1e-7)
    assert problem.optimum == pytest.approx(q - mean if hired else 0.5, abs=1e-7)


def test_efforts_that_cost_nothing_are_not_paid() -> None:
    problem = random_hiring(seed=2)
    free = HiringProblem(
        problem.prior, problem.utility, problem.signals, (torch.zeros(2).double(),) * 2, (2, 2), problem.cap
    )
    posterior = torch.einsum("bst,t,at->bsa", problem.signals, problem.prior, problem.utility)
    found = free.outcome(optimal(free))
    assert found.payments == pytest.approx(0, abs=1e-9)
    assert found.value == pytest.approx(float(posterior.amax(-1).sum(-1).max()), abs=1e-9)


@pytest.mark.parametrize("cap", [0.1, 0.4, 2.0])
def test_a_second_agent_checks_as_rarely_as_the_cap_allows(cap: float) -> None:
    """The first agent needs 0.02 in the mean for agreement, so that checks come with probability 0.02 / cap; the second
    gets 0.04 for each."""
    problem = shared_evidence(cap)
    mechanism = optimal(problem)
    assert mechanism.efforts.tolist() == pytest.approx([0, 0, 1 - 0.02 / cap, 0.02 / cap], abs=1e-6)
    assert problem.outcome(mechanism).value == pytest.approx(0.6 - 0.02 - 0.04 * 0.02 / cap, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_gains_of_deviations_are_those_of_an_enumeration(seed: int) -> None:
    """Of mechanisms that are not optimal, too: random payments and recommendations."""
    problem, draw = random_hiring(seed=seed), np.random.default_rng(seed)
    mechanism = Mechanism(draw.dirichlet(np.ones(4)), draw.uniform(0, 1, (2, 4, 4, 2)), draw.integers(0, 2, (4, 4)))
    assert problem.outcome(mechanism).gain == pytest.approx(gain_by_enumeration(problem, mechanism), abs=1e-12)
    assert gain_by_enumeration(problem, mechanism) > 1e-3
    # An agent that sees and reports the truth earns its mean payment.
    weight = (problem.signals * problem.prior).numpy() * mechanism.efforts[:, None, None]
    for i in (0, 1):
        obeyed = np.einsum("kkss->", deviation_payments(problem, mechanism, i))
        assert obeyed == pytest.approx((weight * mechanism.payments[i]).sum(), abs=1e-12)


def test_an_outcome_is_that_of_a_simulation() -> None:
    """With agents who respond by their plans, of a mechanism from which they deviate."""
    problem, draw = random_hiring(seed=5), np.random.default_rng(0)
    mechanism = Mechanism(draw.dirichlet(np.ones(4)), draw.uniform(0, 0.2, (2, 4, 4, 2)), draw.integers(0, 2, (4, 4)))
    found = problem.outcome(mechanism)
    assert any((plan.efforts != [0, 1]).any() for plan in found.responses)
    values = []
    for _ in range(20_000):
        b, state = draw.choice(4, p=mechanism.efforts), draw.choice(2, p=problem.prior.numpy())
        told = (b // 2, b % 2)
        taken = [found.responses[i].efforts[told[i]] for i in (0, 1)]
        s = draw.choice(4, p=problem.signals[2 * taken[0] + taken[1], :, state].numpy())
        report = [found.responses[i].reports[told[i]][(s // 2, s % 2)[i]] for i in (0, 1)]
        r = 2 * report[0] + report[1]
        values.append(
            float(problem.utility[mechanism.decisions[b, r], state]) - mechanism.payments[:, b, r, state].sum()
        )
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - found.value) < 4 * error


def test_a_margin_is_what_a_deviation_loses() -> None:
    lost = []
    for seed in range(6):
        problem = random_hiring(seed=seed)
        mechanism, sizes = problem.optimal(problem.signals.numpy(), margin=0.02), problem.sizes
        assert problem.outcome(mechanism).value <= problem.optimum + 1e-9
        for i in (0, 1):
            earned, cost = deviation_payments(problem, mechanism, i), problem.costs[i].numpy()
            chance = mechanism.efforts[sizes.effort_table[:, i] == 1].sum()
            if chance > 1e-6:  # told to work
                stays = np.einsum("ss->", earned[1, 1]) - chance * cost[1]
                lost.append((stays - (earned[1, 0].max(-1).sum() - chance * cost[0])) / chance)
    assert len(lost) > 3
    assert min(lost) >= 0.02 - 1e-6


def test_a_solution_keeps_the_mechanism() -> None:
    problem, solver = paid_judges(), po.solver("hiring-agents")
    state = solver.begin(problem)
    nobody = problem.table(solver.solution(problem, state))
    assert nobody["recommendations"] == {"judge 1 skips, judge 2 skips, judge 3 skips": 1.0}
    solution = solver.solution(problem, solver.iterate(problem, state))
    measures = problem.measure(solution)
    assert list(measures) == ["loss", "gain", "value", "payments"]
    assert measures["loss"] == pytest.approx(0, abs=1e-9)
    assert measures["gain"] == pytest.approx(0, abs=1e-9)
    table = problem.table(solution)
    assert table["recommendations"] == {"judge 1 looks, judge 2 skips, judge 3 skips": 1.0}
    # 0.05 / (0.9 - 0.5) for being right, with probability 0.9.
    assert table["mean payments"] == pytest.approx({"judge 1": 0.1125, "judge 2": 0, "judge 3": 0}, abs=1e-7)
    for said in itertools.product(("wrong", "right"), repeat=3):
        reports = ", ".join(f"judge {i + 1} says {what}" for i, what in enumerate(said))
        decided = {"wrong": "reject", "right": "accept"}[said[0]]
        assert table["decisions"][f"judge 1 looks, judge 2 skips, judge 3 skips; {reports}; {decided}"] == 1.0
    assert len(table["decisions"]) == 8
    again = problem.mechanism(problem.vector(problem.mechanism(solution)))
    assert np.allclose(again.payments, problem.mechanism(solution).payments)


def test_exploration_counts_what_happens() -> None:
    problem, solver = random_hiring(seed=3), MechanismSolver(model=ExploredSignals(rounds=2000, seed=4))
    state = solver.iterate(problem, solver.iterate(problem, solver.begin(problem)))
    counts = state["counts"]
    assert counts.sum((1, 2)).tolist() == [4000.0] * 4
    expected = problem.signals * problem.prior
    assert float((counts / 4000 - expected).abs().max()) < 5 * float((expected * (1 - expected)).max() / 4000) ** 0.5
    estimate = solver.model(problem, counts)
    assert torch.allclose(estimate.sum(1), torch.ones(4, 2).double())
    assert solver.model.margin(problem, counts) == pytest.approx(0.2 * 2 / 4000**0.5)
    other = MechanismSolver(model=ExploredSignals(rounds=2000, seed=5))
    assert not torch.equal(other.iterate(problem, other.begin(problem))["counts"], counts / 2)


def test_a_file_of_judges(tmp_path: Path) -> None:
    file = tmp_path / "judges.csv"
    file.write_text("judge,cost,accuracy\nsmall,0.01,0.7\nlarge,0.05,0.9\n")
    problem = find({"name": "paid-judges", "file": str(file)})
    assert isinstance(problem, HiringProblem)
    assert problem.agents == ("small", "large")
    same = paid_judges(accuracies=[0.7, 0.9], costs=[0.01, 0.05])
    assert torch.equal(problem.signals, same.signals)
    # Joint efforts (looks, looks), joint signals (right, wrong), an answer that is right.
    assert float(same.signals[3, 2, 1]) == pytest.approx(0.7 * 0.1)
    assert float(same.signals[1, 2, 1]) == pytest.approx(0.5 * 0.1)
    for text, sentence in {
        "judge,cost\na,1\n": "row 1: the column accuracy is missing or empty",
        "judge,cost,accuracy\na,1,0.9\na,1,0.8\n": "row 2: the judge 'a' has a row already",
        "judge,cost,accuracy\na,cheap,0.9\n": "row 1: cost and accuracy must be numbers, found 'cheap'",
        "judge,cost,accuracy\na,1,nan\n": "a needs 0 <= accuracy <= 1 and cost >= 0, found nan",
    }.items():
        file.write_text(text)
        with pytest.raises(HiringError, match=sentence):
            paid_judges(file=str(file))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"accuracies": [], "costs": []}, "one to 5 judges"),
        ({"accuracies": [0.9], "costs": [0.1, 0.2]}, "found 1 accuracies and 2 costs"),
        ({"prior": 1.0}, "need 0 < prior < 1 and value > 0, found 1.0"),
        ({"file": "nowhere.csv"}, "file = 'nowhere.csv' is not there"),
        ({"cap": 0.0}, "costs must be at least 0 and cap positive, found cap = 0"),
    ],
)
def test_judges_that_are_none(settings: dict, sentence: str) -> None:
    with pytest.raises(HiringError, match=sentence):
        paid_judges(**settings)


def test_tables_that_contradict_each_other() -> None:
    problem = random_hiring()
    with pytest.raises(HiringError, match=r"need signals \[B, S, Th\] = \[4, 4, 2\]"):
        HiringProblem(problem.prior, problem.utility, problem.signals[:2], problem.costs, (2, 2), 1.0)
    with pytest.raises(HiringError, match="prior must be probabilities that sum to 1"):
        HiringProblem(2 * problem.prior, problem.utility, problem.signals, problem.costs, (2, 2), 1.0)
    with pytest.raises(HiringError, match="signals, for each effort and state, must be probabilities"):
        HiringProblem(problem.prior, problem.utility, 2 * problem.signals, problem.costs, (2, 2), 1.0)
    cheap = shared_evidence(0.001)
    with pytest.raises(
        HiringError, match=r"no mechanism with payments up to 0\.001 makes deviations lose 0; raise cap"
    ):
        cheap.optimal(cheap.signals.numpy(), fixed=2)
    with pytest.raises(HiringError, match=r"a solution of .* is a float64 tensor"):
        problem.mechanism(torch.zeros(3))
    with pytest.raises(ValueError, match="need rounds >= 1, pseudo_count > 0 and strictness >= 0, found 0"):
        ExploredSignals(rounds=0)
