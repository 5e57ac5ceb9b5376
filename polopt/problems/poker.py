"""Poker games that are small enough to be solved exactly, from their rules."""

from __future__ import annotations

from collections import Counter

from polopt.problems.games import Chance, Decision, End, ExtensiveGame, GameError, History, game_of

PASS, BET = "pass", "bet"
FOLD, CALL, RAISE = "fold", "call", "raise"


def kuhn_poker(*, ranks: int | None = None, players: int = 2) -> ExtensiveGame:
    """Builds Kuhn's poker: each player antes one chip and gets one of `ranks` different cards, players + 1 if none are
    given; one chip may be bet, once, and the others may then call or fold in turn. The highest card of those who have
    not folded wins. With two players and three cards the first player's value is -1/18.

    Source: Kuhn (1950), "A Simplified Two-Person Poker"; for three players Szafron, Gibson and Sturtevant (2013).

    Raises:
        GameError: fewer than two players, or fewer cards than players.
    """
    ranks = players + 1 if ranks is None else ranks
    if players < 2 or ranks < players:
        raise GameError(
            f"kuhn-poker: ranks must be at least {max(players, 2)}, one card for each player, and players at least 2, "
            f"found ranks = {ranks} and players = {players}"
        )
    cards = [str(card) for card in range(ranks)]

    def rules(history: History) -> Chance | Decision | End:
        dealt, moves = history[:players], history[players:]
        if len(dealt) < players:
            left = [card for card in cards if card not in dealt]
            return Chance({card: 1 / len(left) for card in left})
        first = moves.index(BET) if BET in moves else len(moves)  # of those who bet
        if len(moves) < (first + players if BET in moves else players):
            player = len(moves) % players
            return Decision(player, " ".join((dealt[player], *moves)), (PASS, BET))
        stakes = [1] * players
        for i, move in enumerate(moves):
            stakes[i % players] += move == BET
        winner = max((p for p in range(players) if stakes[p] == max(stakes)), key=lambda p: int(dealt[p]))
        return End([sum(stakes) * (p == winner) - stakes[p] for p in range(players)])

    return game_of("kuhn-poker", rules, players=players, unit="chips")


def leduc_poker(*, ranks: int = 3, suits: int = 2, raises: int = 2) -> ExtensiveGame:
    """Builds Leduc hold'em for two players: each antes one chip and gets a card of a deck of `ranks` times `suits`.
    After a round of betting one more card is turned face up, and a second round follows. A raise is by 2 chips in the
    first round and 4 in the second, with at most `raises` in each. A pair with the open card wins, then the higher
    card; equal cards share.

    Suits have no effect, so cards are drawn by rank, with probability in proportion to the cards of it left.

    Source: Southey and others (2005), "Bayes' Bluff: Opponent Modelling in Poker".

    Raises:
        GameError: fewer than three cards, no suit, or a negative number of raises.
    """
    if ranks < 1 or suits < 1 or ranks * suits < 3 or raises < 0:
        raise GameError(
            "leduc-poker: need ranks and suits of at least 1 that make three cards, and raises of at least 0, found "
            f"ranks = {ranks}, suits = {suits} and raises = {raises}"
        )
    cards = [str(card) for card in range(ranks)]

    def deal(dealt: History) -> Chance:
        left = {card: suits - Counter(dealt)[card] for card in cards}
        return Chance({card: n / (ranks * suits - len(dealt)) for card, n in left.items() if n})

    def rules(history: History) -> Chance | Decision | End:
        hands = history[:2]
        if len(hands) < 2:
            return deal(hands)
        stakes, rounds = [1, 1], _rounds(history[2:])
        for number, moves in enumerate(rounds):
            for i, move in enumerate(moves):
                stakes[i % 2] = max(stakes) if move == CALL else stakes[i % 2]
                stakes[i % 2] = max(stakes) + (2, 4)[number] if move == RAISE else stakes[i % 2]
                if move == FOLD:
                    return _payoff(1 - i % 2, stakes[i % 2])
        moves = rounds[-1]
        if len(moves) >= 2 and moves[-1] == CALL:  # the round is over
            if len(rounds) == 1:
                return deal(hands)
            return _showdown(hands, history[2 + len(rounds[0])], stakes[0])
        player = len(moves) % 2
        actions = [FOLD] * (stakes[player] < max(stakes)) + [CALL] + [RAISE] * (moves.count(RAISE) < raises)
        return Decision(player, " ".join((hands[player], *history[2:])), actions)

    return game_of("leduc-poker", rules, unit="chips")


def _rounds(moves: History) -> list[History]:
    """Splits the moves into the rounds of betting, without the open card between the two."""
    opened = [i for i, move in enumerate(moves) if move not in (FOLD, CALL, RAISE)]
    return [moves[: opened[0]], moves[opened[0] + 1 :]] if opened else [moves]


def _showdown(hands: History, open_card: str, stake: int) -> End:
    strength = [(hand == open_card, int(hand)) for hand in hands]
    return End((0, 0)) if strength[0] == strength[1] else _payoff(0 if strength[0] > strength[1] else 1, stake)


def _payoff(winner: int, chips: int) -> End:
    return End((chips, -chips) if winner == 0 else (-chips, chips))
