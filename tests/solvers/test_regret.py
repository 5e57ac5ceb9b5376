"""Regret minimisation, against a walk over the tree in plain Python, and against its parts' formulas."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

import polopt as po
from polopt.checks.solver_checks import random_rules
from polopt.problems import Chance, End, game_of, kuhn_poker, leduc_poker
from polopt.problems.games import History, Rules
from polopt.solvers import (
    DiscountedRegretSum,
    IterationWeight,
    LinearWeight,
    PositiveRegretSum,
    PowerWeight,
    RegretMatching,
    RegretMinimizer,
    RegretSum,
)


class Walk:
    """CFR by recursion over histories, as in the papers' pseudocode; one dictionary for each information set."""

    def __init__(self, rules: Rules, *, plus: bool, linear: bool, alternating: bool) -> None:
        self.rules, self.plus, self.linear, self.alternating = rules, plus, linear, alternating
        self.regret: dict = defaultdict(lambda: defaultdict(float))
        self.average: dict = defaultdict(lambda: defaultdict(float))
        self.t = 0

    def iterate(self) -> None:
        self.t += 1
        for movers in ((0,), (1,)) if self.alternating else ((0, 1),):
            self.found: dict = defaultdict(lambda: defaultdict(float))
            self.strategy = {key: self.matching(total) for key, total in self.regret.items()}
            self.counted: set = set()
            self.walk((), [1.0, 1.0], 1.0, movers)
            for key, regrets in self.found.items():
                for action, r in regrets.items():
                    total = self.regret[key][action] + r
                    self.regret[key][action] = max(total, 0.0) if self.plus else total

    def matching(self, total: dict) -> dict:
        positive = {a: max(r, 0.0) for a, r in total.items()}
        whole = sum(positive.values())
        return {a: p / whole if whole > 0 else 1 / len(total) for a, p in positive.items()}

    def walk(self, history: History, reach: list[float], chance: float, movers: tuple[int, ...]) -> list[float]:
        there = self.rules(history)
        if isinstance(there, End):
            return list(there.payoffs)
        if isinstance(there, Chance):
            below = [(p, self.walk((*history, o), reach, chance * p, movers)) for o, p in there.outcomes.items()]
            return [sum(p * value[i] for p, value in below) for i in (0, 1)]
        player, key = there.player, f"{there.player}: {there.information}"
        sigma = self.strategy.get(key) or {a: 1 / len(there.actions) for a in there.actions}
        values = {}
        for action in there.actions:
            further = [r * sigma[action] if p == player else r for p, r in enumerate(reach)]
            values[action] = self.walk((*history, action), further, chance, movers)
        mean = [sum(sigma[a] * values[a][i] for a in there.actions) for i in (0, 1)]
        if player in movers:
            for action in there.actions:
                others = reach[1 - player] * chance
                self.found[key][action] += others * (values[action][player] - mean[player])
                if key not in self.counted:
                    weight = self.t if self.linear else 1
                    self.average[key][action] += weight * reach[player] * sigma[action]
            self.counted.add(key)
        return mean

    def table(self) -> dict:
        found = {}
        for key, sums in self.average.items():
            whole = sum(sums.values())
            found[key] = {a: s / whole if whole > 0 else 1 / len(sums) for a, s in sums.items()}
        return found


@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("linear", [False, True])
def test_iterations_are_those_of_a_walk_over_the_tree(alternating: bool, plus: bool, linear: bool) -> None:
    for seed in (1, 2):
        rules = random_rules(seed)
        game, walk = game_of("game", rules), Walk(rules, plus=plus, linear=linear, alternating=alternating)
        solver = RegretMinimizer(
            accumulate=PositiveRegretSum() if plus else RegretSum(),
            average=LinearWeight() if linear else IterationWeight(),
            alternating=alternating,
        )
        state = solver.begin(game)
        for _ in range(12):
            state = solver.iterate(game, state)
            walk.iterate()
        table, expected = game.table(solver.solution(game, state)), walk.table()
        assert table.keys() == expected.keys()
        for place, actions in expected.items():
            assert table[place] == pytest.approx(actions, abs=1e-12)


def test_the_parts_are_their_formulas() -> None:
    total, regret = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([-0.5, -1.0, -2.0]).double()
    assert RegretSum()(total, regret, 3).tolist() == [0.5, -3.0, -1.5]
    assert PositiveRegretSum()(total, regret, 3).tolist() == [0.5, 0.0, 0.0]
    t = 3.0
    positive, negative = t**1.5 / (t**1.5 + 1), t**-0.5 / (t**-0.5 + 1)
    found = DiscountedRegretSum(alpha=1.5, beta=-0.5)(total, regret, 3)
    assert found.tolist() == pytest.approx([0.5 * positive, -3 * negative, -1.5 * negative])
    assert [LinearWeight(delay=2)(t) for t in (1, 2, 3, 5)] == [0.0, 0.0, 1.0, 3.0]
    assert [PowerWeight(power=2)(t) for t in (1, 2, 3)] == [1.0, 4.0, 9.0]
    assert IterationWeight()(7) == 1.0
    game = kuhn_poker()
    total = torch.zeros(24, dtype=torch.double)
    total[:4] = torch.tensor([3.0, 1.0, -1.0, -2.0])
    assert RegretMatching()(game, total)[:6].tolist() == [0.75, 0.25, 0.5, 0.5, 0.5, 0.5]
    with pytest.raises(ValueError, match="delay must be at least 0, found -1"):
        LinearWeight(delay=-1)


def test_the_discounted_sum_has_the_plain_one_as_its_limit() -> None:
    """With t^alpha and t^beta without end nothing is discounted."""
    game = leduc_poker()
    plain = RegretMinimizer()
    limit = RegretMinimizer(accumulate=DiscountedRegretSum(alpha=60.0, beta=60.0))
    states = [s.begin(game) for s in (plain, limit)]
    for t in range(5):
        states = [s.iterate(game, state) for s, state in zip((plain, limit), states, strict=True)]
        if t == 0:  # where t^60 = 1 the discount is a half of everything, which no policy sees
            states[1]["regret"] = states[1]["regret"] * 2
    torch.testing.assert_close(states[0]["strategy"], states[1]["strategy"], rtol=1e-9, atol=1e-12)


def test_before_a_delay_is_over_the_solution_is_uniform() -> None:
    game, solver = kuhn_poker(), po.solver("cfr-plus", delay=2)
    state = solver.begin(game)
    for _ in range(2):
        state = solver.iterate(game, state)
    assert torch.equal(solver.solution(game, state), game.uniform())
    assert not torch.equal(solver.solution(game, solver.iterate(game, state)), game.uniform())


def test_what_is_no_game_is_refused() -> None:
    with pytest.raises(TypeError, match="solves problems of the class ExtensiveGame, found 3"):
        po.solver("cfr").begin(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accumulate"):
        RegretMinimizer(accumulate=LinearWeight())  # type: ignore[arg-type]


def test_two_methods_differ_in_their_parts() -> None:
    found = po.diff(po.solver("cfr"), po.solver("cfr-plus"))
    assert [path for path, *_ in found] == ["accumulate", "average", "alternating"]
    assert [path for path, *_ in po.diff(po.solver("cfr-plus"), po.solver("cfr-plus", delay=3))] == ["average.delay"]
