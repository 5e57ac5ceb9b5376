"""SRPO: GRPO on most rows, and self-distillation on wrong rows with a right sibling."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.features.masks import HasTeacher
from polopt.method import Paper, method
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    Distillation,
    Surrogate,
    TeacherCertainty,
    TokenMean,
    TokenRatio,
)
from polopt.sampling import Rollouts
from polopt.teachers import SelfTeacher, Sibling


@method(
    paper=Paper(
        title="Unifying Group-Relative and Self-Distillation Policy Optimization via Sample Routing",
        authors="Li, Gengsheng and others",
        year=2026,
        arxiv="2604.02288",
    ),
    changes="GRPO, but a wrong answer with a right sibling is distilled from the policy that has seen the sibling.",
    room="objectives",
    tier="reading",
)
def srpo_routing(
    *,
    group: int = 8,
    low: float = 0.2,
    high: float = 0.28,
    dual: float = 3.0,
    alpha: float = 0.5,
    beta: float = 1.0,
    top: int = 100,
    rate: float = 0.05,
) -> Algorithm:
    """Loss of two branches: SDPO's divergence D, weighted by the teacher's certainty, on wrong rows with a right
    sibling; GRPO on all others, wrong ones without a right sibling included, with their advantage in the full group:

        L = (sum_GRPO clipped terms + sum_SDPO w_it D_alpha(q_it, p_it)) / (all decisions)

    w_it = exp(-beta H_it) / mean exp(-beta H) with H the teacher's entropy, q the averaged policy that has seen the
    sibling. See sdpo for q and D. The routing and the weights are those of two independent implementations; beta and
    the dual clip's 3 come from these, not from the paper.
    """
    rewarded = Surrogate(ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=TokenMean())
    distilled = Surrogate(
        ratio=None, trust=Distillation(alpha=alpha), weights=[TeacherCertainty(beta=beta)], aggregate=TokenMean()
    )
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=BranchedObjective(
            routes=[
                Branch(objective=rewarded, rows=HasTeacher(below=1.0, invert=True)),
                Branch(objective=distilled, rows=HasTeacher(below=1.0)),
            ],
            count="all",
        ),
        teacher=SelfTeacher(hint=Sibling(rows="wrong"), rate=rate, top=top),
    )
