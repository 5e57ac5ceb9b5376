"""Batteries of checks that every part of a kind must pass.

A part joins by one `PartRow`; the checks are independent of the part's name. Calling a check on a row raises
AssertionError if a property does not hold; its `failure` returns the smallest batch found on which a property fails.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

from polopt.checks import cases, selection_cases, state
from polopt.checks.calls import CallResult
from polopt.checks.cases import PartRow
from polopt.checks.sample_batches import SampleBatch
from polopt.checks.shrink import smallest
from polopt.checks.state import Rule
from polopt.checks.violation import Code, Failure, Reference, TestCase, Violation
from polopt.fields import ExperienceError
from polopt.part import Part

SEEDS = range(4)


@dataclasses.dataclass(frozen=True, eq=False)
class Check:
    """A check of a part: test cases that are derived from any batch.

    title: a short name.
    why: one sentence on why the check matters.
    clean: the batches contain no NaN and no extreme value off the mask.
    """

    name: str
    title: str
    cases: Callable[[PartRow, SampleBatch], Iterator[TestCase]]
    why: str
    clean: bool = False

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, row: PartRow) -> None:
        """Raises Violation if a test case of one of the row's random batches fails."""
        for seed in SEEDS:
            batch = row.batch(seed, clean=True) if self.clean else row.batch(seed)
            for trial in self.cases(row, batch):
                attempt(row.part, trial)

    def failure(self, row: PartRow) -> Failure | None:
        """Returns the first failing test case on the smallest batch on which it still fails; None if every case passes.

        The batches are clean: only the check for values off the mask puts any there, so that no other failure is due to
        a NaN.
        """
        for seed in SEEDS:
            batch = row.batch(seed, clean=True)
            for trial in self.cases(row, batch):
                if (broken := verdict(row.part, trial)) is not None:
                    return self._smallest(row, batch, trial.way, broken)
        return None

    def _smallest(self, row: PartRow, batch: SampleBatch, way: str, broken: Violation) -> Failure:
        def fails(smaller: SampleBatch) -> bool:
            return self._broken(row, smaller, broken.about, lambda trial: trial.way == way) is not None

        batch = smallest(batch, fails)
        closer = self._broken(row, batch, broken.about, lambda trial: trial.part_of == way)
        found = closer or self._broken(row, batch, broken.about, lambda trial: trial.way == way)
        assert found is not None, "the smallest batch fails by its making"
        return found

    def _broken(
        self, row: PartRow, batch: SampleBatch, about: str, which: Callable[[TestCase], bool]
    ) -> Failure | None:
        """Returns the first test case of another batch that fails in the same way (`about`), or None."""
        try:
            for trial in self.cases(row, batch):
                found = verdict(row.part, trial) if which(trial) else None
                if found is not None and found.about == about:
                    return Failure(found.sentence, trial, found)
        except Exception:
            return None  # a batch that lacks a field has no such test case
        return None


def attempt(part: Part, trial: TestCase) -> None:
    """Raises Violation, prefixed with the test case's description, if one of its properties does not hold."""
    results = {name: call.on(part) for name, call in trial.calls.items()}
    for law in trial.laws:
        try:
            law.check(results.__getitem__)
        except Violation as broken:
            raise broken.under(trial.way) from None


def verdict(part: Part, trial: TestCase) -> Violation | None:
    """Returns the property that a test case violates, None if all hold; a call that raises counts as a violation."""
    calling = ""

    def result(name: str) -> CallResult:
        nonlocal calling
        calling = name
        return trial.calls[name].on(part)

    try:
        outcomes = {name: result(name) for name in trial.calls}
        for law in trial.laws:
            law.check(outcomes.__getitem__)
    except Violation as broken:
        return broken.under(trial.way)
    except Exception as error:
        if trial.refusable and isinstance(error, ExperienceError):
            return None
        what = f"raises {type(error).__name__}"
        sentence = f"{what}: {' '.join(str(error).split())}"
        return Violation(sentence, what, Code(Reference(calling))).under(trial.way)
    return None


PAD = (
    "A batch is as wide as its longest row: were padding to count, a row's gradient would depend on the "
    "rows it is batched with."
)
ORDER = "The order of the rows is an accident of the loader."
HIDE = (
    "Off the mask stand prompts, padding and tool output, where a log-probability may be anything, NaN and -inf "
    "included."
)
HALF = "Training computes in float32 or less; a loss that rounds more than its numbers do drowns small advantages."
NOTHING = "A micro-batch may hold no decision at all, filtered or truncated; 0 / 0 there makes the whole gradient NaN."

