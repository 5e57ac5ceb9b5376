"""Policy gradients under a noisy verifier: PGBC corrects the reward, PGFC the weight of the score."""

from collections.abc import Sequence
from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import BackwardCorrected, FixedRates, ForwardCorrected, Rates, RejudgedRates


@method(
    paper=Paper(
        title="Reinforcement Learning with Verifiable yet Noisy Rewards under Imperfect Verifiers",
        authors="Cai, Xin-Qiang and Wang, Wei and Liu, Feng and Liu, Tongliang and Niu, Gang and Sugiyama, Masashi",
        year=2025,
        arxiv="2510.00915",
    ),
    changes="Verdicts are corrected by how often the verifier errs, without a z-score that would undo it.",
    room="rewards",
    tier="faithful",
)
def noisy_verifier(
    *,
    group: int = 8,
    correction: Literal["backward", "forward"] = "backward",
    false_positive: float = 0.1,
    false_negative: float = 0.2,
    kinds: Sequence[tuple[str, float, float]] = (),
    judge: str | None = None,
    share: float = 0.1,
    clip: float = 0.2,
) -> Algorithm:
    """Corrections for a verifier that accepts wrong answers with probability rho0 and rejects right ones with rho1,
    rho0 + rho1 < 1.

        backward:  R = (r - rho0) / (1 - rho0 - rho1),   A = R - mean_g R
        forward:   A = rho1 if r = 1, rho1 - 1 if r = 0

    on GRPO's clipped objective without KL. The expectation of the backward R is the true reward; that of the forward
    gradient is (1 - rho0 - rho1) times the true one, and rho0 is not needed. Its weights have no baseline: a group mean
    would undo them. Nor has the backward one a standard deviation, which would cancel it wherever a group has one pair
    of rates. The denominator is at least 0.1.

    kinds: (kind, rho0, rho1) of kinds of tasks with rates of their own. judge: with the name of an extra, such as
    "signal_true", the rates are estimated during training: a `share` of the rejected answers is verified again,
    rho1 = overturned / (accepted + overturned), smoothed over batches and at most 0.45; `false_positive` and
    `false_negative` are then the initial estimates, and each of `kinds` has its own.

    Both corrections and the appeals are the paper's; where in GRPO they are hooked in, the default rates, smoothing and
    bounds could not be read and are ours. With one pair of rates for all tasks the uncorrected gradient already is
    (1 - rho0 - rho1) times the true one: the correction matters where rates differ, where other rewards are added, and
    for the length of the step. The forward gradient is right on average and far from it in one batch: it mostly lowers
    the probability of wrong answers, without a direction. A small policy with 28 % right answers at first collapsed
    within 30 batches in each of 3 seeds (benchmarks/results/methods-planted.md); start from a policy that is mostly
    right. For that the backward one is the default; the paper reports the forward one ahead under heavy noise.
    """
    rates: Rates = FixedRates(false_positive=false_positive, false_negative=false_negative, kinds=kinds)
    if judge is not None:
        names = [kind for kind, *_ in kinds]
        rates = RejudgedRates(
            judge=judge, negatives=share, false_positive=false_positive, false_negative=false_negative, kinds=names
        )
    plain = grpo(group=group, clip=clip, kl=0.0)
    if correction == "backward":
        return plain.but(
            reward=BackwardCorrected(rates=rates), credit=RelativeAdvantage(baseline=GroupMean(), scale=None)
        )
    return plain.but(reward=ForwardCorrected(rates=rates), credit=RelativeAdvantage(baseline=None, scale=None))
