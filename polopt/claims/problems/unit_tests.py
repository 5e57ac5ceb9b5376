"""A grammar of unit tests, small enough that every test it can write is listed."""

from __future__ import annotations

import functools
import itertools

import torch

from polopt.experience import Experience
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree
from polopt.rewards.unit_tests import METRICS, metrics
from polopt.worlds import Task

FOCAL = "add"
# The choices of each place; an empty line is left out, and a test without lines is `pass`.
PLACES = (
    ("def test_add_small():", "def test_add():", "def t():", "def test_add("),
    ("", "result = add(1, 2)", "# sum", "print(1)"),
    (
        "",
        "assert add(1, 2) == 3",
        "assert 1 == 1",
        "if add(1, 2) == 3: pass",
        "try: add(1, 2)\n    finally: pass",
        "add(1, 2)",
    ),
    ("", "assert add(1, 2) == 3", "assert add(2, 2) == 4", "sleep(1)", "for i in []: pass"),
)


def written(places: tuple[int, ...]) -> str:
    """The test with these choices."""
    head, *lines = (PLACES[place][choice] for place, choice in enumerate(places))
    return "\n    ".join([head, *([line for line in lines if line] or ["pass"])])


class Grammar(TokenTree):
    """Every test of the grammar, 480 of them; all rewards are 0. Each choice in each place is a token of its own, and
    `extras["answer"]` is the test's text."""

    def __init__(self) -> None:
        sizes = [len(choices) for choices in PLACES]
        starts = list(itertools.accumulate(sizes, initial=0))
        self.choices_of = list(itertools.product(*map(range, sizes)))
        answers = [tuple(start + c for start, c in zip(starts, one, strict=False)) for one in self.choices_of]
        super().__init__(sum(sizes), answers, lambda prompt, answer: 0.0)

    @functools.cached_property
    def _leaves(self) -> Experience:
        texts = [written(one) for one in self.choices_of]
        task = Task("add", "unit-test", "test add(a, b)", texts[0], {"focal": FOCAL})
        return super()._leaves.replace(extras={"answer": texts, "task": [task] * len(texts)})

    @functools.cached_property
    def measured(self) -> dict[str, torch.Tensor]:
        """[answers] each metric of each test, and `quality`: an assertion, a call of the function, and no smell."""
        found = [metrics(text, FOCAL) for text in self._leaves.extras["answer"]]
        table = {name: torch.tensor([f[name] for f in found], dtype=torch.double) for name in METRICS}
        table["quality"] = torch.stack([v for name, v in table.items() if name != "name"]).prod(0)
        return table

    def share(self, policy: TabularPolicy, metric: str) -> float:
        """Returns how often the policy's tests have the metric, exactly."""
        with torch.no_grad():
            return float(self.log_probabilities(policy).exp()[0] @ self.measured[metric])
