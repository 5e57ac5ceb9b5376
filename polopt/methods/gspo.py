"""GSPO: GRPO with one ratio for the whole answer."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, SequenceMean, SequenceRatio, Surrogate
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Group Sequence Policy Optimization",
        authors="Zheng, Chujie and others",
        year=2025,
        arxiv="2507.18071",
    ),
    changes="GRPO with ratio and clip on the whole answer: the geometric mean of its token ratios.",
    room="objectives",
    tier="faithful",
)
def gspo(*, group: int = 8, low: float = 3e-4, high: float = 4e-4) -> Algorithm:
    """s_i = exp( (1/|y_i|) sum_t log r_it ), A_i as in GRPO, and

        L = mean_i max(-A_i s_i, -A_i clip(s_i, 1 - low, 1 + high))

    s is a mean per token, hence the tiny clip: PPO's 0.2 would never act. A clip stops an answer as a whole.
    The group of 8 is ours; no KL. TRL and verl write s_it with the gradient of its own token only: the same value
    and, for one advantage per answer, the same gradient. |y_i| counts decisions alone.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(ratio=SequenceRatio(), trust=Clip(low=low, high=high), aggregate=SequenceMean()),
    )
