"""A-LoL: likelihood of the given answers that are better than the reference's, weighted by how much."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import PromptValue, RelativeAdvantage
from polopt.credit.parts import Baseline
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features.base import RowMask
from polopt.method import Paper, method
from polopt.objectives import (
    AnchorRatio,
    AuxiliaryLoss,
    Branch,
    BranchedObjective,
    ImportanceWeight,
    PolicyGradient,
    ProductRatio,
    ReferenceKL,
    Regulariser,
    SequenceSum,
    Surrogate,
)
from polopt.objectives.paired import compared_by
from polopt.sampling import RatedAnswers
from polopt.schedules import Schedule

Variant = Literal["sequence", "tokens", "none", "kl"]


@method(
    paper=Paper(
        title="Leftover-Lunch: Advantage-based Offline Reinforcement Learning for Language Models",
        authors="Baheti, Ashutosh and Lu, Ximing and Brahman, Faeze and Le Bras, Ronan and Sap, Maarten "
        "and Riedl, Mark",
        year=2023,
        arxiv="2305.14718",
    ),
    changes="Imitation of scored answers, of those alone that are better than what the reference gets for the prompt, "
    "each as much as it is better.",
    room="objectives",
    tier="proven",
)
def alol(
    *,
    variant: Variant = "sequence",
    clip: float = 0.9,
    kl: float = 0.1,
    value: Baseline | None = None,
    fit: float = 0.5,
) -> Algorithm:
    """L = -mean_i A_i w_i log pi(y_i),    A_i = R_i - V(x_i)

    over given answers y_i with scores R_i to prompts x_i, those with A_i > 0 alone, a whole answer being one action; w
    is without gradient. At the reference w = 1 and all variants have one gradient, and with A = 1 it is that of the
    likelihood.

    variant: what w is.
        "sequence": the ratio pi(y) / ref(y), within [1 - clip, 1 + clip]: A-LoL.
        "tokens": each token's ratio, within these bounds: A-LoL seq.
        "none": 1, without a reference: A-LoL ref-free.
        "kl": 1, and kl log pi(y) / ref(y) is added to each row's loss: A-LoL KL. Of given answers that is the gradient
            with A - kl in A's place.
    clip: 0.9 in the paper, so that an answer which the policy has lost keeps a tenth of its gradient.
    kl: the coefficient; the paper's text with its value could not be read, 0.1 is ours.
    value: V(x). None fits the critic's value of the prompt to the scores; 0 (`credit.ConstantBaseline()`) is R-LoL,
        with "none" weighted behaviour cloning; `credit.GroupMean()` serves prompts with several answers.
    fit: the coefficient of the critic's loss, for value None.

    Deviations. The paper's V is a head on the frozen reference, fitted beforehand to the scores of the reference's own
    answers to held-out prompts. The critic here shares the policy's backbone and is fitted, along the way, to the
    scores of the given answers, dropped ones too: these are answers like the reference's where that has imitated the
    data, as the paper's has. It begins at 0, with R-LoL. The paper also draws rows in proportion to A, which we do
    not: there an answer counts A^2 on average. Scores should be in one unit, the paper's in [0, 1].
    """
    if not 0 <= clip <= 1 or kl < 0 or fit < 0:
        raise ValueError(f"alol: need clip in [0, 1], kl >= 0 and fit >= 0, found {clip}, {kl} and {fit}")
    ratios = {"sequence": ProductRatio(token=AnchorRatio()), "tokens": AnchorRatio()}
    likelihood = Surrogate(
        ratio=None,
        trust=PolicyGradient(),
        weights=[ImportanceWeight(low=clip, high=clip, ratio=ratios[variant])] if variant in ratios else [],
        aggregate=SequenceSum(length=1),
        regularise=[ReferenceKL(coefficient=kl, value="k1", gradient="k1")] if variant == "kl" else [],
    )
    routes = [Branch(objective=likelihood, rows=PositiveAdvantage())]
    if value is None:
        critic = AuxiliaryLoss(regularise=[PromptValueLoss(coefficient=fit)], aggregate=SequenceSum(length=1))
        routes.append(Branch(objective=critic))
    return Algorithm(
        sampling=RatedAnswers(),
        credit=RelativeAdvantage(baseline=PromptValue() if value is None else value, scale=None),
        objective=BranchedObjective(routes=routes),
    )


class PositiveAdvantage(RowMask):
    """Selects the rows of positive advantage, that of their first decision. Source: A-LoL, arXiv:2305.14718."""

    reads = frozenset({"advantage"})

    def forward(self, experience: Experience) -> Tensor:
        return compared_by(experience, "advantage") > 0


class PromptValueLoss(Regulariser):
    """coefficient * (V - R)^2 at each row's first decision, V the critic's value before it and R the row's return, so
    that V becomes the mean return of the prompt's rows. Source: A-LoL, arXiv:2305.14718."""

    coefficient: float | Schedule = 0.5

    reads = frozenset({"reward"})
    policy_outputs = frozenset({"value"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        first = experience.mask & (experience.mask.cumsum(1) == 1)
        error = evaluation.value - experience.returns().to(evaluation.value)[:, None]
        return torch.where(first, error.square(), 0)
