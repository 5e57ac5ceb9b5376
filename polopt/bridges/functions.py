"""Trainers whose extension point is a function of some rows of a batch, without access to the other rows.

Whether a method needs the other rows cannot be declared, so random batches test it before anything runs: a loss must be
the sum of its rows' losses, and a credit must be the same for a group alone as among others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from polopt import catalogue
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError, TrainerCapabilities
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives import Aggregate, Objective, SequenceMean, SequenceSum, Surrogate, TokenMean
from polopt.part_names import name_of
from polopt.training.recipe import name_of_method

# Distances of policy and sampler in the test batches, as standard deviations of a log-probability.
LOGP_NOISE = (1e-4, 0.02, 0.5)
PROMPTS, GROUP, LENGTH = 3, 4, 6
EXACT = 1e-9

Method = str | Mapping[str, Any] | Algorithm
# Denominator of a ratio: the trainer's own policy before its first update, as in its losses, or the inference engine.
Sampler = Literal["trainer", "engine"]


class SumOnly(Aggregate):
    """sum_it m l, without a denominator, for trainers that divide themselves."""

    def weights(self, experience: Experience) -> Tensor:
        return experience.mask.double()

    def denominator(self, whole: Experience) -> Tensor:
        return torch.ones((), device=whole.device)


def named(method: Method) -> tuple[str, Algorithm]:
    """Returns a name and the algorithm of a method in a form that `catalogue.sentence` accepts."""
    name = "algorithm" if isinstance(method, Algorithm) else name_of_method(method)
    return name, catalogue.sentence(method)


def check_sampler(algorithm: Algorithm, sampler: Sampler) -> None:
    """Raises BridgeError if the log-probabilities of trainer and engine would be confused.

    Raises:
        BridgeError: the objective reads both, and `sampler` is not "engine".
    """
    if sampler == "trainer" and {"rollout_logp", "old_logp"} <= algorithm.objective.required_fields:
        raise BridgeError(f"{algorithm.objective!r} reads the engine's log-probabilities too: give sampler='engine'")


def agree(settings: Any, expected: Mapping[str, Any], before: str) -> None:
    """Raises BridgeError if a setting of the trainer differs from the method's.

    before: the prefix of the settings' names.

    Raises:
        BridgeError: the setting, its value and the value that it must have.
    """
    for name, value in expected.items():
        actual = settings
        for step in name.split("."):
            actual = getattr(actual, step, None)
        if actual != value:
            raise BridgeError(
                f"{before}{name} = {actual!r}, and with it the loss would be another method's: set it to {value!r}"
            )


class FunctionTrainer(TrainerCapabilities):
    """A trainer that sums a function of each row and divides the sum itself.

    counts: the clause of an error sentence about a reducer whose denominator the trainer does not have.
    """

    counts: ClassVar[str]

    def _refusals(self, algorithm: Algorithm) -> Iterator[str]:
        declared = list(super()._refusals(algorithm))
        yield from declared
        objective = algorithm.objective
        if not isinstance(objective, Surrogate):
            name = name_of(type(objective))
            yield f"{name} is several losses with counts of their own, where {self.name} counts once"
            return
        if not isinstance(objective.aggregate, TokenMean | SequenceMean | SequenceSum):
            yield f"{objective.aggregate!r} {self.counts}"
        if not declared:
            yield from self._measured(algorithm, summed(objective))

    def _measured(self, algorithm: Algorithm, objective: Surrogate) -> Iterator[str]:
        """Yields the refusals that tests on random batches find, beyond the declared needs.

        objective: the method's terms with a sum as reducer.
        """
        yield from not_by_rows(objective)


def summed(objective: Surrogate) -> Surrogate:
    """Returns the objective with a plain sum as reducer, for a trainer that divides itself."""
    return objective.but(aggregate=SumOnly())


def not_by_rows(objective: Objective) -> Iterator[str]:
    """Yields a refusal if a summed loss is not the sum of its rows' losses."""
    for experience, logp in _batches():
        whole = _slope(objective, experience, logp)
        parts = (slice(0, 1), slice(1, 2), slice(2, None))
        rows = [_slope(objective, experience[part], logp[part]) for part in parts]
        if not _same(whole, torch.cat(rows)):
            yield f"{objective!r} depends on rows that are not passed to it"
            return


def not_in_proportion(objective: Objective) -> Iterator[str]:
    """Yields a refusal if the gradient is not proportional to the advantage, so that advantages cannot be divided
    beforehand."""
    for experience, logp in _batches():
        plain = _slope(objective, experience, logp)
        for scale in (0.5, 2.0**-12):
            divided = experience.replace(advantage=experience.advantage * scale)
            if not _same(plain * scale, _slope(objective, divided, logp)):
                yield f"{objective.trust!r} is not in proportion to the advantage, which arrives divided"
                return


def not_by_groups(algorithm: Algorithm) -> Iterator[str]:
    """Yields a refusal if a prompt's credit depends on the other prompts of the batch."""
    for experience, _ in _batches():
        whole = algorithm.with_advantages(experience).advantage
        for prompt in range(PROMPTS):
            of_prompt = experience.group == prompt
            if not _same(whole[of_prompt], algorithm.with_advantages(experience[of_prompt]).advantage):
                yield f"reward or credit, {algorithm.reward!r} and {algorithm.credit!r}, compares prompts, given one"
                return


def _batches() -> Iterator[tuple[Experience, Tensor]]:
    """Yields batches with every field that a trainer may pass to a function, and the policy's log-probabilities [B,
    T]."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    rows = PROMPTS * GROUP
    for digits, noise in enumerate(LOGP_NOISE):
        lengths = torch.randint(2, LENGTH + 1, (rows, 1), generator=generator)
        mask = torch.arange(LENGTH) < lengths
        logp = -normal(rows, LENGTH).abs() - 1
        advantage = normal(rows, LENGTH)
        advantage[: rows // 2] = advantage[: rows // 2, :1]  # rows with one advantage, as most credits give
        reward = torch.rand(rows, generator=generator, dtype=torch.float64).round(decimals=digits)  # first 0 and 1
        yield (
            Experience(
                mask=mask,
                rollout_logp=-(logp + noise * normal(rows, LENGTH)).abs(),  # never above 0
                old_logp=-(logp + noise * normal(rows, LENGTH)).abs(),
                ref_logp=-(logp + noise * normal(rows, LENGTH)).abs(),
                advantage=advantage,
                reward=reward,
                outcome=reward,
                terminated=torch.arange(rows) % 3 > 0,
                truncated=torch.arange(rows) % 3 == 0,
                group=torch.arange(rows) // GROUP,
                turn=torch.where(mask, torch.arange(LENGTH) // 2, -1),
                horizon=LENGTH,
            ),
            logp,
        )


def _slope(objective: Callable[..., Any], experience: Experience, logp: Tensor) -> Tensor:
    """Returns the gradient [B, T] with respect to the policy's log-probabilities."""
    leaf = logp.clone().requires_grad_()
    loss = objective(experience, Evaluation(logp=leaf)).loss
    return torch.autograd.grad(loss, leaf, allow_unused=True, materialize_grads=True)[0]


def _same(left: Tensor, right: Tensor) -> bool:
    return torch.allclose(left, right, rtol=EXACT, atol=EXACT * float(left.abs().max()))
