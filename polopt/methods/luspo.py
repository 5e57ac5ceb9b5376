"""LUSPO: GSPO with each answer's loss multiplied by its length, so that every token has the same weight."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.gspo import gspo
from polopt.objectives import SequenceSum


@method(
    paper=Paper(
        title="Length-Unbiased Sequence Policy Optimization: "
        "Revealing and Controlling Response Length Variation in RLVR",
        authors="Liu, Fanfan and others",
        year=2026,
        arxiv="2602.05261",
    ),
    changes="GSPO with each answer's loss multiplied by its length.",
    room="objectives",
    tier="proven",
)
def luspo(*, group: int = 8, low: float = 2e-3, high: float = 2.5e-3) -> Algorithm:
    """s_i = exp( (1/|y_i|) sum_t log r_it ) and A_i as in GSPO, and

        L = (1/B) sum_i |y_i| max(-A_i s_i, -A_i clip(s_i, 1 - low, 1 + high))

    Where nothing is clipped the gradient is (1/B) sum_i s_i A_i sum_t grad logp_it: the 1/|y_i| that s_i brings is
    gone. On policy that is Dr. GRPO's with C = 1. The loss is larger than GSPO's by about the mean length: lower the
    learning rate, and expect a gradient clip to act. |y_i| counts decisions alone, and a row without any counts in B.
    TRL's loss_type="luspo" is the same with importance_sampling_level="sequence" and another loss with "token".
    The group of 8 is ours; no KL.
    """
    return gspo(group=group, low=low, high=high).but(**{"objective.aggregate": SequenceSum(length=1)})
