"""Pages of the public names, a page for each kind of part; mkdocstrings fills in signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from docs_site.links import REPOSITORY
from docs_site.method_page import code, table
from polopt.part import Part, default_of, settings_of
from polopt.part_names import name_of


@dataclasses.dataclass(frozen=True)
class ApiPage:
    """A page of public names.

    packages: those whose `__all__` is on it. modules: those whose public classes and functions are on it, read without
    importing them, since some need libraries that are not here. names: single ones, by module.
    """

    stem: str
    title: str
    about: str
    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


PAGES = (
    ApiPage(
        "algorithm",
        "Algorithms, batches and methods by name",
        "What `import polopt as po` offers: `po.method` builds an algorithm, an algorithm turns a batch into "
        "advantages and a loss.",
        names=(
            *("catalogue.method", "catalogue.solver", "catalogue.metric", "catalogue.find", "catalogue.cite"),
            *(
                "index.slugs",
                "part_diff.diff",
                "algorithm.Algorithm",
                "evaluation.add_metrics",
                "part.Part",
                "part.build",
            ),
            *("part.from_yaml", "experience.Experience", "fields.ExperienceError", "evaluation.Evaluation"),
            *("evaluation.Loss", "support.Support", "support.Density", "support.ByEntropy", "support.SupportError"),
            *("tokens.experience_from_generate", "tokens.experience_from_tokens"),
        ),
    ),
    ApiPage("sampling", "Sampling", "Which tasks, how many rollouts of each, and which of them stay.", ("sampling",)),
    ApiPage("rewards", "Rewards", "What a rollout was worth.", ("rewards",)),
    ApiPage("credit", "Credit", "Which decision earned it.", ("credit",)),
    ApiPage("networks", "Networks", "What learns beside the policy.", ("networks",)),
    ApiPage("objectives", "Objectives", "How far to move.", ("objectives",)),
    ApiPage("features", "Features", "What is known of each row or token of a batch.", ("features",)),
    ApiPage("metrics", "Metrics", "Estimates with intervals, comparisons, off-policy evaluation.", ("metrics",)),
    ApiPage("guards", "Guards", "Which tool calls of a policy may run.", ("guards",)),
    ApiPage("solvers", "Solvers and problems", "Exact problems and their solvers.", ("solvers", "problems")),
    ApiPage(
        "teachers", "Teachers and schedules", "Teachers of a policy; settings that change.", ("teachers", "schedules")
    ),
    ApiPage("worlds", "Worlds", "Environments, tasks and verifiers.", ("worlds",)),
    ApiPage("backends", "Backends", "What parts call out to: judges, scorers, pools.", ("backends",)),
    ApiPage(
        "policies",
        "Policies",
        "Who decides: language models, mixtures of tokens, small networks.",
        modules=("policies.language", "policies.mixture", "policies.network", "policies.factory", "policies.engine"),
    ),
    ApiPage(
        "training",
        "Training",
        "Whole runs from Python, and what a loop provides.",
        modules=("api", "capabilities", "stepping", "training.compare"),
    ),
    ApiPage(
        "bridges",
        "Bridges to other trainers",
        "Methods inside TRL, verl, SkyRL, prime-rl and slime.",
        modules=(
            *("bridges.trl.trainer", "bridges.verl_config", "bridges.verl", "bridges.skyrl", "bridges.prime_rl"),
            *("bridges.slime", "bridges.capabilities"),
        ),
    ),
    ApiPage("checks", "Checks and the lab", "Property tests of parts; exactly solvable problems.", ("checks", "lab")),
    ApiPage("ops", "Operations on tensors", "Masked and grouped maths.", ("ops",)),
)


@dataclasses.dataclass(frozen=True)
class PublicName:
    """A name as users write it, the path under which it is defined, and the object, if its module was imported."""

    name: str
    path: str
    found: Any = None


def public_names(page: ApiPage) -> Iterator[PublicName]:
    """Yields the classes and functions of a page."""
    for package in page.packages:
        module = importlib.import_module(f"polopt.{package}")
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                yield PublicName(f"{package}.{name}", f"{found.__module__}.{found.__qualname__}", found)
    for module_name in page.modules:
        file = REPOSITORY / "polopt" / f"{module_name.replace('.', '/')}.py"
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            is_definition = isinstance(node, (ast.ClassDef, ast.FunctionDef))
            if is_definition and not node.name.startswith("_") and ast.get_docstring(node):
                yield PublicName(f"{module_name}.{node.name}", f"polopt.{module_name}.{node.name}")
    yield from (PublicName(f"polopt.{name.rpartition('.')[2]}", f"polopt.{name}") for name in page.names)


def settings_table(part: type[Part]) -> str:
    """Returns the settings of a part as a table."""
    declared = {key: value for cls in reversed(part.__mro__) for key, value in inspect.get_annotations(cls).items()}
    rows = []
    for field in settings_of(part):
        kind, default = declared.get(field.name, field.type), default_of(field)
        shown = "required" if default is dataclasses.MISSING else code(repr(default))
        rows.append((code(field.name), code(kind if isinstance(kind, str) else inspect.formatannotation(kind)), shown))
    settings = table(("setting", "type", "default"), rows) if rows else ""
    return f"<p>In recipes: {code(name_of(part))}.</p>\n{settings}"


def markdown(page: ApiPage) -> str:
    """Returns a page of public names as Markdown with mkdocstrings' directives."""
    lines = [f"# {page.title}", "", page.about]
    for one in public_names(page):
        is_part = inspect.isclass(one.found) and issubclass(one.found, Part) and one.found is not Part
        members = "\n    options:\n      members: false" if is_part else ""
        settings = [settings_table(one.found), ""] if is_part else []
        lines += ["", f"## `{one.name}` {{#{one.path}}}", "", *settings, f"::: {one.path}{members}"]
    return "\n".join(lines) + "\n"
