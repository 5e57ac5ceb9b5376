"""polopt: policy optimisation as small parts that combine.

import polopt as po
algorithm = po.method("grpo")
experience = algorithm.judge(experience)
result = algorithm.objective(experience, evaluation)      # result.loss, result.metrics
"""

from polopt import credit, objectives, ops, rewards, sampling
from polopt.algorithm import Algorithm
from polopt.catalogue import cite, find, method, slugs
from polopt.experience import Evaluation, Experience, ExperienceError, Loss, Support, SupportError
from polopt.part import Part, build, diff, from_yaml

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Evaluation",
    "Experience",
    "ExperienceError",
    "Loss",
    "Part",
    "Support",
    "SupportError",
    "build",
    "cite",
    "credit",
    "diff",
    "find",
    "from_yaml",
    "method",
    "objectives",
    "ops",
    "rewards",
    "sampling",
    "slugs",
]