PART = (
    Rule("state_resumes", "saved state", state.state_resumes, "A run that is resumed must go on as if never stopped."),
    Rule(
        "copies_are_independent",
        "copies",
        state.copies_are_independent,
        "Two runs in one process must not share state.",
    ),
    Rule("yaml_returns", "YAML", state.yaml_returns, "A recipe is kept as YAML; what comes back is what was run."),
    Rule("repr_builds", "print", state.repr_builds, "What is printed in a report is read as what was run."),
)
SPLIT = "A split only saves memory: its gradients must add up to the whole batch's."

_PADDING = Check("objective_padding", "padding", cases.padding, PAD)
_PERMUTATION = Check("objective_permutation", "row order", cases.permutation, ORDER)
_NUMBERS = (
    Check("objective_poison", "off the mask", cases.objective_hidden, HIDE, clean=True),
    Check("objective_precision", "float32", cases.single, HALF),
    Check(
        "objective_gradient",
        "finite differences",
        cases.slopes,
        "The optimiser follows the gradient; where it is not the value's, something else is minimised than is logged.",
        clean=True,
    ),
    Check(
        "objective_extremes",
        "extremes",
        cases.extremes,
        "Between an engine and a learner, or after a bold update, a token may be 90 nats off; one NaN ends a run.",
        clean=True,
    ),
)
OBJECTIVE = (
    _PADDING,
    _PERMUTATION,
    Check("objective_split", "micro-batches", cases.split, SPLIT),
    Check("objective_empty", "no decisions", cases.empty, NOTHING),
    *_NUMBERS,
    *PART,
)
# A plain function may see only its micro-batch, and has no saved state.
LOSS = (
    _PADDING,
    _PERMUTATION,
    Check("loss_split", "micro-batches", cases.split_occupied, SPLIT),
    Check("loss_empty", "no decisions", cases.no_decisions, NOTHING),
    *_NUMBERS,
)
# For objectives that read advantages.
IDLE = Check(
    "objective_idle",
    "no advantage",
    cases.idle,
    "A batch without advantages holds nothing to learn; what still moves the policy moves it in every batch.",
    clean=True,
)
ALONG = Check(
    "objective_along",
    "at ratio 1",
    cases.along,
    "Before the first update every policy gradient is A grad log p; a loss that points elsewhere there is another "
    "method, or a mistake.",
    clean=True,
)
CREDIT = (
    Check("credit_padding", "padding", cases.padding, PAD),
    Check("credit_permutation", "row order", cases.regrouped, ORDER + " So are the numbers of the groups."),
    Check("credit_poison", "off the mask", cases.credit_hidden, HIDE, clean=True),
    Check(
        "credit_no_gradient",
        "no gradient",
        cases.still,
        "A gradient through the advantage trains whoever estimates it to flatter the policy.",
    ),
    Check("credit_precision", "float32", cases.precision, HALF),
    Check("credit_empty", "no decisions", cases.empty, NOTHING),
    Check(
        "credit_equal",
        "equal rewards",
        cases.equal,
        "A group that agrees teaches nothing; dividing its rounding errors by their own size makes noise of it.",
    ),
    *PART,
)
REWARD = (
    Check(
        "reward_rows",
        "each row alone",
        cases.alone,
        "A reward is what one row was worth; comparing rows is credit's work, and it is done on the whole batch.",
    ),
    Check("reward_padding", "padding", functools.partial(cases.padding, zero_off_mask=False), PAD),
    Check("reward_poison", "off the mask", cases.reward_hidden, HIDE, clean=True),
    Check("reward_precision", "float32", functools.partial(cases.precision, rtol=1e-5), HALF),
    Check("reward_empty", "no decisions", cases.reward_nothing, NOTHING),
    *PART,
)
SELECT = (
    Check("select_permutation", "row order", selection_cases.chosen, ORDER),
    Check(
        "select_rows",
        "whole rows",
        selection_cases.whole_rows,
        "What is learned from must be what was played, and in the order in which statistics expect it.",
    ),
    Check(
        "select_again",
        "choosing again",
        selection_cases.chosen_again,
        "Selections stand in rows and in refills: what was chosen once must not be thinned out by a second look.",
    ),
    Check("select_padding", "padding", selection_cases.chosen_padding, PAD),
    Check("select_poison", "off the mask", selection_cases.chosen_hidden, HIDE, clean=True),
    Check("select_empty", "no decisions", selection_cases.chosen_of_nothing, NOTHING),
    *PART,
)
