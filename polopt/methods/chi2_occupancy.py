"""Chi-square occupancy regularisation: a proxy reward is optimised only near the reference policy."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import AnswerRatio, Departure, Discriminator, LogRatio, OutcomeReward, SumOfRewards


@method(
    paper=Paper(
        title="Correlated Proxies: A New Definition and Improved Mitigation for Reward Hacking",
        authors="Laidlaw, Cassidy and Singhal, Shivam and Dragan, Anca",
        year=2024,
        arxiv="2403.03185",
    ),
    changes="PPO on the proxy minus the root of the chi-square distance to the reference's occupancy, not a KL.",
    room="rewards",
    tier="faithful",
)
def chi2_occupancy(
    *,
    group: int = 1,
    coefficient: float = 0.1,
    divergence: Literal["kl", "chi2", "sqrt_chi2", "tv"] = "sqrt_chi2",
    features: int | None = None,
    hidden: int = 64,
    limit: float | None = None,
) -> Algorithm:
    """max J(pi, proxy) - coefficient sqrt(chi2(mu_pi || mu_ref)), chi2 = E_pi[mu_pi / mu_ref] - 1, mu the discounted
    share of time in each state with each action. As a reward: -coefficient (e^d - 1) / sqrt(c) with
    d = log(mu_pi / mu_ref) and c the batch's mean of e^d - 1, 1 % trimmed on either side; e^d - 1 alone where c <= 0.

    features None is for language, where an answer is the whole trajectory: d is the sum of logp - ref_logp, and the
    penalty is on the last token. With a number, d is the output of a discriminator of that many features and `hidden`
    units at each decision, trained on each batch before the policy is, against fresh rollouts of the reference that
    the source provides (`rewards.Discriminator`); language training has none, and refuses it.

    The paper's theory has coefficient = std(proxy) sqrt(1 - r^2), r the correlation under the reference; its runs
    search a grid, and so should ours: the default 0.1 is not from the paper. Its name there is ORPO, as is that of
    odds-ratio preference optimisation. For language the authors' program adds coefficient sqrt(mean(e^d - 1 + e^-d -
    1)) to the loss and differentiates through d, which is half of chi2's gradient plus that of KL(ref || pi); ours is
    chi2's. Both follow e^d along its tangent beyond d = 10. Their trimming of fewer than 100 samples leaves none, hence
    no penalty; ours leaves all. Their tv trains another discriminator.
    """
    ratio: LogRatio = AnswerRatio() if features is None else Discriminator(features=features, hidden=hidden)
    price = Departure(coefficient=coefficient, divergence=divergence, log_ratio=ratio, limit=limit)
    return ppo(group=group, kl=0).but(reward=SumOfRewards(terms=[OutcomeReward(), price]))
