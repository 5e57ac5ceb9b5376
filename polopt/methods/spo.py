"""SPO-chain: segment-level advantages from Monte Carlo values at the segments' ends."""

from polopt.algorithm import Algorithm
from polopt.credit import SegmentAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio
from polopt.sampling import SegmentRollouts, UncertainTokens

PAPER = Paper(
    title="Segment Policy Optimization: Effective Segment-Level Credit Assignment in RL for Large Language Models",
    authors="Guo, Yiran and Xu, Lijie and Liu, Jie and Ye, Dan and Qiu, Shuang",
    year=2025,
    arxiv="2505.23564",
)


@method(
    paper=PAPER,
    changes="Credit by segments: rows are cut at tokens in doubt, fresh rollouts from each cut give its value, only "
    "tokens in doubt learn.",
    room="credit",
    tier="faithful",
)
def spo(
    *, group: int = 8, rollouts: int = 9, threshold: float = 0.9, interval: int = 5, clip: float = 0.2
) -> Algorithm:
    """The chain variant; `spo-tree` is the other. A token is in doubt if its probability under the sampler is below
    `threshold`. A row is cut before the first such token and before every `interval`-th after it; V at a cut is the
    mean reward of `rollouts` fresh continuations. A segment's advantage is the next cut's V minus its own, the last
    one's R - V, and

        L = (1 / sum_it d_it) sum_it d_it max(-A_it r_it, -A_it clip(r_it, 1 - clip, 1 + clip))

    with d = 1 at tokens in doubt. A row without them has A = 0. This costs `rollouts` answers per cut: far more samples
    than rows. Continuations start from the same tokens over the same support, in the middle of an answer; in
    environments of many turns the episode is first replayed up to there, so the environment must be deterministic.

    The authors' code, which was read for this, also whitens the advantages over the tokens in doubt and has a KL term
    to a reference among its PPO defaults; the configuration that was read samples at temperature 0.6. None of that is
    here: `.but` sampling.support and objective.regularise for the last two.
    """
    return Algorithm(
        sampling=SegmentRollouts(group=group, threshold=threshold, interval=interval, rollouts=rollouts),
        credit=SegmentAdvantage(),
        select=[UncertainTokens(threshold=threshold)],
        objective=Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean()),
    )
