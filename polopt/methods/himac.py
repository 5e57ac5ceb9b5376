"""HiMAC: plans and their execution are learned in turn, each by comparison with others of its own kind."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import RolloutRequest, Sampling, TaskSampler, UniformTasks
from polopt.sampling.batch_buffer import BatchBuffer
from polopt.support import Support


@method(
    paper=Paper(
        title="HiMAC: Hierarchical Macro-Micro Learning for Long-Horizon LLM Agents",
        authors="Jin, Hongbo and Zhu, Rongpeng and Ding, Jiayu and Zhang, Wenhao and Li, Ge",
        year=2026,
        arxiv="2603.00977",
    ),
    changes="GRPO in two alternating phases: on the plans of several rollouts, and on executions of the best one.",
    room="sampling",
    tier="reading",
)
def himac(
    *,
    group: int = 8,
    plan: Literal["best", "random"] = "best",
    execution: float | None = 0.01,
    clip: float = 0.2,
    kl: float = 0.01,
) -> Algorithm:
    """The first turn of an episode is a plan z, the others execute it. In turn, a batch is

        macro: z_1, ..., z_N with an execution each,    A_j = (R_j - mean R) / std R on the tokens of z_j
        micro: N executions of z*, of the highest R,    A_i = (R_i - mean R) / std R on the tokens after z*

    of the same tasks, with GRPO's loss on those tokens alone.

    plan: "random" takes any of the macro batch's plans to the micro one, for comparison.
    execution: temperature at which plans are executed in a macro batch, low for greedily, as in the paper; None for
        that of the plans.

    A world whose first answer is a plan is `tasks: {kind: with-plan, of: ...}`. The paper cuts the context to the
    active subgoal, which the policy ends by a token of its own; here executions see all that came before. Constants of
    the normalisation, ties and the lengths of phases are a reading: no code was found. A source samples an execution
    with every plan, which is not used where another temperature is set.
    """
    return grpo(group=group, clip=clip, kl=kl).but(
        sampling=PlansAndExecutions(group=group, plan=plan, execution=execution)
    )


class PlansAndExecutions(Sampling):
    """Batches of plans and of executions of their best, in turn; see `himac`.

    In a macro batch `mask` is True in each row's first turn alone, in a micro batch after it. `extras["macro"]` [B] is
    True in a macro batch. The plans between two batches are state, in training mode.
    """

    tags = frozenset({"data_source=self"})

    group: int = 8
    plan: Literal["best", "random"] = "best"
    execution: float | None = 0.01
    choice: TaskSampler = UniformTasks()
    support: Support = Support()

    reads = frozenset({"turn"})
    writes = frozenset({"extras.macro"})
    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        if self.group < 1 or (self.execution is not None and not self.execution > 0):
            raise ValueError(
                "methods.himac.PlansAndExecutions: group must be >= 1 and execution > 0, found "
                f"{self.group} and {self.execution}"
            )
        self.plans = BatchBuffer()

    @property
    def group_size(self) -> int:
        return self.group

    @property
    def compared(self) -> int:
        return self.group

    @property
    def rollout_support(self) -> Support:
        return self.support

    def forward(self, source: Any) -> Experience:
        for kept in self.plans.batches():
            self.plans.keep([])
            rows = source.extend(kept, self.group, at=_execution(kept))
            return _learned(rows, rows.mask & ~_first_turn(rows), macro=False)
        tasks = self.choice(source, max(1, source.rows // self.group))
        rows = source.rollout(RolloutRequest(tasks, self.group, self.support))
        executed = (rows.mask & ~_first_turn(rows)).any(1)
        if self.execution is not None and executed.any():
            rows = self._executed(source, rows, executed)
        self.choice.observe(rows)
        if self.training:
            self._keep(rows, executed, source.generator)
        return _learned(rows, _first_turn(rows), macro=True)

    def _executed(self, source: Any, rows: Experience, executed: Tensor) -> Experience:
        """Returns the rows with their plans executed at the temperature `execution`, in the order of the rows."""
        assert self.execution is not None
        cool = rows[executed].replace(support=Support(temperature=self.execution))
        again = source.extend(cool, 1, at=_execution(cool)).replace(support=self.support)
        joined = Experience.join([rows[~executed], again])
        number = torch.arange(len(rows), device=rows.device)
        return joined[torch.cat([number[~executed], number[executed]]).argsort()]

    def _keep(self, rows: Experience, executed: Tensor, generator: torch.Generator) -> None:
        """Keeps one row of each group that has one with a turn after the plan."""
        score = rows.outcome.double()
        if self.plan == "random":
            score = torch.rand(len(rows), generator=generator, dtype=torch.double).to(score.device)
        score = torch.where(executed, score, -torch.inf)
        best = score == -ops.group_least(-score, rows.group)
        order = torch.arange(len(rows), device=rows.device)
        chosen = ops.group_least(torch.where(best & executed, order, len(rows)).double(), rows.group).long()
        chosen = chosen.unique()
        chosen = chosen[chosen < len(rows)]
        self.plans.keep([rows[chosen]] if len(chosen) else [])

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns whether plans were learned in this batch."""
        return {"macro": float(experience.extras["macro"].double().mean())}


def _execution(rows: Experience) -> Tensor:
    """Returns the column of each row's first decision after its plan, [B]."""
    return (rows.mask & ~_first_turn(rows)).int().argmax(1)


def _first_turn(rows: Experience) -> Tensor:
    """Returns the decisions of each row's first turn, [B, T]."""
    first = torch.where(rows.mask, rows.turn, rows.turn.max()).amin(1, keepdim=True)
    return rows.mask & (rows.turn == first)


def _learned(rows: Experience, mask: Tensor, *, macro: bool) -> Experience:
    return rows.replace(mask=mask, extras={"macro": torch.full((len(rows),), macro, device=rows.device)})
