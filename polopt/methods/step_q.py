"""Step-level Q-value models: a model that ranks the steps of an agent which is not trained itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.dpo import dpo
from polopt.part import Part
from polopt.sampling import StepPairs, WeightBank
from polopt.sampling.parts import RolloutRequest
from polopt.sampling.tree_search import row_steps
from polopt.support import PLAIN, Support


@method(
    paper=Paper(
        title="Enhancing Decision-Making for LLM Agents via Step-Level Q-Value Models",
        authors="Zhai, Yuanzhao and Yang, Tingkai and Xu, Kele and Feng, Dawei and others",
        year=2024,
        arxiv="2409.09345",
    ),
    changes="DPO on steps of the best paths that an agent's searches found, for a model that ranks the agent's "
    "candidates in each turn.",
    room="sampling",
    tier="proven",
)
def step_q(
    *,
    expansions: int = 30,
    width: int = 5,
    exploration: float = 1.0,
    step_length: int | None = None,
    beta: float = 0.1,
) -> Algorithm:
    """The agent, the policy of the first batch, searches; of its best path, each step a_w and the sibling a_l of the
    lowest mean outcome, after the same history h, are a pair of

        L = -E log sigmoid(beta [log pi(a_w | h) / ref(a_w | h) - log pi(a_l | h) / ref(a_l | h)])

    and Q(h, a) = beta log (pi(a | h) / ref(a | h)) ranks steps: the agent plays the best of some candidates,
    `methods.step_q.StepReranker`.

    expansions, width: of the search; the paper has about 30 iterations and 5 candidates.
    step_length: decisions of a step; None for turns.

    In the paper the model is another, smaller one than the agent; here it begins as the agent, whose weights are kept.
    beta could not be confirmed. Only histories that the agent's searches reach are learned from.
    """
    pairs = AgentStepPairs(
        expansions=expansions, width=width, exploration=exploration, step_length=step_length, among="path"
    )
    return dpo(beta=beta).but(sampling=pairs)


class AgentStepPairs(StepPairs):
    """Step pairs of searches by the policy of the first batch. Its weights are state."""

    source_capabilities = frozenset({"continuations", "weights"})

    def setup(self) -> None:
        super().setup()
        self.agent = WeightBank()

    def forward(self, source: Any) -> Experience:
        if not len(self.agent):
            self.agent.append(source.weights())
        with source.using(self.agent[0]):
            return super().forward(source)


class StepReranker(Part):
    """Plays tasks by an agent that takes, in each turn, the best of several candidates: `play(source, tasks, agent)`.

    The candidates are the agent's, and the best one has the highest log-probability under the source's present policy
    less that under the agent, summed over its decisions; of equals the first.

    candidates: of each step. step_length: decisions of a step; None for turns.
    """

    candidates: int = 5
    step_length: int | None = None
    support: Support = PLAIN

    source_capabilities = frozenset({"continuations", "weights"})

    def setup(self) -> None:
        if self.candidates < 1 or (self.step_length is not None and self.step_length < 1):
            raise ValueError(
                "methods.step_q.StepReranker: need candidates and step_length >= 1, found "
                f"{self.candidates} and {self.step_length}"
            )

    def forward(self, source: Any, tasks: Tensor, agent: Tensor) -> Experience:
        """Returns the episodes, one for each of `tasks` [M]. agent: its weights, as `source.weights()` returns them."""
        n = self.candidates
        with source.using(agent):
            rows = source.rollout(RolloutRequest(tasks, n, self.support))
        live = list(range(len(tasks)))
        begin = [self._begins(rows, n * place)[0] for place in live]
        played: dict[int, Experience] = {}
        while live:
            gain = self.gains(source, rows, begin, agent).view(len(live), n)
            best = (gain.argmax(1).cpu() + n * torch.arange(len(live))).tolist()
            after = [next((b for b in self._begins(rows, row) if b > begin[row // n]), -1) for row in best]
            played |= {task: rows[[row]] for task, row, b in zip(live, best, after, strict=True) if b < 0}
            goes_on = [place for place, b in enumerate(after) if b >= 0]
            if goes_on:
                begin = [after[place] for place in goes_on]
                with source.using(agent):
                    at = torch.tensor(begin, device=rows.device)
                    rows = source.extend(rows[[best[place] for place in goes_on]], n, at=at)
            live = [live[place] for place in goes_on]
        return Experience.join([played[task] for task in range(len(tasks))])

    def gains(self, source: Any, rows: Experience, begin: Sequence[int], agent: Tensor) -> Tensor:
        """Returns the log-ratio [M * candidates] of each row's step that begins at its task's column, of `begin`."""
        inside = torch.zeros_like(rows.mask)
        for row in range(len(rows)):
            first = begin[row // self.candidates]
            end = next((b for b in self._begins(rows, row) if b > first), rows.mask.shape[1])
            inside[row, first:end] = True
        present = source.evaluate(rows).logp
        with source.using(agent):
            own = source.evaluate(rows).logp
        return torch.where(inside & rows.mask, present - own, 0).sum(1)

    def _begins(self, rows: Experience, row: int) -> list[int]:
        return [begin for begin, _ in row_steps(rows, row, self.step_length)]
