"""Games of OpenSpiel as problems."""

from __future__ import annotations

from typing import Any

from polopt.problems.games import Chance, Decision, End, ExtensiveGame, GameError, History, game_of


def open_spiel_game(*, game: str = "leduc_poker") -> ExtensiveGame:
    """Builds the tensors of a sequential game of OpenSpiel, which must be installed.

    game: its name with settings, as OpenSpiel's `load_game` reads it: `liars_dice(dice_sides=3)`, or for a game of
        simultaneous moves `turn_based_simultaneous_game(game=goofspiel(num_cards=3,points_order=descending))`.

    Information sets are those of the game's information state strings; suits and other symmetries are kept apart.

    Raises:
        GameError: OpenSpiel is not installed or has no such game, the game has simultaneous moves, no information
            states, or too many histories.
    """
    try:
        import pyspiel
    except ImportError:
        raise GameError("open-spiel: the package open_spiel is not installed: pip install open-spiel") from None
    try:
        found = pyspiel.load_game(game)
    except pyspiel.SpielError as error:
        raise GameError(
            f"open-spiel: game = {game!r:.100} cannot be loaded: {str(error).splitlines()[0]:.100}"
        ) from None
    kind = found.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise GameError(
            f"open-spiel: {game} has simultaneous moves; name it as turn_based_simultaneous_game(game={game})"
        )
    if not kind.provides_information_state_string:
        raise GameError(f"open-spiel: {game} provides no information state strings; take a game that does")
    return game_of(f"open-spiel {game}", _rules(found), players=found.num_players(), unit="points")


def _rules(game: Any) -> Any:
    """Returns the rules of an OpenSpiel game, by replaying each history from the beginning."""
    numbers: dict[tuple[int, str], int] = {}

    def named(state: Any, action: int) -> str:
        name = state.action_to_string(state.current_player(), action)
        numbers[state.current_player(), name] = action
        return str(name)

    def rules(history: History) -> Chance | Decision | End:
        state = game.new_initial_state()
        for move in history:
            state.apply_action(numbers[state.current_player(), move])
        if state.is_terminal():
            return End(state.returns())
        if state.is_chance_node():
            return Chance({named(state, action): p for action, p in state.chance_outcomes() if p > 0})
        information = state.information_state_string().replace("\n", " ")
        return Decision(state.current_player(), information, [named(state, a) for a in state.legal_actions()])

    return rules
