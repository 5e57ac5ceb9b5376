"""Rewards by debate: judges against SciPy's optimiser, debates against a search of all of them, learners by hand."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

import polopt as po
from polopt.problems import JustificationError, JustifiedDecisions, find, justified_decisions
from polopt.solvers import (
    FittedQ,
    GreedyDebate,
    IsolatedEvidence,
    JustifiableSolver,
    MinimaxDebate,
    PreferenceJudge,
    RandomEvidence,
    UtilityJudge,
)
from polopt.solvers.debate import Scores, seen

FEATURES, ACTIONS, STATES = 5, 3, 4


def any_judge(seed: int) -> tuple[Scores, dict[tuple[int, ...], Tensor]]:
    """A judge whose scores of sets of evidence have nothing to do with each other, and its table."""
    g = torch.Generator().manual_seed(seed)
    sets = [s for size in range(FEATURES + 1) for s in itertools.combinations(range(FEATURES), size)]
    table = {s: torch.randn(STATES, ACTIONS, generator=g, dtype=torch.double) for s in sets}

    def scores(masks: Tensor) -> Tensor:
        return torch.stack([table[tuple(mask.nonzero().flatten().tolist())] for mask in masks], 1)

    return scores, table


def searched(table: dict[tuple[int, ...], Tensor], s: int, a: int, b: int, left: int, own: bool) -> float:
    """The sign of the margin of a over b after optimal play, the next word being the action's side's if `own`."""

    def value(revealed: frozenset[int], left: int, own: bool) -> float:
        if not left:
            score = table[tuple(sorted(revealed))][s]
            return float((score[a] - score[b]).sign())
        after = [value(revealed | {i}, left - 1, not own) for i in range(FEATURES) if i not in revealed]
        return max(after) if own else min(after)

    return value(frozenset(), left, own)


@pytest.mark.parametrize("evidence", [0, 2, 4])
def test_a_debate_is_won_as_a_search_of_all_of_them_says(evidence: int) -> None:
    scores, table = any_judge(evidence)
    opponent = torch.tensor([0, 2, 1, 1])
    sides = {"action": True, "opponent": False}
    found = {
        first: MinimaxDebate(evidence=evidence, first=first)(scores, opponent, FEATURES)  # type: ignore[arg-type]
        for first in (*sides, "both")
    }
    for s, a in itertools.product(range(STATES), range(ACTIONS)):
        expected = [searched(table, s, a, int(opponent[s]), evidence, own) > 0 for own in sides.values()]
        assert [bool(found[first][s, a]) for first in sides] == expected
        assert float(found["both"][s, a]) == sum(expected) / 2
    assert (found["both"][torch.arange(STATES), opponent] == 0).all()  # an action does not beat itself


def test_evidence_that_nobody_answers() -> None:
    scores, table = any_judge(7)
    opponent = torch.zeros(STATES, dtype=torch.long)
    wins = torch.stack([table[s] > table[s][:, :1] for s in itertools.combinations(range(FEATURES), 2)]).double()
    torch.testing.assert_close(RandomEvidence(evidence=2)(scores, opponent, FEATURES), wins.mean(0))
    torch.testing.assert_close(IsolatedEvidence(evidence=2)(scores, opponent, FEATURES), wins.amax(0))


def test_greedy_sides_reveal_the_best_feature_left_of_a_linear_judge() -> None:
    problem = justified_decisions(states=6, features=7, actions=3, seed=2)
    judge = UtilityJudge()
    theta = judge.fit(problem)
    found = GreedyDebate(evidence=4, first="opponent")(
        lambda masks: judge.scores(theta, problem.features, masks), problem.baseline, 7
    )
    for s, a in itertools.product(range(6), range(3)):
        worth = sorted((problem.features[s] * (problem.weights[a] - problem.weights[problem.baseline[s]])).tolist())
        # By turns the worst and the best feature for the action: two of each.
        assert bool(found[s, a]) == (sum(worth[:2] + worth[-2:]) > 1e-12)


def test_the_judge_is_the_maximum_of_the_likelihood() -> None:
    problem = justified_decisions(states=8, features=3, actions=3, seed=1)
    judge = PreferenceJudge(evidence=2, masks=5, ridge=0.01, seed=4)
    theta = judge.fit(problem).numpy()
    order = torch.rand(8, 5, 3, generator=torch.Generator().manual_seed(4)).argsort(-1)
    masks = order < 2
    assert (masks.sum(-1) == 2).all()
    x = problem.features[:, None].expand(8, 5, 3)
    z = torch.cat([torch.where(masks, x, 0), masks.double(), torch.ones(8, 5, 1).double()], -1).numpy()

    def loss(flat: np.ndarray) -> float:
        score = z @ flat.reshape(3, 7).T
        total = 0.0
        for a, b in itertools.permutations(range(3), 2):
            p = problem.preference[:, a, b].numpy()[:, None]
            total += (p * np.logaddexp(0, score[..., b] - score[..., a])).sum()
        return total / (8 * 5 * 3) + 0.005 * (flat**2).sum()

    found = scipy.optimize.minimize(loss, np.zeros(21), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(theta.ravel(), found.x, atol=1e-5)
    torch.testing.assert_close(
        judge.scores(torch.from_numpy(theta), problem.features, masks[0]),
        seen(problem.features, masks[0]) @ torch.from_numpy(theta).T,
    )


def test_from_all_the_evidence_it_recovers_the_utility() -> None:
    problem = justified_decisions(states=60, features=3, actions=3, certainty=1.0)
    theta = PreferenceJudge(evidence=3, masks=1, ridge=1e-10, steps=25).fit(problem)
    scores = seen(problem.features, torch.ones(1, 3).bool())[:, 0] @ theta.T
    differences = [s - s[:, :1] for s in (scores, problem.utility)]
    torch.testing.assert_close(*differences, rtol=0, atol=1e-5)


def test_what_was_not_logged_is_not_done() -> None:
    problem = justified_decisions(states=5, features=2, actions=3, logged=0)
    counts = problem.counts.clone()
    counts[0, 1:] = 0
    counts[1] = 0
    problem = dataclasses.replace(problem, counts=counts)
    learner, reward = FittedQ(), torch.tensor([0.0, 5.0, 9.0], dtype=torch.double).expand(5, 3)
    q = torch.zeros(5, 3, dtype=torch.double)
    for _ in range(400):
        q = learner(problem, reward, q)
    policy = learner.policy(problem, q)
    assert policy[0].tolist() == [1, 0, 0]
    assert policy[1].tolist() == pytest.approx([1 / 3] * 3)
    assert (policy[2:] == torch.tensor([0, 0, 1])).all()
    # States 0 and 1 have values of their own, the others earn 9 a step until they get there.
    P = counts[:, 0] / counts[:, 0].sum(-1, keepdim=True).clamp(min=1e-300)
    P[1] = 0
    P[0] = problem.process.transitions[0, 0]
    earned = torch.tensor([0.0, 0, 9, 9, 9], dtype=torch.double)
    value = torch.linalg.solve(torch.eye(5, dtype=torch.double) - 0.9 * P, earned)
    torch.testing.assert_close(q.amax(-1), value)


def test_measures_of_two_states_by_hand() -> None:
    """One step: the discount is 0, so that the states are visited as the start has it."""
    problem = JustifiedDecisions(
        features=torch.tensor([[1.0], [-1.0]]).double(),
        preference=torch.full((2, 2, 2), 0.5).double(),
        baseline=torch.tensor([0, 0]),
        counts=torch.ones(2, 2, 2).double(),
        process=po.problems.TabularMDP(torch.full((2, 2, 2), 0.5).double(), torch.tensor([0.25, 0.75]).double(), 0.0),
        reward=torch.tensor([[0.0, 1.0], [2.0, 1.0]]).double(),
        weights=torch.tensor([[0.0], [1.0]]).double(),
    )
    # Action 1 differs from the baseline's; it is preferred in state 0 alone.
    found = problem.measure(torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double())
    assert found["value"] == pytest.approx(0.25 * 1 + 0.75 * 1.5)
    assert found["regret"] == pytest.approx(0.25 * 1 + 0.75 * 2 - found["value"])
    assert found["preferred"] == pytest.approx(0.25 / (0.25 + 0.375))
    assert problem.measure(torch.tensor([[1.0, 0], [1, 0]]).double())["preferred"] == 0.5


def test_findings_are_plain_data() -> None:
    problem = find({"name": "justified-decisions", "states": 8, "features": 5, "logged": 300})
    assert isinstance(problem, JustifiedDecisions)
    assert float(problem.counts.sum()) == 300
    solver = po.solver("debate-reward")
    assert isinstance(solver, JustifiableSolver)
    state = solver.begin(problem)
    for _ in range(5):
        state = solver.iterate(problem, state)
    found = solver.findings(problem, state).record()
    assert json.loads(json.dumps(found)) == found
    assert found["value"] == pytest.approx(problem.measure(solver.solution(problem, state))["value"])
    assert set(problem.table(solver.solution(problem, state))["state 7"]) == {"0", "1", "2", "3"}


def test_bad_input_is_named() -> None:
    problem = justified_decisions(states=4, features=3, actions=2)
    with pytest.raises(JustificationError, match=r"needs weights of shape \[2, 3\]"):
        dataclasses.replace(problem, weights=torch.zeros(2, 4))
    with pytest.raises(JustificationError, match="baseline must be actions"):
        dataclasses.replace(problem, baseline=torch.full((4,), 2))
    with pytest.raises(JustificationError, match="preferences of a pair"):
        dataclasses.replace(problem, preference=torch.ones(4, 2, 2).double())
    with pytest.raises(JustificationError, match="actions >= 2"):
        justified_decisions(actions=1)
    for settings, name in (
        ({"lam": 1.5}, "lam"),
        ({"bonus": -1.0}, "bonus"),
        ({"evidence": 3}, "evidence must be even"),
        ({"evidence": -2}, "evidence"),
        ({"masks": 0}, "masks"),
        ({"ridge": 0.0}, "ridge"),
    ):
        with pytest.raises(ValueError, match=name):
            po.solver("debate-reward", **settings)
    with pytest.raises(ValueError, match="of 3 features; lower it to 3"):
        po.solver("debate-reward").begin(problem)
    with pytest.raises(ValueError, match="least"):
        FittedQ(least=-1.0)
    wide = justified_decisions(states=2, features=44, actions=2)
    solver = po.solver("debate-reward", evidence=6)
    with pytest.raises(ValueError, match=r"7059052 sets of evidence.*GreedyDebate"):
        solver.begin(wide)
    greedy = solver.but(debate=GreedyDebate(evidence=6))
    assert isinstance(greedy, JustifiableSolver)
    assert greedy.begin(wide)["won"].shape == (2, 2)
