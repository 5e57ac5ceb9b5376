"""G2RPO: ranks of returns mapped to normal quantiles, within each kind of task."""

from collections.abc import Sequence

from polopt.algorithm import Algorithm
from polopt.credit import NormalScores
from polopt.features.groupings import SameKind, SamePrompt
from polopt.method import Paper, method
from polopt.objectives import Clip, EntropyBand, Surrogate, TokenMean, TokenRatio
from polopt.rewards import OutcomeReward, Reward, SumOfRewards
from polopt.sampling import MixedGroups, Rollouts


@method(
    paper=Paper(
        title="OpenVLThinkerV2: A Generalist Multimodal Reasoning Model for Multi-domain Visual Tasks",
        authors="Hu, Wenbo and others",
        year=2026,
        arxiv="2604.08539",
    ),
    changes="GRPO with each return's rank as a normal quantile, in the prompt's group and then in the kind of task.",
    room="credit",
    tier="reading",
)
def g2rpo(
    *,
    group: int = 8,
    low: float = 0.2,
    high: float = 0.3,
    dual: float | None = 3.0,
    refills: int = 19,
    lengths: Sequence[Reward] = (),
    share: float = 0.1,
    bands: Sequence[EntropyBand] = (),
) -> Algorithm:
    """A_i = Psi(R_i) = Phi^-1((rank_i - 1/2) / n), equal returns sharing the mean of their quantiles: the optimal
    transport of the returns to N(0, 1). The paper's equations rank within a kind of task. We rank within the prompt's
    group, then those scores within the kind, `extras["kind"]`, as the authors' code is reported to do; it could not be
    read. PPO's clip with a dual bound, token mean, no KL. Groups whose outcomes are all equal are sampled again, up to
    `refills` times.

    lengths: an `LengthEnvelope`, its least, low, high and most length, for each kind, `ConditionalReward` by
    `TaskKindIs`; together they make `share` of the reward and the outcome the rest. bands: an `EntropyBand` for each
    set of kinds. Both are off by default, as in the code's own configuration: the paper gives their form and no
    constants. The code's constants for the entropy are EntropyBand's defaults (0.2, 0.6 nats, coefficient 0.02); those
    of lengths are not in it, and `share` is a comment.
    """
    reward: Reward = OutcomeReward()
    if lengths:
        terms = [OutcomeReward(), *(length.but() for length in lengths)]
        reward = SumOfRewards(terms=terms, weights=[1 - share] + [share] * len(lengths))
    return Algorithm(
        sampling=Rollouts(group=group, select=[MixedGroups()], refills=refills),
        reward=reward,
        credit=NormalScores(within=[SamePrompt(), SameKind()]),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=Clip(low=low, high=high, dual=dual),
            aggregate=TokenMean(),
            regularise=[band.but() for band in bands],
        ),
    )
