"""Properties that every solver must satisfy on random problems: exact resumption, no dependence on an order."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
from collections.abc import Callable

import torch
from torch import Tensor

from polopt.checks.finding import CheckResult
from polopt.problems import (
    BilevelProblem,
    Chance,
    CopiedCases,
    Decision,
    End,
    ExactProblem,
    ExponentialBilevel,
    ExtensiveGame,
    HiringProblem,
    JustifiedDecisions,
    OfflineChoices,
    PreferenceGame,
    PreferenceTransfer,
    ThoughtGraphs,
    ToolPlans,
    copied_cases,
    game_of,
    justified_decisions,
    offline_choices,
    preference_transfer,
    random_hiring,
    random_preference_game,
    thought_graph,
    tool_plans,
)
from polopt.problems.games import History, Rules
from polopt.solvers import Solver

SEEDS = (0, 1, 2)
# Iterations of a short check.
FEW = 6


def random_rules(seed: int, cards: str = "abc", most_moves: int = 4) -> Rules:
    """Returns the rules of a random zero-sum game of two players.

    Chance gives each player one of the cards, then the players alternate for up to `most_moves` moves; the number of
    actions, the end of the game and the payoffs are random functions of the seed.
    """

    def generator_of(*place: object) -> random.Random:
        return random.Random(repr((seed, *place)))

    def rules(history: History) -> Chance | Decision | End:
        dealt, moves = history[:2], history[2:]
        if len(dealt) < 2:
            odds = [generator_of("deal", len(dealt), c).uniform(0.2, 1) for c in cards]
            return Chance({card: p / sum(odds) for card, p in zip(cards, odds, strict=True)})
        if len(moves) == most_moves or (moves and generator_of("end", moves).random() < 0.2):
            payoff = generator_of("pay", history).uniform(-2, 2)
            return End((payoff, -payoff))
        player = len(moves) % 2
        actions = ["left", "right", "straight"][: generator_of("actions", moves).choice((2, 2, 3))]
        return Decision(player, " ".join((dealt[player], *moves)), actions)

    return functools.cache(rules)


def reordered(rules: Rules) -> Rules:
    """Returns the rules with actions and chance outcomes in the opposite order."""

    def rules_of_copy(history: History) -> Chance | Decision | End:
        node = rules(history)
        if isinstance(node, Chance):
            return Chance(dict(reversed(list(node.outcomes.items()))))
        if isinstance(node, Decision):
            return Decision(node.player, node.information, list(reversed(node.actions)))
        return node

    return rules_of_copy


def _game_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    rules, name = random_rules(seed), f"random game {seed}"
    return game_of(name, rules), game_of(name, reordered(rules))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _Labelled(ExponentialBilevel):
    """A bilevel problem whose entries of x keep their names in another order."""

    order: tuple[int, ...] = ()

    def labels(self) -> tuple[str, ...]:
        return tuple(str(i) for i in self.order)


def _bilevel_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    g, name = torch.Generator().manual_seed(seed), f"random bilevel problem {seed}"
    spread, mixing = (torch.randn(3, 3, generator=g, dtype=torch.double) for _ in range(2))
    curvature = torch.eye(3, dtype=torch.double) + 0.1 * (spread + spread.T)
    mixing, begin = torch.eye(3, dtype=torch.double) + 0.2 * mixing, torch.tensor([2.0, -1.0, 1.5]).double()
    order = torch.tensor([2, 0, 1])
    return (
        _Labelled(mixing, curvature, begin, name=name, order=(0, 1, 2)),
        _Labelled(
            mixing[order][:, order], curvature[order][:, order], begin[order], name=name, order=tuple(order.tolist())
        ),
    )


def _preference_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    game = random_preference_game(seed, 5, tau=0.05, transitive=0.9)
    order = torch.tensor([3, 1, 4, 0, 2])
    names = tuple(game.answers[i] for i in order.tolist())
    shuffled = PreferenceGame(game.preference[order][:, order], game.reference[order], game.tau, names, name=game.name)
    return game, shuffled


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _NamedChoices(OfflineChoices):
    """Choices whose actions keep their names in another order."""

    order: tuple[int, ...] = (0, 1, 2)

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        found = super().table(solution)
        return {place: {str(self.order[int(a)]): p for a, p in row.items()} for place, row in found.items()}


def _choices_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    # A human without foresight, so that the most frequent choices are not the best.
    problem, order = offline_choices(trajectories=2000, discount=0.0, size=0.5, seed=seed), torch.tensor([2, 0, 1])
    return problem, _NamedChoices(
        problem.counts[:, :, order],
        problem.features[:, order],
        problem.discount,
        1,
        problem.transitions[:, order],
        problem.reward[:, order],
        problem.start,
        order=tuple(order.tolist()),
    )


def _transfer_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    problem, g = preference_transfer(trajectories=6, seed=seed), torch.Generator().manual_seed(seed)
    one, other = torch.randperm(6, generator=g), torch.randperm(6, generator=g)
    shuffled = PreferenceTransfer(
        problem.source[one],
        problem.labels[one][:, one],
        problem.target[other],
        problem.returns[other],
        names=tuple(f"trajectory {j}" for j in other.tolist()),
    )
    return problem, shuffled


def _justified_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    problem, order = (
        justified_decisions(states=6, features=6, actions=3, logged=500, seed=seed),
        torch.tensor([2, 0, 1]),
    )
    process = dataclasses.replace(problem.process, transitions=problem.process.transitions[:, order])
    shuffled = JustifiedDecisions(
        problem.features,
        problem.preference[:, order][:, :, order],
        order.argsort()[problem.baseline],
        problem.counts[:, order],
        process,
        problem.reward[:, order],
        problem.weights[order],
        actions=tuple(str(a) for a in order.tolist()),
    )
    return problem, shuffled


def _hiring_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    """States, actions and agents in the opposite order. Evidence is worth its cost, and no signal is only a coin's."""
    problem, g = random_hiring(seed=seed + 1), torch.Generator().manual_seed(seed)
    other = torch.rand(problem.signals.shape, generator=g, dtype=torch.double)
    problem = dataclasses.replace(
        problem,
        signals=0.9 * problem.signals + 0.1 * other / other.sum(1, True),
        costs=tuple(c / 10 for c in problem.costs),  # low, so that somebody is hired
    )
    agents = torch.tensor([0, 2, 1, 3])  # of joint efforts, and of joint signals, of two agents that change places
    shuffled = HiringProblem(
        problem.prior.flip(0),
        problem.utility.flip(0, 1),
        problem.signals[agents][:, agents].flip(2),
        problem.costs[::-1],
        problem.signal_counts,
        problem.cap,
        agents=problem.agents[::-1],
        states=problem.states[::-1],
        actions=problem.actions[::-1],
        name=problem.name,
    )
    return problem, shuffled


