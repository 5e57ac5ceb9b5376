"""Regret minimisers with memories, against their formulas in plain Python, one information set and number at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import pytest
import torch

import polopt as po
from polopt.checks.solver_checks import random_rules
from polopt.problems import ExtensiveGame, game_of, kuhn_poker
from polopt.problems.games import Chance, End, History, Rules
from polopt.solvers import RegretMinimizer

Rows = dict[str, dict[str, float]]


def walked(rules: Rules, sigma: Rows, mover: int) -> tuple[Rows, dict[str, float]]:
    """Regrets of one player's sets and the player's own probability of coming there, by a walk over the tree."""
    regret: Rows = defaultdict(lambda: defaultdict(float))
    own: dict[str, float] = {}

    def walk(history: History, mine: float, others: float) -> float:
        there = rules(history)
        if isinstance(there, End):
            return there.payoffs[mover]
        if isinstance(there, Chance):
            return sum(p * walk((*history, o), mine, others * p) for o, p in there.outcomes.items())
        odds = sigma[key := f"{there.player}: {there.information}"]
        if there.player != mover:
            return sum(odds[a] * walk((*history, a), mine, others * odds[a]) for a in there.actions)
        values = {a: walk((*history, a), mine * odds[a], others) for a in there.actions}
        mean = sum(odds[a] * values[a] for a in there.actions)
        own[key] = mine
        for a in there.actions:
            regret[key][a] += others * (values[a] - mean)
        return mean

    walk((), 1.0, 1.0)
    return regret, own


def in_proportion(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {a: w / total if total > 0 else 1 / len(weights) for a, w in weights.items()}


# One set's update: (R, S, memory, regrets, own reach times sigma, t) -> strategy; R, S and memory change in place.
SetUpdate = Callable[[dict, dict, dict, dict, dict, int], dict[str, float]]


def dcfr(R: dict, S: dict, memory: dict, r: dict, plan: dict, t: int) -> dict[str, float]:
    for a in r:
        S[a] = S[a] * ((t - 1) / t) ** 2 + plan[a]  # the paper's form of the weight t^2
        total = R[a] + r[a]
        R[a] = total * (t**1.5 / (t**1.5 + 1) if total > 0 else 0.5)
    return in_proportion({a: max(x, 0) for a, x in R.items()})


def pdcfr_plus(R: dict, S: dict, memory: dict, r: dict, plan: dict, t: int) -> dict[str, float]:
    for a in r:
        S[a] = S[a] * ((t - 1) / t) ** 5 + plan[a]
        R[a] = max(R[a] * (t - 1) ** 2.3 / ((t - 1) ** 2.3 + 1) + r[a], 0)
    return in_proportion({a: max(R[a] * t**2.3 / (t**2.3 + 1) + r[a], 0) for a in r})


def vad_cfr(R: dict, S: dict, memory: dict, r: dict, plan: dict, t: int) -> dict[str, float]:
    m = max(abs(x) for x in r.values())
    memory["E"] = m if t == 1 else 0.1 * m + 0.9 * memory["E"]
    v = min(1.0, memory["E"] / 2)
    alpha = max(0.1, 1.5 - 0.5 * v)
    beta = min(alpha, -0.1 - 0.5 * v)

    def discounted(x: float) -> float:
        power = alpha if x >= 0 else beta
        return x * t**power / (t**power + 1)

    boosted = {a: 1.1 * x if x > 0 else x for a, x in r.items()}
    g = min(4.0, 2 + 1.5 * min(1.0, m / 2))
    weight = t**g / (1 + m**1.5) * max(0.1, math.sqrt(1 + m / 2)) if t > WARM else 0.0
    optimism = max(0.0, 1 - 0.5 * v) / (1 + (t - 1) / 100)
    for a in r:
        S[a] += weight * plan[a]
        R[a] = max(-20.0, discounted(R[a]) + boosted[a])
    return in_proportion({a: max(0.0, discounted(R[a]) + optimism * boosted[a]) ** 1.5 for a in r})


def aod_cfr(R: dict, S: dict, memory: dict, r: dict, plan: dict, t: int) -> dict[str, float]:
    p = min(1.0, (t - 1) / HORIZON)
    alpha, beta, g = 1 + 1.5 * p, 0.5 - 0.5 * p, 1 + 4 * p
    factor = {(1, 1): 1.1, (1, -1): 0.9, (-1, 1): 0.7, (-1, -1): 1.2}
    for a in r:
        S[a] = S[a] * t**g / (t**g + 1) + t**g * plan[a]
        signs = tuple((x > 0) - (x < 0) for x in (R[a], r[a]))
        power = alpha if R[a] > 0 else beta
        R[a] = R[a] * t**power / (t**power + 1) + factor.get(signs, 1.0) * r[a]
    projected = {a: max(0.0, R[a] + 0.5 * (R[a] - memory.get(a, 0.0))) ** 2 for a in r}
    memory.update({a: 0.1 * R[a] + 0.9 * memory.get(a, 0.0) for a in r})
    return in_proportion(projected)


WARM, HORIZON, ITERATIONS = 5, 6, 14
CASES: dict[str, tuple[RegretMinimizer, SetUpdate]] = {
    "dcfr": (po.solver("dcfr"), dcfr),
    "pdcfr-plus": (po.solver("pdcfr-plus"), pdcfr_plus),
    "vad-cfr-shor-psro": (po.solver("vad-cfr-shor-psro", warm_start=WARM), vad_cfr),
    "aod-cfr": (po.solver("aod-cfr", horizon=HORIZON), aod_cfr),
}


def in_plain_python(rules: Rules, game: ExtensiveGame, update: SetUpdate) -> tuple[Rows, Rows]:
    """Strategy and average after all iterations."""
    sigma: Rows = {key: dict(row) for key, row in game.table(game.uniform()).items()}
    R: Rows = {key: dict.fromkeys(row, 0.0) for key, row in sigma.items()}
    S: Rows = {key: dict.fromkeys(row, 0.0) for key, row in sigma.items()}
    memory: dict[str, dict] = {key: {} for key in sigma}
    for t in range(1, ITERATIONS + 1):
        for mover in range(game.players):
            regret, own = walked(rules, sigma, mover)
            for key, r in regret.items():
                plan = {a: own[key] * p for a, p in sigma[key].items()}
                sigma[key] = update(R[key], S[key], memory[key], r, plan, t)
    return sigma, {key: in_proportion(row) for key, row in S.items()}


@pytest.mark.parametrize("slug", CASES)
@pytest.mark.parametrize("size", [1.0, 400.0])
def test_iterations_are_the_formulas_of_the_paper(slug: str, size: float) -> None:
    """Payoffs of order 1, and so large that volatility is at its bound and sums come to theirs."""
    solver, update = CASES[slug]
    small = random_rules(3)

    def rules(history: History) -> object:
        there = small(history)
        return End([size * p for p in there.payoffs]) if isinstance(there, End) else there

    game = game_of("game", rules)  # type: ignore[arg-type]
    strategy, average = in_plain_python(rules, game, update)  # type: ignore[arg-type]
    state = solver.begin(game)
    for _ in range(ITERATIONS):
        state = solver.iterate(game, state)
    if slug == "vad-cfr-shor-psro" and size > 1:
        assert float(state["regret"].min()) == -20.0
    for found, expected in ((state["strategy"], strategy), (solver.solution(game, state), average)):
        table = game.table(found)
        for key, row in expected.items():
            assert table[key] == pytest.approx(row, abs=1e-10), key


def test_a_scale_is_a_unit_of_payoffs() -> None:
    """Payoffs a hundred times as large, with that scale, give the same strategies."""
    small = random_rules(1)

    def rules(history: History) -> object:
        there = small(history)
        return End([100 * p for p in there.payoffs]) if isinstance(there, End) else there

    games = [game_of("game", small), game_of("game", rules)]  # type: ignore[arg-type]
    solvers = [po.solver("vad-cfr-shor-psro", scale=s, warm_start=3) for s in (1.0, 100.0)]
    states = [s.begin(g) for s, g in zip(solvers, games, strict=True)]
    for _ in range(10):
        states = [s.iterate(g, x) for s, g, x in zip(solvers, games, states, strict=True)]
    found = [s.solution(g, x) for s, g, x in zip(solvers, games, states, strict=True)]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="scale must be positive, found 0"):
        po.solver("vad-cfr-shor-psro", scale=0.0)


def test_before_the_average_begins_the_solution_is_the_present_strategy() -> None:
    game, solver = kuhn_poker(), po.solver("vad-cfr-shor-psro", warm_start=4)
    state = solver.begin(game)
    for t in range(1, 7):
        state = solver.iterate(game, state)
        assert torch.equal(solver.solution(game, state), state["strategy"]) == (t <= 4)


def test_linear_cfr_is_dcfr_of_ones() -> None:
    """Each iteration's regrets and strategies count by its number: only the weights' order of growth is asserted here,
    through the strategies of an independent sum R + t r."""
    game, solver = kuhn_poker(), po.solver("dcfr", alpha=1.0, beta=1.0, gamma=1.0)
    state = solver.begin(game)
    regret, strategy = torch.zeros_like(game.uniform()), game.uniform()
    for t in range(1, 9):
        state = solver.iterate(game, state)
        for player in (0, 1):
            values = game.counterfactual(strategy)[: len(strategy)]
            found = values - game.total(strategy * values)[game.set_of]
            moves = game.player_of == player
            regret = torch.where(moves, regret + t * found, regret)
            strategy = torch.where(moves, game.normalised(regret.clamp(min=0)), strategy)
        torch.testing.assert_close(state["strategy"], strategy, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("slug", "settings", "sentence"),
    [
        ("vad-cfr-shor-psro", {"warm_start": -1}, "warm_start >= 0, found 1.0 and -1"),
        ("aod-cfr", {"horizon": 0}, "horizon must be at least 1, found 0"),
        ("shor-psro", {"scale": 0.0}, "scale must be positive, found 0"),
    ],
)
def test_settings_that_are_none(slug: str, settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        po.solver(slug, **settings)
