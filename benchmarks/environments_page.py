"""Every world and exact problem as a page: docs/environments.md, made from the registries that recipes name them by.

python -m benchmarks.environments_page
"""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

from benchmarks.spec import HERE
from polopt.problems import PROBLEMS, ExactProblem
from polopt.worlds import control
from polopt.worlds.control import ControlRule, StepWorld
from polopt.worlds.recipe import KINDS
from polopt.worlds.world import World

PAGE = HERE.parent / "docs" / "environments.md"
INTRO = """\
# Environments

What a recipe or `polopt solve` may name. This page is made by `python -m benchmarks.environments_page`.

## Worlds

Language recipes name a world as `tasks`, or `tasks` of a stage. The actions are the tokens of an answer, at most
`limit` of them in each turn. The best score of a world's tasks is not known exactly, but for the text grid's: a
verifier or a file scores answers. Worlds of your own are `file.py:Name`, see [your own environment](worlds.md)."""
PROBLEMS_INTRO = """\
## Exact problems

`polopt solve METHOD PROBLEM` names one, or `problem` of a recipe. All is known in full, so that a solution is measured
without error. Which solver solves which is in
[solving](solve.md).

| problem | what it is | class | actions | horizon | exact optimum |
|---|---|---|---|---|---|"""
CONTROL = """\
## Control

Recipes of kind `control` name any environment of gymnasium, as `environment: {id: CartPole-v1}`, with its own actions
and horizon; the best return is not known. These are polopt's own, which step all copies at once. The rules play beside
a policy, see [control](control.md).

| `environment.id` | what it is | actions | steps, at most | rules | exact optimum |
|---|---|---|---|---|---|"""
# By a control world: its actions, and what is known of the optimum.
STEP_FACTS = {
    "CombinationLock": ("`actions` choices", "1, by `LockRule`"),
    "Coverage": ("4 moves", "no"),
    "EmbodiedNavigation": ("2 commands", "no"),
    "Fishery": ("1 or 2 fractions", "of one species, by `FisheryOptimum`"),
    "HiddenDynamics": ("a force", "of a horizon without end, without walls and wind, by `HiddenDynamicsOptimum`"),
    "Juggling": ("thrust, and 1 or 2 body rates", "no"),
    "LoggedModel": ("a vector, as the log's", "no"),
    "Pathfinding": ("4 moves, or none", "no"),
    "PlannedPathfinding": ("4 moves, or none", "of one agent, the shortest way"),
}
# Turns of the worlds in a sentence; those that a file or a setting decides say so.
TURNS = {
    "dataset": "1",
    "pairs": "none: answers are given",
    "ranked": "none: answers are given",
    "labelled": "none: answers are given",
    "guess-number": "up to `turns`",
    "reasoning-gym": "1",
    "chains": "1",
    "critic": "1",
    "rulebook": "1",
    "noisy": "as `of`",
    "second-chance": "one more than `of`",
    "guarded": "as `of`",
    "unit-tests": "1",
    "shop": "up to 40",
    "text-grid": "up to `turns`",
    "retrieval": "up to `turns`",
    "screens": "1",
    "textworld": "up to `turns`",
    "with-plan": "1 more than `of`",
    "with-subgoals": "those of `of`",
    "apps": "`turns`, or 1 if `single`",
    "gymnasium": "`turns`",
    "minigrid": "`turns`",
    "with-tools": "`calls` more than `of`",
}
# By a problem's class: its actions, its horizon, and what is known of the optimum.
STATIONARY = "no; the exact gradient's norm is 0 at a stationary point"
FACTS = {
    "ExtensiveGame": ("those of an information set", "until the game ends", "yes, by exact best responses"),
    "OfflineChoices": ("a finite set", "`horizon` decisions", "yes"),
    "PreferenceAlignment": ("a finite set", "the layers of a decision process", STATIONARY),
    "RewardDesign": ("a finite set", "the layers of a decision process", STATIONARY),
    "PreferenceTransfer": ("none: trajectories are compared", "whole trajectories", "yes"),
    "JustifiedDecisions": ("a finite set", "discounted, without end", "yes"),
    "HiringProblem": ("a finite set, after agents' signals", "1 decision", "yes"),
    "PreferenceGame": ("a finite set of answers", "1 answer", "yes"),
    "DataCleaning": ("none: two levels of a loss", "–", STATIONARY),
    "ToolPlans": ("the calls that may follow", "until a plan is a goal", "yes"),
    "ThoughtGraphs": ("4 transformations of a graph", "until the task is solved", "yes"),
    "CopiedCases": ("the case that is shown", "1 task", "yes"),
    "ExponentialBilevel": ("none: two levels of a loss", "–", STATIONARY),
}


def sentence(described: Any) -> str:
    """Returns the first sentence of a docstring."""
    text = " ".join(inspect.cleandoc(described.__doc__ or "").split("\n\n")[0].split())
    return text.split("; `path`")[0].split(". ")[0].rstrip(".").removeprefix("Builds ").replace("|", "\\|")


def world_row(kind: str, world: type[World]) -> str:
    """Returns a world's row: its name in a recipe, its sentence, its turns and the settings that it requires."""
    required = [f"`{name}`" for name, field in world.model_fields.items() if field.is_required()]
    return f"| `{{kind: {kind}}}` | {sentence(world)} | {TURNS[kind]} | {', '.join(required) or '–'} |"


def problem_row(name: str, build: Any) -> str:
    """Returns a problem's row."""
    made: type[ExactProblem] = get_type_hints(build)["return"]
    return f"| `{name}` | {sentence(build)} | {made.__name__} | {' | '.join(FACTS[made.__name__])} |"


def step_row(id: str, world: type[StepWorld]) -> str:
    """Returns a control world's row: its sentence, actions, horizon, rules and optimum."""
    actions, optimum = STEP_FACTS[world.__name__]
    horizon = inspect.signature(world).parameters.get("horizon")
    steps = "as `Pathfinding`" if horizon is None else str(horizon.default)
    rules = [name for name, rule in vars(control).items() if isinstance(rule, type) and issubclass(rule, ControlRule)]
    own = [f"`{name}`" for name in sorted(rules) if getattr(control, name).world is world]
    return f"| `{id}` | {sentence(world)} | {actions} | {steps} | {', '.join(own) or '–'} | {optimum} |"


def page() -> str:
    """Returns the page's text."""
    lines = [INTRO, "", "| in a recipe | what it is | turns | settings it needs |", "|---|---|---|---|"]
    lines += [world_row(kind, world) for kind, world in KINDS.items()]
    lines += ["", PROBLEMS_INTRO, *(problem_row(name, build) for name, build in PROBLEMS.items()), "", CONTROL]
    lines += [step_row(id, world) for id, world in control.WORLDS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