def _plans_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    """Nodes of each depth in another order."""
    problem, g = tool_plans(depth=3, branching=3, tools=5, memory=2, seed=seed), torch.Generator().manual_seed(seed)
    depth = torch.tensor([len(problem.plan(node)) for node in range(len(problem.parent))])
    order = (depth + torch.rand(len(depth), generator=g)).argsort()  # new number -> old one
    number = order.argsort()
    parent = problem.parent[order]
    shuffled = dataclasses.replace(
        problem,
        parent=torch.where(parent >= 0, number[parent.clamp(min=0)], -1),
        **{name: getattr(problem, name)[order] for name in ("call", "cost", "goal", "chance")},
    )
    return problem, shuffled


def _thoughts_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    """The actions in the opposite order."""
    draw = torch.rand(2, generator=torch.Generator().manual_seed(seed)).tolist()
    problem = thought_graph(size=8, depth=2, accuracy=0.7 + 0.25 * draw[0], repair=0.8 + 0.15 * draw[1])
    return problem, dataclasses.replace(problem, actions=problem.actions[::-1])


def _cases_pair(seed: int) -> tuple[ExactProblem, ExactProblem]:
    """The same tasks, described by their numbers in another order."""
    problem = copied_cases(tasks=300, heldout=40, kinds=4, dimensions=8, seed=seed)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    return problem, dataclasses.replace(problem, states=problem.states[:, order], heldout=problem.heldout[:, order])


