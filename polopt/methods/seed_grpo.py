"""SEED-GRPO: advantages reduced on prompts whose answers disagree."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import ModulatedAdvantage, SemanticEntropy, UncertaintyDecay
from polopt.method import Paper, method
from polopt.methods.dr_grpo import dr_grpo


@method(
    paper=Paper(
        title="SEED-GRPO: Semantic Entropy Enhanced GRPO for Uncertainty-Aware Policy Optimization",
        authors="Chen, Minghan and Chen, Guikun and Wang, Wenguan and Yang, Yi",
        year=2025,
        arxiv="2505.12346",
    ),
    changes="Dr. GRPO whose advantages shrink with the semantic entropy of the prompt's answers.",
    room="credit",
    tier="reading",
)
def seed_grpo(
    *,
    group: int = 8,
    alpha: float = 0.1,
    shape: Literal["linear", "exponential", "focal"] = "linear",
    weigh: Literal["length", "sequence", "count"] = "length",
    pattern: str = "",
    length: int | None = None,
) -> Algorithm:
    """A_i = (R_i - mean_g R) f(alpha SE / log G), with SE = -(1/K) sum_k log p(C_k) over the K clusters of the group's
    answers of one canonical form, and p(C_k) the share of the group's probability that its answers have.

    f(0) = 1: "linear" 1 - x, "exponential" exp(-x), "focal" (1 - x)^2. The paper sums whole answers' probabilities
    (weigh="sequence"); those of long answers differ by so much that a group then has one answer or none, so ours are
    their |o_i|-th roots. Which f, which alpha, and log G for the largest entropy are our reading. `pattern` finds the
    final answer in a longer text; without it the whole text is the answer, and no two chains of thought agree.
    """
    base = dr_grpo(group=group, length=length)
    faded = UncertaintyDecay(by=SemanticEntropy(weigh=weigh, pattern=pattern), strength=alpha, shape=shape)
    return base.but(credit=ModulatedAdvantage(credit=base.credit, times=faded))
