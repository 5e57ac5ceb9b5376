"""RAFT: learn the best of what you sampled."""

import math

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.lab import expectation
from polopt.lab.claims import collapse
from polopt.lab.problems import many_right
from polopt.method import Finding, Paper, method
from polopt.methods.dr_grpo import dr_grpo
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
    tier="faithful",
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


@raft.claim("Keeping all right answers follows REINFORCE's direction.", baseline="keeping all answers")
def like_reinforce() -> Finding:
    tree, policy = many_right(right=2, arms=5)
    right = expectation(raft(group=3, keep=3, threshold=1.0), tree, policy)
    both = expectation(raft(group=3, keep=3), tree, policy)
    return Finding(
        measured={"cosine": right.cosine, "keeping all: gradient norm": both.mean.norm().item()},
        criterion="cosine > 1 - 1e-10; keeping all: no gradient, < 1e-10",
        holds=right.cosine > 1 - 1e-10 and both.mean.norm().item() < 1e-10,
    )


@raft.claim(
    "At equal reward it leaves fewer different right answers.", baseline="Dr. GRPO, at 0.95 success", refuted=True
)
def collapses() -> Finding:
    ours = collapse(raft(group=64, keep=64, threshold=1.0))
    base = collapse(dr_grpo(group=64, length=1))
    return Finding(
        measured={"effective right answers": ours, "Dr. GRPO": base},
        criterion="not larger than Dr. GRPO's (24 seeds, 8 of 32 arms right)",
        holds=ours <= base,
        note="On average both move in the same direction, so only noise parts them: groups of 64 keep more under RAFT, "
        "groups of 16 with rates of 2 and more keep less.",
    )
