"""polopt: policy optimisation as small parts that combine.

import polopt as po
algorithm = po.method("grpo")
experience = algorithm.compute_advantages(experience)
result = algorithm.objective(experience, evaluation)      # result.loss, result.metrics

run = po.train("smoke", "runs/first")                     # a language policy, in seconds; po.load_run reads it again
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polopt import (
        backends,
        checks,
        credit,
        features,
        guards,
        lab,
        methods,
        metrics,
        networks,
        objectives,
        ops,
        problems,
        rewards,
        sampling,
        schedules,
        solvers,
        teachers,
        updates,
    )
    from polopt.algorithm import Algorithm
    from polopt.api import RunHandle, compare, evaluate, load_run, resume, train
    from polopt.catalogue import cite, find, method, metric, solver
    from polopt.evaluation import Evaluation, Loss, add_metrics
    from polopt.experience import Experience
    from polopt.fields import ExperienceError
    from polopt.index import slugs
    from polopt.part import Part, build, from_yaml
    from polopt.part_diff import diff
    from polopt.policies.language import LanguagePolicy
    from polopt.support import ByEntropy, Density, Support, SupportError
    from polopt.tokens import experience_from_generate, experience_from_tokens

    __version__: str

# The module of each name. Names are imported on first access: torch alone takes a second.
_MODULE_OF = {
    "Algorithm": "algorithm",
    "ByEntropy": "support",
    "Density": "support",
    "Evaluation": "evaluation",
    "Experience": "experience",
    "ExperienceError": "fields",
    "LanguagePolicy": "policies.language",
    "Loss": "evaluation",
    "Part": "part",
    "RunHandle": "api",
    "Support": "support",
    "SupportError": "support",
    "add_metrics": "evaluation",
    "backends": "",
    "build": "part",
    "checks": "",
    "cite": "catalogue",
    "compare": "api",
    "credit": "",
    "diff": "part_diff",
    "evaluate": "api",
    "features": "",
    "experience_from_generate": "tokens",
    "experience_from_tokens": "tokens",
    "find": "catalogue",
    "from_yaml": "part",
    "guards": "",
    "lab": "",
    "load_run": "api",
    "method": "catalogue",
    "methods": "",
    "metric": "catalogue",
    "metrics": "",
    "networks": "",
    "objectives": "",
    "ops": "",
    "problems": "",
    "resume": "api",
    "rewards": "",
    "sampling": "",
    "schedules": "",
    "slugs": "index",
    "solver": "catalogue",
    "solvers": "",
    "teachers": "",
    "train": "api",
    "updates": "",
}

__all__ = [
    "Algorithm",
    "ByEntropy",
    "Density",
    "Evaluation",
    "Experience",
    "ExperienceError",
    "LanguagePolicy",
    "Loss",
    "Part",
    "RunHandle",
    "Support",
    "SupportError",
    "add_metrics",
    "backends",
    "build",
    "checks",
    "cite",
    "compare",
    "credit",
    "diff",
    "evaluate",
    "experience_from_generate",
    "experience_from_tokens",
    "features",
    "find",
    "from_yaml",
    "guards",
    "lab",
    "load_run",
    "method",
    "methods",
    "metric",
    "metrics",
    "networks",
    "objectives",
    "ops",
    "problems",
    "resume",
    "rewards",
    "sampling",
    "schedules",
    "slugs",
    "solver",
    "solvers",
    "teachers",
    "train",
    "updates",
]

if not TYPE_CHECKING:  # a type checker takes the imports above

    def __getattr__(name: str) -> object:
        import importlib

        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("polopt")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'polopt' has no attribute {name!r}")
        if module := _MODULE_OF[name]:
            return getattr(importlib.import_module(f"polopt.{module}"), name)
        return importlib.import_module(f"polopt.{name}")

    def __dir__() -> list[str]:
        return [*__all__, *(name for name in globals() if name.startswith("__")), "__version__"]


class _Package(ModuleType):
    """The package's module type: `polopt.method` stays the function when the module of that name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULE_OF and _MODULE_OF[name] and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
