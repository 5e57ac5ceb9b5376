"""The recipe of a solver's run: which method, on which problem, for how many iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pydantic

from polopt import catalogue, problems
from polopt.config import Config, ConfigError, PlainMap, parse
from polopt.problems import ExactProblem
from polopt.solvers import Solver
from polopt.training.recipe import name_of_method, set_by_path
from polopt.training.specs import Positive
from polopt.yaml_data import write_yaml


class SolveRecipe(Config):
    """A run of a solver, complete.

    kind: what the recipe is of.
    method: a method's name, or its name and settings as {name: cfr, alternating: true}, or a Python function that
        returns a `Solver`, as my_solver.py:build.
    but: changes to the solver, by dotted path.
    problem: a problem's name, or its name and settings, or a function that returns one.
    steps: iterations.
    measure_every: iterations from one measurement of the solution to the next; the last one is always measured.
    checkpoint_every: iterations from one checkpoint to the next; there is always one at the end.
    """

    kind: Literal["solve"] = "solve"
    method: str | PlainMap
    but: PlainMap = pydantic.Field(default_factory=dict)
    problem: str | PlainMap
    steps: Positive = 1000
    measure_every: Positive = 10
    checkpoint_every: Positive = 100

    def parts(self) -> tuple[Solver, ExactProblem]:
        """Builds the solver and the problem.

        Raises:
            ConfigError: one of them does not exist or is wrong, or the solver solves other problems.
        """
        try:
            solver, problem = catalogue.specified(Solver, self.method).but(self.but), problems.find(self.problem)
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from None
        if not isinstance(problem, solver.solves):
            raise ConfigError(f"{name_of_method(self.method)} solves {solver.solves.__name__}, found {problem!r:.100}")
        return solver, problem

    def to_yaml(self) -> str:
        return write_yaml(self.model_dump(mode="json"))


def recipe_of(
    method: str | Mapping[str, Any], problem: str | Mapping[str, Any], changes: Mapping[str, Any] | None = None
) -> SolveRecipe:
    """Returns the recipe of a method and a problem, with settings changed by dotted path: steps, method.delay,
    problem.ranks.

    Raises:
        ConfigError: no such method, problem or setting (the nearest one is named), or none that fits the other.
    """
    data: dict[str, Any] = {"method": method, "problem": problem}
    for key, value in (changes or {}).items():
        head = key.partition(".")[0]
        if head in ("method", "problem") and head != key and isinstance(data[head], str):
            data[head] = {"name": data[head]}
        set_by_path(data, key, value)
    recipe = parse(SolveRecipe, data, "solve")
    recipe.parts()
    return recipe