# Class of problems -> a random one from a seed, and the same with its entries in another order.
EXAMPLES: dict[type, Callable[[int], tuple[ExactProblem, ExactProblem]]] = {
    ExtensiveGame: _game_pair,
    BilevelProblem: _bilevel_pair,
    PreferenceGame: _preference_pair,
    HiringProblem: _hiring_pair,
    JustifiedDecisions: _justified_pair,
    OfflineChoices: _choices_pair,
    PreferenceTransfer: _transfer_pair,
    ToolPlans: _plans_pair,
    ThoughtGraphs: _thoughts_pair,
    CopiedCases: _cases_pair,
}


def solver_findings(solver: Solver) -> list[CheckResult]:
    """Checks a solver on random problems of the class that it solves.

    Raises:
        ValueError: there are no random problems of that class.
    """
    _pairs(solver)
    return [check(solver) for check in (_resumes, _leaves_the_state, _reorders, _improves)]


def _pairs(solver: Solver) -> list[tuple[ExactProblem, ExactProblem]]:
    """Returns random problems, each with its reordered copy."""
    for kind, pair in EXAMPLES.items():
        if issubclass(kind, solver.solves):
            return [pair(seed) for seed in SEEDS]
    raise ValueError(f"{solver!r} solves {solver.solves.__name__}, of which the checks have no examples")


def _iterated(solver: Solver, game: ExactProblem, steps: int) -> dict[str, Tensor]:
    state = solver.begin(game)
    for _ in range(steps):
        state = solver.iterate(game, state)
    return state


def _result(title: str, broken: str, confirmed: str, why: str) -> CheckResult:
    return CheckResult(title, "breaks" if broken else "holds", broken or confirmed, why)


def _resumes(solver: Solver) -> CheckResult:
    """Checks that a copy resumed from a saved state ends with the bits of an uninterrupted run."""
    broken = ""
    for game, _ in _pairs(solver):
        whole = _iterated(copy.deepcopy(solver), game, FEW)
        saved = {name: x.clone() for name, x in _iterated(copy.deepcopy(solver), game, FEW // 2).items()}
        again = copy.deepcopy(solver)
        for _ in range(FEW - FEW // 2):
            saved = again.iterate(game, saved)
        for name, x in whole.items():
            if not torch.equal(x, saved[name]):
                broken = broken or f"after a resume {name} differs on {game.name}"
    return _result("resume", broken, "the bits of a straight run", "A killed run would end otherwise.")


def _leaves_the_state(solver: Solver) -> CheckResult:
    """Checks that an iteration changes neither the state that it is given nor the solver."""
    broken = ""
    for game, _ in _pairs(solver):
        own = copy.deepcopy(solver)
        state, before = _iterated(own, game, 2), copy.deepcopy(own.state_dict())
        kept = {name: x.clone() for name, x in state.items()}
        own.iterate(game, state)
        changed = [name for name, x in kept.items() if not torch.equal(x, state[name])]
        changed += [f"the solver's {name}" for name, x in own.state_dict().items() if not torch.equal(x, before[name])]
        if changed:
            broken = broken or f"an iteration changes {', '.join(changed)} in place"
    return _result("state", broken, "left as it was given", "What was saved would not be what the next step reads.")


def _reorders(solver: Solver) -> CheckResult:
    """Checks that the order of actions and chance outcomes, or of variables, changes nothing."""
    worst = 0.0
    for game, other in _pairs(solver):
        tables = []
        for g in (game, other):
            own = copy.deepcopy(solver)
            tables.append(g.table(own.solution(g, _iterated(own, g, FEW))))
        for place, actions in tables[0].items():
            worst = max(worst, *(abs(p - tables[1][place][action]) for action, p in actions.items()))
    broken = f"the solution moves by {worst:.3g} when actions, outcomes or variables are listed in another order"
    why = "Names and order mean nothing in a problem."
    return _result("order", broken if worst > 1e-9 else "", f"within {worst:.1g}", why)


def _improves(solver: Solver) -> CheckResult:
    """Checks that the solution gets better."""
    broken, many = "", solver.progress_steps
    for game, _ in _pairs(solver):
        own = copy.deepcopy(solver)
        start, end = (_distance(own, game, steps) for steps in (0, many))
        if not end < start:
            broken = broken or f"after {many} iterations {game.name} is {end:.3g} from solved, at the start {start:.3g}"
    return _result("progress", broken, f"better after {many} iterations", "It would not be a solver.")


def _distance(solver: Solver, game: ExactProblem, steps: int) -> float:
    return next(iter(game.measure(solver.solution(game, _iterated(solver, game, steps))).values()))
