"""BNPO: advantages normalised by a Beta density fitted to the prompts' success rates."""

from polopt.algorithm import Algorithm
from polopt.credit import BetaScale, GroupMean, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, SequenceSum, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="BNPO: Beta Normalization Policy Optimization",
        authors="Xiao, Changyi and Zhang, Mengdi and Cao, Yixin",
        year=2025,
        arxiv="2506.02864",
    ),
    changes="Dr. GRPO in units of a Beta density of each prompt's success rate, fitted to the batch.",
    room="credit",
    tier="faithful",
)
def bnpo(
    *,
    group: int = 16,
    low: float = 0.2,
    high: float = 0.28,
    dual: float | None = 10.0,
    worst: float = 0.0,
    best: float = 1.0,
    length: int | None = None,
) -> Algorithm:
    """A_i = (R_i - p_q) min(1 / f(p_q), 1e6), p_q the mean of prompt q's group, f the density Beta(alpha, beta) with

        alpha = max(1, 1 + a / 3),   beta = max(1, 1 + b / 3)

    and Beta(a, b) fitted to the batch's {p_q} by moments; see `credit.BetaScale`. Among densities f it has the least
    E[p (1 - p) / f(p)^2], the advantages' expected square. PPO's clip, bounded by `dual` for negative advantages, and a
    sum over tokens, mean over answers, over a constant `length` (None: the horizon; the authors' code has 1).

    Rewards lie in [worst, best] and are rescaled to [0, 1]; others are refused. A group of one has A = 0 here; the
    authors' code gives it mean 0, and so A = R min(1 / f(0), 1e6): up to a million times its reward. For a reward of
    several parts they average the parts' advantages: a `credit.WeightedSum`.

    TRL's loss_type="bnpo" is something else: GRPO with a mean over the tokens of each local batch.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=BetaScale(low=worst, high=best)),
        objective=Surrogate(
            ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=SequenceSum(length=length)
        ),
    )
