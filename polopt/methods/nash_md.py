"""Nash-MD-PG: a policy gradient on wins against the policy's own mixture with its reference."""

from typing import Literal

from polopt.algorithm import Algorithm
from polopt.credit import ConstantBaseline, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import PolicyGradient, SequenceSum, Surrogate
from polopt.rewards import KLPenalty, OutcomePreference, Preference, Reward, SumOfRewards, WinRate
from polopt.sampling import AveragedPolicy, OpponentPolicy, OpponentRollouts, ReferenceMixture, Rollouts
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="Nash Learning from Human Feedback",
        authors="Munos, Remi and Valko, Michal and Calandriello, Daniele and others",
        year=2023,
        arxiv="2312.00886",
    ),
    changes="A policy gradient on wins against answers of the policy mixed with its reference, token by token.",
    room="sampling",
    tier="proven",
)
def nash_md(
    *,
    mixture: float | Schedule = 0.25,
    tau: float = 0.008,
    group: int = 1,
    opponents: int = 1,
    opponent: Literal["mixture", "average"] = "mixture",
    decay: float = 0.99,
    preference: Preference | None = None,
) -> Algorithm:
    """The gradient is that of wins against y', an answer of the policy mixed with its reference, with y ~ pi:

        g = E[ (P(y > y') - 1/2 - tau log(pi(y) / ref(y))) grad log pi(y) ]
        mix(y_t) ~ pi(y_t)^(1 - b) ref(y_t)^b,    b = mixture

    y' is drawn from mix token by token, each after those before it; pi(y) and ref(y) are of whole answers, and the
    bracket has no gradient.

    mixture: 0 is self-play, 1 the best response to the reference; a number or a schedule. The paper's best values,
        0.125 to 0.375, and its tau could not be confirmed at the source; earlier versions of TRL had 0.5.
    tau: the weight of the KL divergence. group, opponents: answers of pi and of mix to a prompt, of which every one of
        pi's is compared with every one of mix's; the paper has one of each.
    opponent: Nash-EMA-PG ("average") plays against the policy of averaged parameters, with this decay.
    preference: `rewards.JudgedPreference(judge=...)` for a judge that compares; by default the higher outcome wins.

    `nlhf` is the exact solver. In later epochs of a batch the bracket stays the sampler's.
    """
    against: OpponentPolicy = AveragedPolicy(decay=decay) if opponent == "average" else ReferenceMixture(share=mixture)
    wins = WinRate(preference=OutcomePreference() if preference is None else preference, against="opponents")
    reward: Reward = SumOfRewards(terms=[wins, KLPenalty(coefficient=tau)]) if tau else wins
    return Algorithm(
        sampling=Rollouts(group=group, mix=[OpponentRollouts(count=opponents, policy=against)]),
        reward=reward,
        credit=RelativeAdvantage(baseline=ConstantBaseline(value=0.5), scale=None),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1)),
    )
