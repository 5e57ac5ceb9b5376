"""EMPG: advantages scaled by the policy's certainty in each turn, and a bonus for certain next turns."""

from polopt.algorithm import Algorithm
from polopt.credit import CentredAdvantage, ModulatedAdvantage, TurnCertainty
from polopt.method import Paper, method
from polopt.methods.grpo import grpo


@method(
    paper=Paper(
        title="Harnessing Uncertainty: Entropy-Modulated Policy Gradients for Long-Horizon LLM Agents",
        authors="Wang, Jiawei and Liu, Jiacai and Fu, Yuqian and others",
        year=2025,
        arxiv="2509.09265",
    ),
    changes="GRPO whose advantage each turn scales by how sure it was, plus a bonus for the clarity of the next turn.",
    room="credit",
    tier="reading",
)
def empg(
    *, group: int = 8, k: float = 1.0, k_next: float = 1.0, zeta: float = 0.1, clip: float = 0.2, kl: float = 0.0
) -> Algorithm:
    """For turn h of row i, with H_ih the mean entropy of its tokens and h_ih its place in [0, 1] between the lowest and
    the highest of the batch's turns,

        A_ih = A_i g_ih + zeta exp(-k_next h_i,h+1),    g_ih = exp(-k h_ih) / mean over turns of exp(-k h),

    minus the mean over the batch's turns, on every token of the turn. The last turn has no bonus. That a mean over
    turns is subtracted, and no standard deviation divides, could not be confirmed at the source and is our reading. A_i
    is GRPO's; the wrapper takes any credit. Turns are those of `turn`, so tool output never counts. The bonus does not
    depend on the outcome, so it can reward premature certainty: keep zeta small. k = zeta = 0 leaves A_i minus its mean
    over turns, which is A_i where all rows have as many turns.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    ahead = TurnCertainty(sharpness=k_next, turn="next", weight=zeta)
    return base.but(
        credit=CentredAdvantage(
            credit=ModulatedAdvantage(credit=base.credit, times=TurnCertainty(sharpness=k), plus=ahead), unit="turn"
        )
    )
