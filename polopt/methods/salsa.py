"""SALSA: PPO whose KL penalty is measured from a soup of two fine-tuned policies."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import KLPenalty, OutcomeReward, SumOfRewards


@method(
    paper=Paper(
        title="SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF",
        authors="Chegini, Atoosa and Kazemi, Hamid and Mirzadeh, Iman and Yin, Dong and Horton, Maxwell and Nabi, Moin "
        "and Farajtabar, Mehrdad and Alizadeh, Keivan",
        year=2024,
        arxiv="2411.01798",
    ),
    changes="PPO whose reference is the mean of the weights of two fine-tuned policies.",
    room="rewards",
    tier="proven",
)
def salsa(*, group: int = 1, clip: float = 0.2, lam: float = 0.95, kl: float = 0.05) -> Algorithm:
    """r_t = -kl log pi(y_t)/soup(y_t) plus the outcome on the last token, maximised by PPO from policy A, with

        theta_soup = alpha theta_A + (1 - alpha) theta_B

    of two policies A and B that were fine-tuned from the same weights, on the same data in another order. The stage
    names the soup, and starts from A:

        start: {stage: a}
        policies: {soup: {average: [{stage: a}, {stage: b}], weights: [0.5, 0.5]}}

    alpha is the first of the shares; the paper finds 0.5 best. Soups of policies from different initial weights are
    worthless. The recipe `salsa` has all three stages. With alpha = 1 it is `ppo`. Where logits are linear in the
    weights the soup is the normalised geometric mean of A and B, so that the best policy over single decisions is
    proportional to A^alpha B^(1 - alpha) exp(outcome / kl).

    At an equal distance to A no reference is better than A itself (see the claim `matched`): what the soup gains at the
    same kl it gains by going further from A.

    kl: weight of the distance to the soup. The paper's weight was not confirmed; this is `ppo`'s. group, clip, lam:
    PPO's.
    """
    reward = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=kl, anchor="soup")])
    return ppo(group=group, clip=clip, lam=lam, kl=0.0).but(reward=reward)
