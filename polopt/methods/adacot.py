"""AdaCoT: penalties for unnecessary and missing chains of thought, with the learned trigger masked from the loss."""

from collections.abc import Sequence
from typing import Literal

from polopt.algorithm import Algorithm
from polopt.features.base import RowMask
from polopt.features.masks import AnswerMatches, SignalAbove
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.methods.sft import sft
from polopt.rewards import SumOfRewards, ThinkOrNot
from polopt.sampling import MaskThinkDecision


@method(
    paper=Paper(
        title="AdaCoT: Pareto-Optimal Adaptive Chain-of-Thought Triggering via Reinforcement Learning",
        authors="Lou, Chenwei and others",
        year=2025,
        arxiv="2505.11896",
    ),
    changes="PPO that is punished for thinking where it was not needed, and for not thinking where it was.",
    room="rewards",
    tier="reading",
)
def adacot(
    *,
    stage: Literal[1, 2, 3] = 3,
    miss: float = 0.2,
    over: float = 0.2,
    form: float = 1.0,
    thought: RowMask | None = None,
    need: RowMask | None = None,
    malformed: RowMask | None = None,
    after: Sequence[int] = (),
    deciding: int = 1,
    kl: float = 0.0,
) -> Algorithm:
    """Answers begin with a think block, empty or filled. Three stages:

        1  supervised warm-up on answers of both sorts;
        2  PPO on tasks that always need thought (mathematics), R = outcome, without the policy loss of the token that
           decides to think (selective loss masking): when to think, learned in stage 1, is kept;
        3  PPO on all tasks,
           R = outcome - miss [needed and absent] - over [not needed and present] - form [malformed].

    Varying miss and over traces the Pareto front of accuracy and thinking rate. thought, need, malformed: predicates
    on rows; by default a filled `<think>` block, the environment's signal "needed" (in the paper another model labels
    it by written principles), and an answer that does not begin with a block. Where kinds of tasks differ,
    `need=features.TaskKindIs(kinds=(...))` is a rule without labels. after: the ids of the tokens that open a thought;
    () takes the row's first token as the decision to think; deciding: the number of its tokens.

    Terms, stages and masking are the paper's; its coefficients, reward model and PPO settings are not published, so
    ours are PPO's as published here with the token mean, under which one such token among thousands has little weight.
    The critic's loss of the masked token is left out, too.
    """
    if stage == 1:
        return sft()
    plain = ppo(kl=kl)
    if stage == 2:
        return plain.but(select=[MaskThinkDecision(after=after, count=deciding)])
    penalty = ThinkOrNot(
        thought=thought or AnswerMatches(pattern=r"<think>\s*[^\s<]"),
        need=need or SignalAbove(name="needed"),
        malformed=malformed or AnswerMatches(pattern=r"^\s*<think>.*</think>", invert=True),
        miss=miss,
        over=over,
        form=form,
    )
    return plain.but(reward=SumOfRewards(terms=[plain.reward, penalty]))
