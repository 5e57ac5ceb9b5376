"""ReSeek: a search agent judges each result before it goes on, and is paid for right judgements."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.rewards import FieldReward, OutcomeReward, SumOfRewards


@method(
    paper=Paper(
        title="ReSeek: A Self-Correcting Framework for Search Agents with Instructive Rewards",
        authors="Li, Shiyu and Tang, Yang and Wang, Yifan and Li, Peiming and Chen, Xi",
        year=2025,
        arxiv="2510.00568",
    ),
    changes="GRPO whose reward adds that of the judgements of search results: right, a wrong yes, a wrong no.",
    room="rewards",
    tier="faithful",
)
def reseek(
    *,
    group: int = 8,
    right: float = 0.3,
    wrong_yes: float = -0.6,
    wrong_no: float = -0.3,
    clip: float = 0.2,
    kl: float = 0.0,
) -> Algorithm:
    """After each search the policy judges whether the result has the answer, and with R the outcome,

        R_i + right n_right + wrong_yes n_yes + wrong_no n_no

    is a row's return, of which GRPO takes the z-score; n count its judgements: right ones, a wrong yes, a wrong no.
    Yes is better than no where the chance p that the result is useful is at least
    (right - wrong_yes) / (2 right - wrong_yes - wrong_no), which is 0.6 for the defaults and 0.5 for equal penalties.

    Judgements are `extras["signal_judged_right"]`, `"signal_judged_yes"` and `"signal_judged_no"` [B], which the world
    `retrieval` tells with `judge: true`; there a no is followed by another search, and what is useful is decided by
    `relevance`, the paper's by a reranker's score of the result and the answer, above 0.7. The sum is not discounted by
    turns. Each right judgement pays, needless ones too: look at the searches of an episode, `signal_calls`.
    """
    names = ("signal_judged_right", "signal_judged_yes", "signal_judged_no")
    terms = [OutcomeReward(), *(FieldReward(name=name) for name in names)]
    reward = SumOfRewards(terms=terms, weights=(1.0, right, wrong_yes, wrong_no))
    return grpo(group=group, clip=clip, kl=kl).but(reward=reward)
