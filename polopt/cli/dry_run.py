"""polopt train --dry-run: the resolved recipe and its estimated memory and time."""

from __future__ import annotations

from rich.syntax import Syntax
from rich.table import Table

from polopt.cli import wording
from polopt.display.format import count, duration, size
from polopt.plan.predict import Span
from polopt.training.estimate import Estimate, estimate
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.recipe import Recipe, name_of_method


def describe(recipe: Recipe) -> None:
    """Prints the complete recipe, each stage's algorithm, and last, where they stay visible, the estimates."""
    screen = wording.screen()
    screen.print(Syntax(recipe.to_yaml().rstrip(), "yaml", background_color="default"))
    for name, algorithm in recipe.algorithms.items():
        screen.print(f"\n{name}: {name_of_method(recipe.stages[name].method)}", style="bold")
        screen.print(wording.sentence((0, word, repr(part)) for word, part in algorithm.settings().items()))
    recipe = LanguageRecipe.require(recipe)
    if screen.is_terminal:
        with screen.status("Trying a few steps of each stage …"):
            found = estimate(recipe)
    else:
        found = estimate(recipe)
    screen.print()
    screen.print(estimate_table(recipe, found))


def estimate_table(recipe: Recipe, found: Estimate) -> Table:
    """Tabulates parameters, memory and time."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("parameters", count(found.parameters), "")
    items = ", ".join(f"{k} {size(v)}" for k, v in found.memory.items.items() if v)
    peak = f"about {size(found.memory.peak)}"
    table.add_row("memory", peak, f"{items}; an estimate from shapes, libraries add about 0.7 GB")
    paces = [
        f"{name} {recipe.rounds * recipe.stages[name].steps} x {between(span)}" for name, span in found.steps.items()
    ]
    remarks = [f"{', '.join(paces)}; measured on an untrained copy"] if paces else []
    remarks += [f"{name} calls {', '.join(urls)}, and a dry run does not" for name, urls in found.servers.items()]
    table.add_row("time", "not measured" if found.total is None else between(found.total), "; ".join(remarks))
    return table


def between(span: Span) -> str:
    """Formats a range of seconds."""
    low, high = duration(span.low), duration(span.high)
    return low if low == high else f"{low} to {high}"
