"""REBEL: regression of differences of log-ratios on differences of rewards."""

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import EveryPair, LogRatioReward, PairedObjective, RegressionLink
from polopt.rewards import KLPenalty, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="REBEL: Reinforcement Learning via Regressing Relative Rewards",
        authors="Gao, Zhaolin and Chang, Jonathan D. and Zhan, Wenhao and Oertell, Owen and Swamy, Gokul "
        "and Brantley, Kianté and Joachims, Thorsten and Bagnell, J. Andrew and Lee, Jason D. and Sun, Wen",
        year=2024,
        arxiv="2404.16767",
    ),
    changes="A least-squares problem in place of a policy gradient: the difference of two answers' log-ratios to the "
    "sampler is fitted to that of their rewards.",
    room="objectives",
    tier="proven",
)
def rebel(*, group: int = 2, eta: float = 1.0, kl: float = 0.0, reward: Reward | None = None) -> Algorithm:
    """L = mean_{y, y'} ([log pi(y)/pi_t(y) - log pi(y')/pi_t(y')] / eta - [r(y) - r(y')])^2

    over every two of the `group` answers that the present policy pi_t gave to a prompt, those of equal reward too. The
    minimiser over enough pairs is pi_t exp(eta r) / Z, a step of mirror descent, and a Gauss-Newton step from pi_t is
    one of length eta along the natural policy gradient, for policies that do not reach it. There is no critic, no
    clip, and a constant of the prompt in the reward cancels. The first gradient of a round is RLOO's times 4 / eta.

    A batch is a round: its rows are sampled from pi_t, and `epochs` of the stage is how long each is fitted, 4 for
    the paper's summaries.

    group: the paper has pairs; a larger group is all its pairs.
    eta (> 0): the step size, in the unit of the rewards: 1 for the paper's summaries. The authors' later code has this
        loss times eta^2, with eta up to 10^6 where the learning rate bounds the step.
    kl: the strength of the distance to the reference inside the reward; the paper's summaries have 0.05.
    reward: None takes the outcome.

    Deviations. The paper may draw one of the two answers from another policy, as the best of several of the reference;
    here all are pi_t's. The authors' temperature for summaries is 0.7: `.but` sampling.support.
    """
    if not eta > 0:
        raise ValueError(f"rebel: eta must be > 0, found {eta}")
    reward = OutcomeReward() if reward is None else reward
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=SumOfRewards(terms=[reward, KLPenalty(coefficient=kl)]) if kl else reward,
        credit=RelativeAdvantage(baseline=None, scale=None),
        objective=PairedObjective(
            implicit=LogRatioReward(scale=1 / eta, anchor="sampler"),
            link=RegressionLink(scale=1.0),
            by="advantage",
            matching=EveryPair(ties=True),
        ),
    )
