"""Extensive-form games as tensors over sequences: each player's choices so far, and payoffs of terminal histories."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from polopt.errors import UserError

History = tuple[str, ...]
# A game tree with more histories is not enumerated.
MOST_HISTORIES = 2_000_000


class GameError(UserError, ValueError):
    """A game's rules contradict themselves, or a strategy is none of the game's."""


@dataclasses.dataclass(frozen=True)
class Chance:
    """A chance node. outcomes: probability of each, which sum to 1."""

    outcomes: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Decision:
    """A decision node. information: the player's complete information, as text: histories with the same player and
    information are one information set. actions: the names of the moves, in order."""

    player: int
    information: str
    actions: Sequence[str]


@dataclasses.dataclass(frozen=True)
class End:
    """A terminal node. payoffs: one for each player."""

    payoffs: Sequence[float]


# The rules of a game: what follows a history of moves and chance outcomes.
Rules = Callable[[History], Chance | Decision | End]


@dataclasses.dataclass(frozen=True, eq=False)
class ExtensiveGame:
    """A finite game of perfect recall, in which a strategy is a vector of probabilities [E], one for each pair of an
    information set and an action there.

    A player's *sequence* is the last of these pairs that the player chose, which, with perfect recall, fixes all
    earlier ones. Sequences are numbered 0 to E - 1, and E + p is the empty sequence of player p. Information sets are
    ordered by *level*, the number of the player's own earlier choices: the sets and pairs of a level are slices, and
    everything is computed level by level for all players at once.

    name, unit: of the game, and of its payoffs.
    players: how many there are.
    information: [I] the player's information in each set.
    actions: [E] the action of each pair.
    set_of: [E] the information set of each pair. player_of: [E] its player.
    parent: [I] the sequence of the set's player that leads to the set.
    levels: for each level, the slices of its sets and of its pairs.
    last: [P, Z] each player's sequence at each end of the game.
    chance: [Z] the probability of the chance outcomes on the way there.
    payoff: [P, Z] the payoff of each player.
    """

    name: str
    unit: str
    players: int
    information: tuple[str, ...]
    actions: tuple[str, ...]
    set_of: Tensor
    player_of: Tensor
    parent: Tensor
    levels: tuple[tuple[slice, slice], ...]
    last: Tensor
    chance: Tensor
    payoff: Tensor

    def __repr__(self) -> str:
        return (
            f"ExtensiveGame({self.name}: {self.players} players, {len(self.information)} information sets, "
            f"{self.last.shape[1]} ends)"
        )

    def uniform(self) -> Tensor:
        """Returns the strategy [E] that takes all actions of a set with equal probability."""
        return 1.0 / self.total(torch.ones(len(self.actions), dtype=torch.double))[self.set_of]

    def total(self, values: Tensor) -> Tensor:
        """Sums over the actions of each information set: [E] to [I]."""
        return values.new_zeros(len(self.information)).index_add(0, self.set_of, values)

    def largest(self, values: Tensor) -> Tensor:
        """Returns the largest value over the actions of each information set: [E] to [I]."""
        least = values.new_full((len(self.information),), -math.inf)
        return least.scatter_reduce(0, self.set_of, values, "amax")

    def normalised(self, weights: Tensor) -> Tensor:
        """Returns the strategy [E] in proportion to nonnegative weights [E]; uniform in sets where all are 0."""
        total = self.total(weights)[self.set_of]
        return torch.where(total > 0, weights / torch.where(total > 0, total, 1.0), self.uniform())

    def realisation(self, strategy: Tensor) -> Tensor:
        """Computes the realisation plans [..., E + P] of strategies [..., E]: the probability that a player's choices
        follow each sequence."""
        plan = strategy.new_ones(*strategy.shape[:-1], len(self.actions) + self.players)
        for _, pairs in self.levels:
            plan[..., pairs] = plan[..., self.parent[self.set_of[pairs]]] * strategy[..., pairs]
        return plan

    def counterfactual(self, strategy: Tensor, *, best: bool = False, plan: Tensor | None = None) -> Tensor:
        """Computes the counterfactual values [E + P] of all sequences, for the player of the sequence:

            q(I, a) = sum over histories h in I of pi_{-i}(h) u_i(h a)

        with pi_{-i} the probability of the choices of the others and of chance, and u_i the expected payoff if all
        players follow the strategy from there on. The value of the empty sequence is the player's expected payoff.

        best: the player takes the best action at each of its decisions, against the others' strategy; the value of
        the empty sequence is then that of an exact best response.
        plan: the strategy's realisation plan, if it is known already.
        """
        reach = (self.realisation(strategy) if plan is None else plan)[self.last]
        payoff = torch.stack([_product_without(reach, p) for p in range(self.players)]) * self.chance * self.payoff
        values = torch.zeros(len(self.actions) + self.players, dtype=torch.double)
        values.index_add_(0, self.last.flatten(), payoff.flatten())
        for sets, pairs in reversed(self.levels):
            place, count = self.set_of[pairs] - sets.start, sets.stop - sets.start
            if best:
                start = torch.full((count,), -math.inf, dtype=torch.double)
                worth = start.scatter_reduce(0, place, values[pairs], "amax")
            else:
                worth = torch.zeros(count, dtype=torch.double).index_add(0, place, strategy[pairs] * values[pairs])
            values.index_add_(0, self.parent[sets], worth)
        return values

    def best_response(self, strategy: Tensor) -> Tensor:
        """Computes each player's exact best response [E] to the others' strategies: in each information set the actions
        of the largest counterfactual value, with equal probabilities if they are several."""
        values = self.counterfactual(self.checked(strategy), best=True)[: len(self.actions)]
        # Equal values differ by rounding, as sums over histories in some order.
        margin = 1e-12 * float(self.payoff.abs().max())
        return self.normalised((values >= self.largest(values)[self.set_of] - margin).double())

    def mixture(self, strategies: Tensor, weights: Tensor) -> Tensor:
        """Computes the strategy [E] that plays as each player does who draws one of several strategies [K, E] at the
        start of the game, player p with the probabilities weights[p], [P, K]."""
        plans = self.realisation(strategies)[:, : len(self.actions)]
        return self.normalised((weights[self.player_of].T * plans).sum(0))

    def profile_payoffs(self, strategies: Tensor) -> Tensor:
        """Computes the payoffs [P, K, ..., K] of all profiles, in which player p follows the strategy k_p of K
        strategies [K, E]: entry [q, k_0, ..., k_{P-1}] is the expected payoff of player q."""
        plans, reach = self.realisation(strategies), self.chance[None]
        for player in range(self.players - 1):  # of the profiles of the first players, [K ... K, Z]
            reach = (reach[:, None] * plans[:, self.last[player]]).flatten(0, 1)
        found = (self.payoff[:, None] * reach) @ plans[:, self.last[-1]].T
        return found.reshape(self.players, *[len(strategies)] * self.players)

    def values(self, strategy: Tensor) -> Tensor:
        """Computes the expected payoff [P] of each player."""
        return self.counterfactual(self.checked(strategy))[len(self.actions) :]

    def exploitability(self, strategy: Tensor) -> float:
        """Computes the exploitability, the mean gain over the players of an exact best response to the others'
        strategies:

            1/P sum_i ( max_{s_i} u_i(s_i, strategy_{-i}) - u_i(strategy) )

        Exploitability is 0 exactly at the Nash equilibria.

        Raises:
            GameError: not a strategy of this game.
        """
        best = self.counterfactual(self.checked(strategy), best=True)[len(self.actions) :]
        return float((best - self.values(strategy)).mean())

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures a strategy: exploitability first, then the first player's expected payoff."""
        return {"exploitability": self.exploitability(solution), "value": float(self.values(solution)[0])}

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts a strategy to plain data: for each information set, as `player: information`, the actions'
        probabilities.
        """
        found: dict[str, dict[str, float]] = {}
        rows = zip(self.player_of.tolist(), self.set_of.tolist(), self.actions, solution.tolist(), strict=True)
        for player, place, action, probability in rows:
            found.setdefault(f"{player}: {self.information[place]}", {})[action] = probability
        return found

    def checked(self, strategy: Tensor) -> Tensor:
        """Validates a strategy and returns it.

        Raises:
            GameError: it has another shape or type, or the probabilities of a set do not sum to 1.
        """
        if strategy.shape != self.set_of.shape or strategy.dtype != torch.double:
            raise GameError(
                f"a strategy of {self.name} is a float64 tensor [{len(self.actions)}], found {strategy.dtype} "
                f"{list(strategy.shape)}"
            )
        wrong = ~((self.total(strategy) - 1).abs() < 1e-9)
        wrong[self.set_of[~(strategy >= 0)]] = True
        if wrong.any():
            place = int(wrong.nonzero()[0])
            found = [round(p, 6) for p in strategy[self.set_of == place].tolist()]
            raise GameError(
                f"a strategy of {self.name} must have probabilities that sum to 1 in each information set, found "
                f"{found} in {self.information[place]!r}"
            )
        return strategy


def _product_without(reach: Tensor, player: int) -> Tensor:
    """Computes the product over all rows [P, Z] but one."""
    return torch.cat([reach[:player], reach[player + 1 :]]).prod(0)


# From rules to tensors -------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Set:
    """An information set during enumeration. parent: the player's last pair before it, None at the player's first."""

    player: int
    information: str
    actions: tuple[str, ...]
    parent: tuple[int, int] | None
    level: int


def game_of(name: str, rules: Rules, *, players: int = 2, unit: str = "points") -> ExtensiveGame:
    """Enumerates all histories of a game and returns its tensors.

    rules: returns the node after a history, a tuple of the names of moves and chance outcomes, empty at the root.

    Raises:
        GameError: the rules contradict themselves: which history, what was found.
    """
    sets: dict[tuple[int, str], int] = {}
    found: list[_Set] = []
    ends: list[tuple[list[tuple[int, int] | None], float, list[float]]] = []
    # A history, the last pair of each player, the probability of the chance outcomes so far.
    todo: list[tuple[History, list[tuple[int, int] | None], float]] = [((), [None] * players, 1.0)]
    read = 0
    while todo:
        history, last, probability = todo.pop()
        read += 1
        if read > MOST_HISTORIES:
            raise GameError(f"{name} has more than {MOST_HISTORIES:,} histories, which is more than are enumerated")
        there = rules(history)
        _check(name, history, there, players)
        if isinstance(there, End):
            ends.append((last, probability, [float(p) for p in there.payoffs]))
        elif isinstance(there, Chance):
            following = reversed(list(there.outcomes.items()))
            todo += [((*history, outcome), last, probability * p) for outcome, p in following]
        else:
            number = _set_number(name, history, there, last[there.player], sets, found)
            for i in reversed(range(len(there.actions))):
                own = [(number, i) if p == there.player else pair for p, pair in enumerate(last)]
                todo.append(((*history, there.actions[i]), own, probability))
    return _tensors(name, unit, players, found, ends)


def _set_number(
    name: str,
    history: History,
    there: Decision,
    parent: tuple[int, int] | None,
    sets: dict[tuple[int, str], int],
    found: list[_Set],
) -> int:
    """Returns the number of a decision's information set, and registers a new one."""
    key, actions = (there.player, there.information), tuple(there.actions)
    if key not in sets:
        sets[key] = len(found)
        level = 0 if parent is None else found[parent[0]].level + 1
        found.append(_Set(there.player, there.information, actions, parent, level))
    known = found[sets[key]]
    if known.actions != actions:
        raise GameError(
            f"{name}: after {_shown(history)} the actions are {', '.join(actions)}, and elsewhere in the same "
            f"information set {there.information!r} of player {there.player} {', '.join(known.actions)}"
        )
    if known.parent != parent:
        raise GameError(
            f"{name}: player {there.player} forgets: {_shown(history)} belongs to the information set "
            f"{there.information!r}, which other choices of the player reach as well; add them to the information"
        )
    return sets[key]


