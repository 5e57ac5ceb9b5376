"""Tasks that come in turn to an agent that is not trained, but is shown what was done in earlier ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from polopt.errors import UserError


class CaseError(UserError, ValueError):
    """A setting of a problem of cases is out of its range."""


class CaseTasks:
    """Base of tasks that an agent solves one after the other, and others that its memory is measured on.

    states: [N, D] vectors that describe the tasks, in the order in which they come. heldout: [M, D] those of others.
    plans: how many different plans a case may hold.
    """

    states: Tensor
    heldout: Tensor
    plans: int
    name: str
    unit: str

    def respond(self, task: int, plan: int, generator: torch.Generator) -> tuple[int, float]:
        """Returns the agent's own plan for a task, and its reward in [0, 1], when it is shown `plan`, -1 for none."""
        raise NotImplementedError

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures [M, plans + 1], the chance that each plan is shown in a held-out task, the last of none."""
        raise NotImplementedError

    def table(self, solution: Tensor) -> Any:
        """Converts a solution to plain data."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CopiedCases(CaseTasks):
    """Tasks of latent kinds with one right plan each, and an agent that follows the plan that it is shown with chance
    `copies`, and else takes any.

    states, heldout: [N, D], [M, D]. kinds, heldout_kinds: [N], [M]. right: [kinds] the right plan of each kind.
    """

    states: Tensor
    heldout: Tensor
    kinds: Tensor
    heldout_kinds: Tensor
    right: Tensor
    plans: int
    copies: float = 0.9
    name: str = "copied-cases"
    unit: str = "failures"

    def __post_init__(self) -> None:
        n, m = len(self.kinds), len(self.heldout_kinds)
        if len(self.states) != n or len(self.heldout) != m or not 0 <= self.copies <= 1 or self.plans < 2:
            raise CaseError(
                f"{self.name}: needs a kind for each of {len(self.states)} and {len(self.heldout)} states, found {n} "
                f"and {m}, two plans or more, found {self.plans}, and copies in [0, 1], found {self.copies}"
            )

    def chances(self, kinds: Tensor) -> Tensor:
        """Returns the chance to be right in tasks of these kinds [M] when each plan is shown, [M, plans + 1]."""
        shown = torch.full((len(kinds), self.plans + 1), (1 - self.copies) / self.plans, dtype=torch.double)
        shown[torch.arange(len(kinds)), self.right[kinds]] += self.copies
        shown[:, -1] = 1 / self.plans
        return shown

    def respond(self, task: int, plan: int, generator: torch.Generator) -> tuple[int, float]:
        follows, other = torch.rand((), generator=generator), torch.randint(self.plans, (), generator=generator)
        taken = plan if plan >= 0 and float(follows) < self.copies else int(other)
        return taken, float(taken == int(self.right[self.kinds[task]]))

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures what is shown: failures above those of who is always shown a right plan, and successes."""
        chances = self.chances(self.heldout_kinds)
        success = float((chances * solution.double()).sum(1).mean())
        return {"failures": max(0.0, float(chances.amax(1).mean()) - success), "success": success}

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts what is shown to plain data: the mean chance of each plan, by the kind of task."""
        names = [*(f"plan {i}" for i in range(self.plans)), "none"]
        return {
            f"kind {kind}": dict(zip(names, solution[self.heldout_kinds == kind].mean(0).tolist(), strict=True))
            for kind in self.heldout_kinds.unique().tolist()
        }


def copied_cases(
    *,
    tasks: int = 1000,
    heldout: int = 200,
    kinds: int = 20,
    plans: int = 5,
    dimensions: int = 16,
    distractors: float = 0.5,
    noise: float = 0.3,
    copies: float = 0.9,
    seed: int = 0,
) -> CopiedCases:
    """A random problem: a state has the vector of its kind with noise in some of its `dimensions`, and in the share
    `distractors` of them normal noise alone.

    noise: standard deviation around the vector of a kind, whose entries are normal.
    """
    if min(tasks, heldout, kinds, dimensions) < 1 or plans < 2 or not 0 <= distractors < 1 or noise < 0:
        raise CaseError(
            "copied-cases: needs tasks, heldout, kinds and dimensions >= 1, plans >= 2, distractors in [0, 1) and "
            f"noise >= 0, found {tasks}, {heldout}, {kinds}, {dimensions}, {plans}, {distractors} and {noise}"
        )
    draw = torch.Generator().manual_seed(seed)
    told = max(1, round(dimensions * (1 - distractors)))
    centres = torch.randn(kinds, told, generator=draw, dtype=torch.double)
    right = torch.randint(plans, (kinds,), generator=draw)

    def sampled(count: int) -> tuple[Tensor, Tensor]:
        kind = torch.randint(kinds, (count,), generator=draw)
        state = torch.randn(count, dimensions, generator=draw, dtype=torch.double)
        state[:, :told] = centres[kind] + noise * state[:, :told]
        return state, kind

    (states, kind), (others, other_kinds) = sampled(tasks), sampled(heldout)
    return CopiedCases(states, others, kind, other_kinds, right, plans, copies)
