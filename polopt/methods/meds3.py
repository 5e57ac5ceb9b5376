"""MedS3: a policy learns from the right answers of its searches, and a process model from the values of their steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.masks import FieldMask
from polopt.method import Paper, method
from polopt.objectives import (
    AuxiliaryLoss,
    Branch,
    BranchedObjective,
    PolicyGradient,
    Regulariser,
    Surrogate,
    TokenMean,
)
from polopt.part import Part
from polopt.sampling import TreeSearch
from polopt.sampling.parts import RolloutRequest
from polopt.sampling.tree_search import SearchNode
from polopt.schedules import Schedule
from polopt.support import PLAIN, Support


@method(
    paper=Paper(
        title="MedS3: Towards Medical Slow Thinking with Self-Evolved Soft Dual-sided Process Supervision",
        authors="Jiang, Shuyang and Liao, Yusheng and Chen, Zhe and Zhang, Ya and Wang, Yanfeng and Wang, Yu",
        year=2025,
        arxiv="2501.12051",
    ),
    changes="Tree search gives right answers, for supervised learning, and values of steps, for a process model that "
    "weighs answers in a vote.",
    room="sampling",
    tier="proven",
)
def meds3(
    *,
    expansions: int = 10,
    width: int = 8,
    exploration: float = 2.0,
    step_length: int | None = 4,
    look_back: float = 0.0,
    weight: float = 1.0,
) -> Algorithm:
    """Of the answers y of a search, R of them right, the policy learns the right ones, and the process model p, the
    sigmoid of the critic's value after step i, the value v_i of that step:

        L = -sum R_y log pi(y) / sum |y| - weight mean_i [v_i log p_i + (1 - v_i) log(1 - p_i)]

    v_i is the mean outcome of `width` completions from there, and of a whole answer its outcome. At play, answers vote
    with their p: `methods.meds3.VoteSum`.

    exploration: c of the search's rule, V + c sqrt(ln N_parent / N). expansions, width: of the search.
    step_length: decisions of a step; None for turns.
    look_back: v_i becomes v_i - look_back (v_{i-1} - v_i), between 0 and 1, from the third step on: lower for a step
        that is worse than the one before it, and higher for a better one.
    weight: of the process model's loss.

    In the paper completions are max(20 / (depth + 1), 5), steps are those of a text, searches end with three right
    answers, and the prompt asks to reflect where values fall and to refine bad ends; here all completions are kept as
    answers and steps have a length, since what a prompt asks is the world's. The paper's process model has weights of
    its own, and is trained in rounds; here it is the critic, beside the policy. A later version of the paper adds a
    stage of preference learning, which `itool` and `step-q` have. Labels of the authors' code that look ahead are not
    here.
    """
    search = StepValueSearch(
        expansions=expansions, width=width, exploration=exploration, step_length=step_length, look_back=look_back
    )
    imitation = Surrogate(ratio=None, trust=PolicyGradient(), aggregate=TokenMean())
    process = AuxiliaryLoss(regularise=[StepValueLoss(coefficient=1.0)], aggregate=TokenMean())
    labelled = FieldMask(name="step_labelled", unit="token")
    return Algorithm(
        sampling=search,
        credit=RelativeAdvantage(baseline=None, scale=None),
        objective=BranchedObjective(
            routes=[Branch(objective=imitation), Branch(objective=process, rows=labelled, weight=weight)]
        ),
    )


class StepValueSearch(TreeSearch):
    """All different answers of a search, with `extras["step_label"]` [B, T] where `extras["step_labelled"]` is True:
    before the first decision of a step the value of the steps before it, for nodes that were expanded, and before a
    row's last decision the row's outcome. The last decision is taken for the end of the answer, as a stop token is.

    look_back: as in `meds3`. A step's own label alone is changed: the one before it stays as it was drawn.
    """

    look_back: float = 0.0

    writes = frozenset({"extras.step_label", "extras.step_labelled"})

    def setup(self) -> None:
        super().setup()
        if self.look_back < 0:
            raise ValueError(f"methods.meds3.StepValueSearch: look_back must be >= 0, found {self.look_back}")

    def learned(self, source: Any, rows: Experience, trees: Sequence[SearchNode]) -> Experience:
        ways = [way for tree in trees for way in tree.leaves()]
        found = rows[torch.tensor([way[-1].row for way in ways], dtype=torch.long, device=rows.device)]
        label = torch.full(found.mask.shape, torch.nan, dtype=found.precision, device=rows.device)
        last = ops.last_decision(found.mask).int().argmax(1).tolist()
        for row, way in enumerate(ways):
            values = [node.drawn for node in way[:-1]] + [way[-1].value]
            columns = [node.column for node in way[:-1]] + [last[row]]
            for column, value in zip(columns, self.labels(values), strict=True):
                if not math.isnan(value):
                    label[row, column] = value
        return found.replace(extras={"step_label": label, "step_labelled": ~label.isnan()})

    def labels(self, values: Sequence[float]) -> list[float]:
        """Returns the labels of the steps of a way, given their values; NaN where there is none."""
        found = list(values)
        for i in range(2, len(values)):
            before = values[i - 1]
            if not (math.isnan(before) or math.isnan(values[i])):
                found[i] = min(1.0, max(0.0, values[i] - self.look_back * (before - values[i])))
        return found


class StepValueLoss(Regulariser):
    """coefficient times the cross-entropy of the sigmoid of the critic's value with `extras["step_label"]`."""

    binds = "decision"

    coefficient: float | Schedule = 1.0

    reads = frozenset({"extras.step_label"})
    policy_outputs = frozenset({"value"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        label = experience.extras["step_label"]
        there = ~label.isnan()
        loss = F.binary_cross_entropy_with_logits(
            evaluation.value, torch.where(there, label, 0).to(evaluation.value.dtype), reduction="none"
        )
        return torch.where(there, loss, 0)


class VoteSum(Part):
    """Selects one of several answers to each task: `select(source, tasks) -> [M rows]`.

    Equal answers add up the process model's p before their last decision; of those of the highest sum, the one of the
    highest p is selected, and the first of equals.

    candidates: answers to each task. votes: "sum" of p; "count", a majority vote; "best", the highest p alone.
    """

    candidates: int = 16
    votes: Literal["sum", "count", "best"] = "sum"
    support: Support = PLAIN

    def setup(self) -> None:
        if self.candidates < 1:
            raise ValueError(f"methods.meds3.VoteSum: candidates must be >= 1, found {self.candidates}")

    def forward(self, source: Any, tasks: Tensor) -> Experience:
        """Samples answers to these tasks [M] from the source's policy, which must have a critic."""
        rows = source.rollout(RolloutRequest(tasks, self.candidates, self.support))
        last = ops.last_decision(rows.mask)
        value = torch.where(last, source.evaluate(rows, frozenset({"value"})).value, 0).sum(1)
        score = torch.where(last.any(1), value.sigmoid(), 0).detach().double().cpu().tolist()
        texts = [tuple(answer) for answer in source.answers(rows)]
        n = self.candidates
        chosen = [n * task + self.chosen(texts[n * task :][:n], score[n * task :][:n]) for task in range(len(tasks))]
        return rows[torch.tensor(chosen, dtype=torch.long, device=rows.device)]

    def chosen(self, answers: Sequence[Any], score: Sequence[float]) -> int:
        """Returns the place of the selected answer, given the answers to a task and their p."""
        weights = [1.0] * len(score) if self.votes == "count" else score
        total: dict[Any, float] = {}
        for answer, weight in zip(answers, weights, strict=True):
            total[answer] = (
                max(total.get(answer, 0.0), weight) if self.votes == "best" else total.get(answer, 0) + weight
            )
        return max(range(len(answers)), key=lambda i: (total[answers[i]], score[i], -i))
