"""Stratified GRPO: advantages relative to answers of the same structure."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage, WeightedAdvantage, WeightedSum
from polopt.features.base import RowFeature
from polopt.features.groupings import Strata
from polopt.features.rows import TurnCount
from polopt.method import Paper, method
from polopt.objectives import Clip, ReferenceKL, SequenceMean, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Stratified GRPO: Handling Structural Heterogeneity in Reinforcement Learning of LLM Search Agents",
        authors="Zhu, Mingkang and others",
        year=2025,
        arxiv="2510.06214",
    ),
    changes="GRPO whose z-score is taken within answers of the same structure, blended with the plain one.",
    room="credit",
    tier="reading",
)
def stratified_grpo(
    *,
    group: int = 16,
    alpha: float = 0.8,
    by: RowFeature = TurnCount(),  # noqa: B008
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """A = alpha A_SAN + (1 - alpha) A_GN, both (R_i - mean) / (std + eps): A_GN over the prompt's group, as GRPO, and
    A_SAN over the rows of the same prompt and the same stratum, `by` (the number of turns: of tool calls, plus one).

    A stratum of one row has A_SAN = 0. alpha = 0, and a group of one stratum, give GRPO. alpha and eps are left open by
    what could be read of the paper; 0.8 is our reading. The rest of the algorithm is GRPO's.

    Within a stratum A_SAN sums to 0, so alpha = 1 never learns which stratum is better: only the blend does.
    """
    strata = Strata(by=by.but())
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=WeightedSum(
            shares=[
                WeightedAdvantage(
                    credit=RelativeAdvantage(baseline=GroupMean(within=strata), scale=GroupStd(within=strata.but())),
                    weight=alpha,
                ),
                WeightedAdvantage(
                    credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()), weight=round(1 - alpha, 12)
                ),
            ]
        ),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=Clip(low=clip, high=clip),
            aggregate=SequenceMean(),
            regularise=[ReferenceKL(coefficient=kl)] if kl else [],
        ),
    )
