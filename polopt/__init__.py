"""polopt: policy optimisation as small parts that combine.

import polopt as po
algorithm = po.method("grpo")
experience = algorithm.judge(experience)
result = algorithm.objective(experience, evaluation)      # result.loss, result.metrics
"""

import importlib
from importlib import metadata
from typing import Any

from polopt import credit, objectives, ops, rewards, sampling, schedules, teachers
from polopt.algorithm import Algorithm, add_metrics
from polopt.catalogue import cite, find, method, slugs
from polopt.experience import Evaluation, Experience, ExperienceError, Loss, Support, SupportError
from polopt.part import Part, build, diff, from_yaml
from polopt.support import ByEntropy, Density
from polopt.tokens import experience_from_generate, experience_from_tokens

__version__ = metadata.version("polopt")

# Training needs `transformers` and friends, so it is imported when it is asked for.
_LAZY = {
    "train": "polopt.training.language",
    "resume": "polopt.training.language",
    "lab": "polopt.lab",
    "checks": "polopt.checks",
    "LanguagePolicy": "polopt.policies.language",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'polopt' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    return module if module.__name__ == f"polopt.{name}" else getattr(module, name)


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
    "Support",
    "SupportError",
    "add_metrics",
    "build",
    "checks",
    "cite",
    "credit",
    "diff",
    "experience_from_generate",
    "experience_from_tokens",
    "find",
    "from_yaml",
    "lab",
    "method",
    "objectives",
    "ops",
    "resume",
    "rewards",
    "sampling",
    "schedules",
    "slugs",
    "teachers",
    "train",
]