def _check(name: str, history: History, there: object, players: int) -> None:
    """Raises GameError for an invalid node after a history."""
    place = f"{name}: after {_shown(history)}"
    if isinstance(there, Chance):
        probs = list(there.outcomes.values())
        if not probs or min(probs) <= 0 or abs(sum(probs) - 1) > 1e-9:
            raise GameError(f"{place} the chance outcomes need positive probabilities that sum to 1, found {probs}")
    elif isinstance(there, Decision):
        if not 0 <= there.player < players:
            raise GameError(f"{place} player {there.player} moves, and the players are 0 to {players - 1}")
        if not there.actions or len(set(there.actions)) != len(there.actions):
            raise GameError(f"{place} a decision needs actions of different names, found {list(there.actions)}")
    elif isinstance(there, End):
        if len(there.payoffs) != players or not all(math.isfinite(p) for p in there.payoffs):
            raise GameError(f"{place} the end needs {players} finite payoffs, found {list(there.payoffs)}")
    else:
        raise GameError(f"{place} the rules return {there!r:.60}, expected a Chance, a Decision or an End")


def _shown(history: History) -> str:
    return " ".join(history) or "the beginning"


def _tensors(
    name: str,
    unit: str,
    players: int,
    found: list[_Set],
    ends: list[tuple[list[tuple[int, int] | None], float, list[float]]],
) -> ExtensiveGame:
    order = sorted(range(len(found)), key=lambda i: (found[i].level, found[i].player))  # stable: as they were found
    ranked = [found[i] for i in order]
    starts, pairs = {}, 0
    for i in order:
        starts[i], pairs = pairs, pairs + len(found[i].actions)

    def sequence(player: int, pair: tuple[int, int] | None) -> int:
        return pairs + player if pair is None else starts[pair[0]] + pair[1]

    set_of = [place for place, s in enumerate(ranked) for _ in s.actions]
    return ExtensiveGame(
        name=name,
        unit=unit,
        players=players,
        information=tuple(s.information for s in ranked),
        actions=tuple(action for s in ranked for action in s.actions),
        set_of=torch.tensor(set_of, dtype=torch.long),
        player_of=torch.tensor([ranked[place].player for place in set_of], dtype=torch.long),
        parent=torch.tensor([sequence(s.player, s.parent) for s in ranked], dtype=torch.long),
        levels=tuple(_levels(ranked)),
        last=torch.tensor([[sequence(p, last[p]) for last, _, _ in ends] for p in range(players)], dtype=torch.long),
        chance=torch.tensor([probs for _, probs, _ in ends], dtype=torch.double),
        payoff=torch.tensor([[payoffs[p] for _, _, payoffs in ends] for p in range(players)], dtype=torch.double),
    )


def _levels(ranked: Sequence[_Set]) -> Iterator[tuple[slice, slice]]:
    """Yields the slices of the sets and of the pairs of each level, in order."""
    sets = pairs = 0
    for level in range(max((s.level for s in ranked), default=-1) + 1):
        there = [s for s in ranked if s.level == level]
        after = pairs + sum(len(s.actions) for s in there)
        yield slice(sets, sets + len(there)), slice(pairs, after)
        sets, pairs = sets + len(there), after
