"""RLOO: each rollout is compared with the mean of the others."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, LeaveOneOut, RelativeAdvantage
from polopt.lab import TabularPolicy, TokenTree, expectation
from polopt.method import Finding, Paper, method
from polopt.objectives import PolicyGradient, SequenceSum, Surrogate
from polopt.rewards import KLPenalty, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
        authors="Ahmadian, Arash and others",
        year=2024,
        arxiv="2402.14740",
    ),
    changes="REINFORCE on whole answers whose baseline is the mean return of the group's other answers.",
    room="credit",
    tier="proven",
)
def rloo(*, group: int = 4, kl: float = 0.05) -> Algorithm:
    """A_i = R_i - mean_{j != i} R_j and L = -(1/B) sum_i A_i sum_t logp_it: one action per answer.

    kl weighs the k1 estimate of the distance to the reference inside the reward, on each token, as
    R_i - kl sum_t (logp_it - ref_it); 0 drops it. The baseline does not depend on row i, so the gradient
    is unbiased. A group of one has baseline 0. TRL's current trainer clips a ratio of whole answers on top;
    at ratio 1 its gradient is this one.
    """
    reward: Reward = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=kl)]) if kl else OutcomeReward()
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=reward,
        credit=RelativeAdvantage(baseline=LeaveOneOut(), scale=None),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
    )


@rloo.claim("Unbiased at any group size.", baseline="the mean of all, the row included, which shrinks by 1 - 1/G")
def unbiased() -> Finding:
    tree = TokenTree.bandit([0.0, 0.2, 0.4, 0.5, 0.9, 1.0])
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    sentence = rloo(group=2, kl=0)
    ours = expectation(sentence, tree, policy)
    own = sentence.but(**{"credit.baseline": GroupMean()})
    with_self, shrunk = expectation(own, tree, policy), expectation(own, tree, policy, scale=0.5)
    return Finding(
        measured={
            "relative bias": ours.relative_bias,
            "with self": with_self.relative_bias,
            "with self, against half the gradient": shrunk.relative_bias,
        },
        criterion="relative bias < 1e-12; with self 0.5, and < 1e-12 against half the gradient",
        holds=ours.relative_bias < 1e-12 and abs(with_self.relative_bias - 0.5) < 1e-9 and shrunk.relative_bias < 1e-12,
    )
