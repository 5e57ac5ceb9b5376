"""InfoCons: GRPO over paraphrases of a question, with rewards for information content and its consistency."""

from collections.abc import Sequence
from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import (
    GroupMean,
    GroupStd,
    ParaphraseConsistency,
    RelativeAdvantage,
    ReturnsPlusMeasures,
    TermEntropy,
)
from polopt.features.base import Grouping
from polopt.features.groupings import Strata, WholeBatch
from polopt.features.rows import RowField
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.sampling import Paraphrases


@method(
    paper=Paper(
        title="Information-Consistent Language Model Recommendations through Group Relative Policy Optimization",
        authors="Prabhune, Sonal and Padmanabhan, Balaji and Dutta, Kaushik",
        year=2025,
        arxiv="2512.12858",
    ),
    changes="GRPO whose group is all phrasings of a question, paid for information and for its steadiness over them.",
    room="credit",
    tier="reading",
)
def infocons(
    *,
    group: int = 4,
    phrasings: Sequence[str] = ("", " please", " thanks", " now"),
    by: Literal["entropy", "content"] = "entropy",
    helpful: float = 1.0,
    steady: float = 1.0,
    outcome: float = 0.0,
    within: Grouping | None = None,
    kl: float = 0.04,
) -> Algorithm:
    """Reward of a row of phrasing v, where every question has V phrasings, with `group` independent rollouts each:

        helpful H_v / log U_v - steady |H_v - mean_w H_w|,

    H_v the entropy of the terms in the answers to v, U_v the number of distinct ones; the advantage is the
    z-score over all rows of the question. outcome weights the environment's reward, 0 in the paper. The paper's exact
    forms are not known to us: these are our reading of "entropy-based helpfulness and stability rewards" over groups of
    prompt variants.

    Entropies may agree where contents do not. by="content" rewards minus the Jensen-Shannon divergence between a
    row's terms and each other phrasing's, in bits: the variant to use. phrasings: endings of the prompt. Tasks that
    bring phrasings of their own, one after the other in the data, take within=features.SameMeaning() and, by `but`,
    sampling.guide None and sampling.choice ConsecutiveTasks.
    """
    if within is None:
        within = Strata(by=RowField(name="index"), within=WholeBatch())
    compared = RelativeAdvantage(baseline=GroupMean(within=within.but()), scale=GroupStd(within=within.but()))
    return grpo(group=group, kl=kl).but(
        {
            "sampling.guide": Paraphrases(endings=list(phrasings)),
            "credit": ReturnsPlusMeasures(
                measures=[TermEntropy(), ParaphraseConsistency(by=by, within=within.but())],
                weights=[helpful, steady],
                own=outcome,
                credit=compared,
            ),
        }
    )
