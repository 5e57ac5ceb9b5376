"""Problems by name, with settings, or by a function that builds one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from polopt.errors import UserError
from polopt.names import nearest
from polopt.part import locate
from polopt.problems.alignment import preference_alignment, reward_design
from polopt.problems.bilevel import data_cleaning, exponential_bilevel
from polopt.problems.cases import copied_cases
from polopt.problems.choices import offline_choices
from polopt.problems.dice import liars_dice
from polopt.problems.hiring import random_hiring
from polopt.problems.justified import justified_decisions
from polopt.problems.open_spiel import open_spiel_game
from polopt.problems.paid_judges import paid_judges
from polopt.problems.poker import kuhn_poker, leduc_poker
from polopt.problems.preference_game import preference_game
from polopt.problems.preference_transfer import preference_transfer
from polopt.problems.protocol import ExactProblem
from polopt.problems.thought_graph import thought_graph
from polopt.problems.tool_plans import tool_plans
from polopt.setting_types import checked_setting, setting_types

PROBLEMS: dict[str, Callable[..., ExactProblem]] = {
    "copied-cases": copied_cases,
    "data-cleaning": data_cleaning,
    "exponential-bilevel": exponential_bilevel,
    "hiring": random_hiring,
    "justified-decisions": justified_decisions,
    "kuhn-poker": kuhn_poker,
    "leduc-poker": leduc_poker,
    "liars-dice": liars_dice,
    "open-spiel": open_spiel_game,
    "paid-judges": paid_judges,
    "preference-alignment": preference_alignment,
    "offline-choices": offline_choices,
    "preference-game": preference_game,
    "preference-transfer": preference_transfer,
    "reward-design": reward_design,
    "thought-graph": thought_graph,
    "tool-plans": tool_plans,
}


class UnknownProblem(UserError, ValueError):
    """There is no problem of that name. The message lists the known ones."""


def find(spec: str | Mapping[str, Any]) -> ExactProblem:
    """Returns the problem of a name: `kuhn-poker`; `{name: leduc-poker, ranks: 4}`, with its settings; or a
    function that returns one, as `my_game.py:build`.

    Raises:
        UnknownProblem: there is none; the nearest name.
        ValueError, TypeError: a setting does not exist or is not valid, or the function returns no problem.
    """
    name, built = build_named(spec, PROBLEMS, "problem", "kuhn-poker or {name: leduc-poker, ranks: 4}")
    if not isinstance(built, ExactProblem):
        raise ValueError(
            f"{name!r:.100} returned {built!r:.60}, expected a problem, as polopt.problems.game_of makes them"
        )
    return built


def build_named(
    spec: str | Mapping[str, Any], known: Mapping[str, Callable[..., Any]], noun: str, example: str
) -> tuple[str, Any]:
    """Returns the name in a specification, and what the function of that name builds with its settings.

    known: the functions by name; one of the user's own is `file.py:function`. noun, example: for messages.

    Raises:
        UnknownProblem: there is no such name; the nearest one.
        ValueError, TypeError: a setting does not exist or is not valid.
    """
    settings = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = settings.pop("name", None)
    if not isinstance(name, str) or not name:
        raise UnknownProblem(f"a {noun} needs its name, as {example}, found {name!r:.60}")
    if ":" in name:
        build = locate(name)
    elif (key := name.replace("_", "-").lower()) in known:
        build = known[key]
    else:
        raise UnknownProblem(
            f"there is no {noun} {name!r:.100}{nearest(name, known)}; there are {', '.join(known)}, and "
            "functions of your own, as my_file.py:build"
        )
    accepted = tuple(inspect.signature(build).parameters)
    for setting in settings:
        if setting not in accepted:
            raise TypeError(f"{noun} {name!r:.100} has no setting {setting!r:.100}{nearest(str(setting), accepted)}")
    types = setting_types(build, accepted) if ":" not in name else {}
    given = {k: checked_setting(types[k], v, f"{noun} {name!r}", k) if k in types else v for k, v in settings.items()}
    return name, build(**given)
