"""GTAlign: the geometric mean of the user's and the model's utility as the reward."""

from polopt.algorithm import Algorithm
from polopt.credit import StandardisedReturns
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import (
    Brevity,
    ConditionalReward,
    DistinctPayoffs,
    GeometricMean,
    HasBlock,
    LeadingBlocks,
    LegiblePayoffs,
    LengthWindow,
    MinimumReward,
    OutcomeReward,
    PositiveReward,
    Reward,
    SumOfRewards,
)

BLOCKS = ("thinking", "payoff", "analyze", "response")
# A constant in each utility, so that none is 0.
EPSILON = 1e-4


@method(
    paper=Paper(
        title="GTAlign: Game-Theoretic Alignment of LLM Assistants for Mutual Welfare",
        authors="Zhu, Siqi and others",
        year=2025,
        arxiv="2510.08872",
    ),
    changes="PPO paid the geometric mean of the user's and the model's utility, read off four blocks of the answer, in "
    "units of each source of tasks.",
    room="rewards",
    tier="faithful",
)
def gtalign(
    *,
    group: int = 1,
    user: float = 1.0,
    model: float = 1.0,
    blocks: bool = True,
    answer: tuple[float, float] = (20, 500),
    whole: tuple[float, float] = (500, 1000),
    steepness: float = 0.005,
) -> Algorithm:
    """R = (U_user^user U_model^model)^(1 / (user + model)), z-scored per kind of task over the batch, then PPO, with

        U_user  = 1e-4 + 0.5 Q + 0.2 window(words of the response) + 0.3 exp(-characters before the response / 500)
        U_model = 1e-4 + 0.4 Q + 0.2 F + 0.2 P + 0.2 window(words of the whole)

    Q the environment's reward, F 1 for an answer that begins with the blocks thinking, payoff, analyze, response in
    this order, P 1 for payoffs that differ between the parties, and window(L) = sigmoid(k (L - low)) sigmoid(k (high -
    L)). An answer without a response, or without a payoff that can be parsed, has reward 0. user 1, model 0 is the
    user-only baseline, and the other way round.

    This follows the authors' program, of which the tasks' scores and the format were read, with these differences. Its
    quality is a judge's or BLEU; here the environment's reward is both parties' quality. Its z-score divides by n, ours
    by n - 1. Payoffs that are not finite cannot be read here.

    The policy must write the four blocks: fine-tune it to do so first, as the authors do. blocks=False is polopt's
    own, for policies that do not: the terms that read the blocks are dropped, and Q and the length of the answer are
    left. P rewards unequal numbers, true or not. While an answer is generated, `rewards.choose` reads its payoffs,
    weighted by prices, and returns the move to continue with.
    """
    soft = {"steepness": steepness, "unit": "words"}
    length = LengthWindow(low=answer[0], high=answer[1], block="response" if blocks else None, **soft)  # type: ignore[arg-type]
    of_user: list[tuple[float, Reward]] = [(0.5, OutcomeReward(shift=EPSILON / 0.5)), (0.2, length)]
    of_model: list[tuple[float, Reward]] = [
        (0.4, OutcomeReward(shift=EPSILON / 0.4)),
        (0.2, LengthWindow(low=whole[0], high=whole[1], **soft)),  # type: ignore[arg-type]
    ]
    if blocks:
        of_user += [(0.3, Brevity(scale=500, of="characters", before="response"))]
        of_model += [(0.2, LeadingBlocks(names=BLOCKS)), (0.2, DistinctPayoffs())]
    parties = [
        SumOfRewards(terms=[term for _, term in terms], weights=[weight for weight, _ in terms])
        for terms in (of_user, of_model)
    ]
    welfare = GeometricMean(terms=parties, weights=[user, model])
    plain = ppo(group=group, kl=0)
    readable = PositiveReward(reward=MinimumReward(terms=[LegiblePayoffs(), HasBlock(name="response")]))
    return plain.but(
        reward=ConditionalReward(reward=welfare, when=readable) if blocks else welfare,
        credit=StandardisedReturns(credit=plain.credit, by="zscore"),
    )
