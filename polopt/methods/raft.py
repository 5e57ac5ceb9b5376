"""RAFT: supervised fine-tuning on the best of the policy's own samples."""

import math

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, Surrogate, TokenMean
from polopt.sampling import Rollouts, TopK
from polopt.setting_types import Unbounded


@method(
    paper=Paper(
        title="RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment",
        authors="Dong, Hanze and others",
        year=2023,
        arxiv="2304.06767",
    ),
    changes="SFT on the policy's own rollouts: of each group, the best.",
    room="sampling",
    tier="proven",
)
def raft(*, group: int = 32, keep: int | None = 1, threshold: Unbounded = -math.inf) -> Algorithm:
    """L = -(1 / sum_i |y_i|) sum_it logp_it over the `keep` best answers of each group that reach `threshold`.

    The paper keeps the best one, however bad. For answers that are right or wrong, keep=None and threshold=1
    keep all right ones: on answers of one length that is REINFORCE on the reward 0 or 1, divided by the share
    of right answers. Ties go to the earlier row; a batch without survivors has loss 0. The paper samples for
    a whole round and then fits; here a round is one batch. Its optional KL penalty in the ranking is left out.
    """
    return Algorithm(
        sampling=Rollouts(group=group, select=[TopK(count=keep, threshold=threshold)]),
        credit=ConstantAdvantage(value=1.0),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=TokenMean()),
    )
