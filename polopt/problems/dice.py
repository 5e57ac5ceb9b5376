"""Liar's dice: bids on hidden dice, until one is called a lie."""

from __future__ import annotations

from polopt.problems.games import Chance, Decision, End, ExtensiveGame, GameError, History, game_of

LIAR = "liar"


def liars_dice(*, sides: int = 4) -> ExtensiveGame:
    """Builds liar's dice for two players with one die of `sides` sides each. Players see their own die and bid in turn,
    each higher than the last bid, that so many dice show a face; the highest face counts as every face. Whoever calls
    the last bid a lie ends the game: the bidder wins one point if the bid is true, otherwise the caller does, and the
    loser pays it. A bid of more dice is higher, and of as many dice the one of the higher face.

    There are s^2 2^(2s + 1) histories for s sides, roughly. OpenSpiel's `liars_dice` is this game, by
    default with six sides.

    Raises:
        GameError: fewer than one side.
    """
    if sides < 1:
        raise GameError(f"liars-dice: sides must be at least 1, found {sides}")
    faces = [str(face) for face in range(1, sides + 1)]
    bids = [f"{count}x{face}" for count in (1, 2) for face in faces]

    def rules(history: History) -> Chance | Decision | End:
        dice, moves = history[:2], history[2:]
        if len(dice) < 2:
            return Chance(dict.fromkeys(faces, 1 / sides))
        if moves[-1:] == (LIAR,):
            count, face = moves[-2].split("x")
            bidder = len(moves) % 2
            true = sum(die in (face, faces[-1]) for die in dice) >= int(count)
            return End([1 if (p == bidder) == true else -1 for p in (0, 1)])
        higher = bids[bids.index(moves[-1]) + 1 :] if moves else bids
        player = len(moves) % 2
        return Decision(player, " ".join((dice[player], *moves)), [*higher, *([LIAR] if moves else [])])

    return game_of("liars-dice", rules, unit="points")
